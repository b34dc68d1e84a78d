"""Run a model with outputs bound onto the memory of the inputs they replace, under every order a runtime may choose."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto

from onnxblock.graph.dependencies import reads

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
ORDERS = ("DEFAULT", "PRIORITY_BASED")


def shuffled(model: ModelProto, seed: int) -> ModelProto:
    """The same model with its nodes in another topological order."""
    generator = np.random.default_rng(seed)
    copy = ModelProto()
    copy.CopyFrom(model)
    pending = list(model.graph.node)
    unmade = {name for node in pending for name in node.output}
    ordered = []
    while pending:
        ready = [k for k, node in enumerate(pending) if unmade.isdisjoint(reads(node))]
        node = pending.pop(int(generator.choice(ready)))
        unmade.difference_update(node.output)
        ordered.append(node)
    del copy.graph.node[:]
    copy.graph.node.extend(ordered)
    return copy


def run_bound(
    model: ModelProto,
    feeds: Mapping[str, Any],
    pairs: Mapping[str, str],
    *,
    level: str = "ORT_ENABLE_ALL",
    order: str = "DEFAULT",
    parallel: bool = False,
    steps: int = 1,
    copied: bool = True,
) -> dict[str, Any]:
    """The outputs after ``steps`` runs, where output ``pairs[x]`` lies in the memory of input x.

    The inputs are copies of ``feeds``, or with ``copied=False`` those arrays, which may share memory.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.execution_order = getattr(onnxruntime.ExecutionOrder, order)
    options.intra_op_num_threads = 1
    if parallel:
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = 2
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    arrays = {name: np.array(x) if copied else x for name, x in feeds.items()}
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in arrays.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    sources = {new: old for old, new in pairs.items()}
    names = [output.name for output in session.get_outputs()]
    for name in names:
        if name in sources:
            binding.bind_ortvalue_output(name, values[sources[name]])
        else:
            binding.bind_output(name)
    for _ in range(steps):
        session.run_with_iobinding(binding)
    return {name: np.array(value.numpy()) for name, value in zip(names, binding.get_outputs(), strict=True)}


def settings(orders: Sequence[str] = ORDERS) -> Iterator[dict[str, Any]]:
    """Every combination of optimisation level, execution order and execution mode."""
    for level, order, parallel in itertools.product(LEVELS, orders, (False, True)):
        yield {"level": level, "order": order, "parallel": parallel}
