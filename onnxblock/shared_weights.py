"""Scales and biases that several layers read."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import ModelProto, NodeProto

_NORMALIZATIONS = frozenset(
    {"BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization"}
)
_WITH_BIAS = frozenset({"Conv", "ConvTranspose", "Gemm"})


def shared_scales_and_biases(model: ModelProto) -> list[str]:
    """Those that several normalizations read, or layers whose own weights differ, in initializer order.

    Each is part of a layer that is used several times, or equal tensors that an exporter has merged.
    """
    sources = {t.name: t.name for t in model.graph.initializer}
    products: dict[str, NodeProto] = {}
    readers: dict[str, set[str]] = {}
    for node in model.graph.node:
        if node.op_type == "Identity" and node.input[0] in sources:  # as which the older exporter writes what it merges
            sources[node.output[0]] = sources[node.input[0]]
        elif node.op_type == "MatMul":
            products[node.output[0]] = node
        for name, layer in _parts(node, products, sources):
            if name in sources:
                readers.setdefault(sources[name], set()).add(layer)
    return [t.name for t in model.graph.initializer if len(readers.get(t.name, ())) > 1]


def _parts(node: NodeProto, products: dict[str, NodeProto], sources: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The scale and the bias of a layer, each with what tells the layer from others."""
    if node.op_type in _NORMALIZATIONS:
        for name in {*node.input[1:3]} - {""}:
            yield name, node.output[0]
    elif node.op_type in _WITH_BIAS and len(node.input) > 2:
        yield node.input[2], node.input[1]
    elif node.op_type == "Add":
        for product, bias in (node.input, reversed(node.input)):
            if product in products:
                yield bias, next((name for name in products[product].input if name in sources), product)
