"""Keep equal small constants once."""

from __future__ import annotations

from onnx import ModelProto, TensorProto

from .renaming import rename_reads
from .types import Types, unknown

_LARGEST_BYTES = 4096


def merge_equal_initializers(model: ModelProto, _: Types = unknown) -> bool:
    """Make readers of equal initializers (type, shape and bytes, up to 4 KiB) read the first of them."""
    graph = model.graph
    outputs = {o.name for o in graph.output}
    first: dict[tuple[int, tuple[int, ...], bytes], str] = {}
    replaced: dict[str, str] = {}
    for tensor in graph.initializer:
        if not tensor.HasField("raw_data") or len(tensor.raw_data) > _LARGEST_BYTES or tensor.name in outputs:
            continue
        if tensor.data_location == TensorProto.EXTERNAL:
            continue
        name = first.setdefault((tensor.data_type, tuple(tensor.dims), tensor.raw_data), tensor.name)
        if name != tensor.name:
            replaced[tensor.name] = name
    if not replaced:
        return False
    for node in graph.node:
        rename_reads(node, replaced)
    return True
