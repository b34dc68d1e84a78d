"""What PyTorch says the loss, the gradients and the running statistics of an exported example are."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn.utils import fuse_conv_bn_eval

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx

    from tests.models import Example
    from tests.models.export import Mode

    Arrays = dict[str, npt.NDArray[np.floating]]

LOSSES = {"cross_entropy": nn.functional.cross_entropy, "mse": nn.functional.mse_loss}
STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class Expected:
    """The results of one step: in train mode ``statistics`` has the moved running statistics, else nothing.

    ``gradients`` and ``statistics`` go by the names of the ONNX model.
    """

    output: npt.NDArray[np.floating]
    loss: float
    gradients: Arrays
    statistics: Arrays


def torch_gradients(module: nn.Module, example: Example) -> Expected:
    """Run one step of ``module``, in the mode it is in, on the data of ``example``; names are PyTorch's.

    It computes in float64, so that what is compared with it has all rounding errors to itself.
    """
    module = deepcopy(module).double()
    inputs = [x.double() if x.is_floating_point() else x for x in example.inputs]
    target = example.target.double() if example.target.is_floating_point() else example.target
    output = module(*inputs)
    loss = LOSSES[example.loss](output, target)
    loss.backward()
    return Expected(
        output.detach().numpy(),
        loss.item(),
        {name: p.grad.numpy() for name, p in module.named_parameters(remove_duplicate=False) if p.grad is not None},
        {name: b.numpy() for name, b in module.named_buffers() if name.endswith(STATISTICS)},
    )


def expected(model: onnx.ModelProto, example: Example, mode: Mode) -> Expected:
    """Return the results of one step of ``example`` in ``mode`` by the names of the initializers of ``model``.

    The model must be an export of the example's module.  Exporters fold batch norms into convolutions, give a tied
    weight two initializers, and transpose or join weights: the gradients are those of the initializers as they stand.
    """
    module = deepcopy(example.module).train(mode == "train")
    # An exporter that traces in train mode moves the statistics before it writes them down.
    initial = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in model.graph.initializer}
    module.load_state_dict({name: initial[name] for name in initial if name.endswith(STATISTICS)}, strict=False)
    if not any(node.op_type == "BatchNormalization" for node in model.graph.node):
        module = fold_batch_norms(module)
    sources = match(model, module)
    used = Counter(name for names, _ in sources.values() for name in names)
    if all(used[name] for names in tied(module) for name in names):
        untie(module)
    result = torch_gradients(module, example)
    missing = {
        n for n in result.gradients if not used[n] and not any(n in t and any(map(used.get, t)) for t in tied(module))
    }
    if missing:
        raise AssertionError(f"no initializer found for {sorted(missing)}")
    return Expected(
        result.output,
        result.loss,
        {
            initializer: np.concatenate([result.gradients[name].ravel() for name in names])[indices]
            for initializer, (names, indices) in sources.items()
        },
        {name: moved for name, moved in result.statistics.items() if mode == "train" and name in initial},
    )


def fold_batch_norms(module: nn.Module) -> nn.Module:
    """Fold every batch norm that directly follows a convolution into it, as one exporter does in evaluation mode."""
    if module.training:
        return module
    for parent in list(module.modules()):
        children = list(parent.named_children())
        for (name, convolution), (following, norm) in pairwise(children):
            if isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(parent, name, fuse_conv_bn_eval(convolution, norm).requires_grad_(True))
                setattr(parent, following, nn.Identity())
    return module


def tied(module: nn.Module) -> list[list[str]]:
    """Return the groups of names that share one parameter."""
    groups: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def untie(module: nn.Module) -> None:
    """Give each name of a shared parameter a parameter of its own, of the same value."""
    for names in tied(module):
        for name in names[1:]:
            owner, _, attribute = name.rpartition(".")
            parent = module.get_submodule(owner)
            setattr(parent, attribute, nn.Parameter(getattr(parent, attribute).detach().clone()))


def match(model: onnx.ModelProto, module: nn.Module) -> dict[str, tuple[list[str], npt.NDArray[np.int64]]]:
    """Return, for each float initializer (or constant) made of parameters, which ones, and which elements of them.

    The elements are an array, in the initializer's shape, of indices into the parameters laid end to end.
    """
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            arrays[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    arrays = {name: a for name, a in arrays.items() if a.dtype.kind == "f" and a.size > 1}
    left = {name: p.detach().numpy() for name, p in module.named_parameters(remove_duplicate=False)}
    found = {}
    for initializer, array in arrays.items():
        if initializer in left and _same(left[initializer], array):
            found[initializer] = ([initializer], np.arange(array.size).reshape(array.shape))
            del left[initializer]
    for initializer in arrays.keys() - found.keys():
        for name, parameter in left.items():
            indices = np.arange(parameter.size).reshape(parameter.shape)
            if not _same(parameter, arrays[initializer]):
                indices = indices.T
            if _same(parameter.ravel()[indices], arrays[initializer]):
                found[initializer] = ([name], indices)
                del left[name]
                break
    names = list(left)
    values = np.concatenate([left[name].ravel() for name in names] or [np.zeros(0, np.float32)])
    order = np.argsort(values)
    for initializer in arrays.keys() - found.keys():
        positions = np.searchsorted(values, arrays[initializer], sorter=order).clip(max=max(values.size - 1, 0))
        if values.size and np.array_equal(values[order[positions]], arrays[initializer]):
            found[initializer] = (names, order[positions])
    return found


def _same(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=1e-6)


def errors(ours: Arrays, theirs: Arrays) -> dict[str, float]:
    """Return, by name, ‖ours − theirs‖∞ over the size of the gradient, largest first.

    The size is ‖theirs‖∞, but at least a thousandth of the largest of all: some gradients are truly zero (a key's
    bias, a bias before a batch norm), and what is computed for them is rounding noise.
    """
    if ours.keys() != theirs.keys():
        raise AssertionError(f"gradients of different parameters: {sorted(ours.keys() ^ theirs.keys())}")
    floor = 1e-3 * max(np.abs(g).max() for g in theirs.values())
    ratios = {}
    for name, theirs_one in theirs.items():
        if ours[name].shape != theirs_one.shape:
            raise AssertionError(f"{name}: the gradient has shape {ours[name].shape}, not {theirs_one.shape}")
        difference = np.abs(ours[name].astype(np.float64) - theirs_one).max()
        ratios[name] = float(difference / max(np.abs(theirs_one).max(), floor))
    return dict(sorted(ratios.items(), key=lambda item: -item[1]))
