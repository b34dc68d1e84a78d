"""Large parameters are updated in slices: the same bits as whole, from the same states."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import artifacts
from artifacts.api import CheckpointState, TrainingStep
from artifacts.api.bound import part_of
from artifacts.manifest import Input, Manifest
from artifacts.summary import ParameterInfo
from onnxblock import fused_gradients, names, optim
from onnxblock.block import Block
from onnxblock.errors import ArtifactMismatchError, CheckpointError, InvalidModelError, OnnxBlockError, ParameterError
from onnxblock.graph import scatter
from onnxblock.graph.inference import infer_model
from onnxblock.graph.inplace import InPlace
from onnxblock.graph.types import tensor_type
from onnxblock.names import MANIFEST_KEY
from onnxblock.optim import slices as slicing
from tests.in_place import run_bound, settings, shuffled
from tests.optim.stepping import pairs, step_model
from tests.test_in_place import OPTIMIZERS, feeds_of
from tests.training import Training, begin, generate, perceptron, random_batch

BATCHES = [random_batch(6, seed=t) for t in range(5)]
WHOLE_ONLY = {"LAMB", "Adafactor"}
"""Their updates take the length of the parameter, or the means of its rows."""
NORM_OF_ALL = {"clipped", "averaged groups"}
"""The squares of the gradients are added up in another order."""


@pytest.fixture
def cut(monkeypatch):
    """Let parameters of more than 100 elements be large from here on."""
    return lambda: monkeypatch.setattr(slicing, "_LONGEST", 100)


def manifest_of(files: artifacts.Artifacts) -> Manifest:
    model = onnx.load(files.optimizer_model)
    return Manifest.from_json(next(p.value for p in model.metadata_props if p.key == MANIFEST_KEY))


def both(folder: Path, cut, optimizer: Block) -> tuple[artifacts.Artifacts, artifacts.Artifacts]:
    """Artifacts that take parameters whole, and in slices."""
    model = perceptron(hidden=9)
    whole = generate(model, folder / "whole", optimizer=optimizer)
    cut()
    return whole, generate(model, folder / "slices", optimizer=optimizer)


def train(training: Training, batches=BATCHES) -> Training:
    for batch in batches:
        training.step(*batch)
    return training


def saved(training: Training, path: Path) -> bytes:
    CheckpointState.save_checkpoint(training.state, path, include_optimizer_state=True)
    return path.read_bytes()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_same_bits_as_whole(name, cut, tmp_path):
    """Parameters and moments after several steps, and after going on from each other's states."""
    files = both(tmp_path, cut, OPTIMIZERS[name])
    found = manifest_of(files[1])
    assert any(port.offset for port in found.inputs) is (name not in WHOLE_ONLY)
    through = [train(begin(f)) for f in files]
    if name in NORM_OF_ALL:
        for p, array in through[0].data().items():
            np.testing.assert_allclose(through[1].data()[p], array, rtol=1e-4, atol=1e-6)
        return
    expected = saved(through[0], tmp_path / "expected")
    assert saved(through[1], tmp_path / "through") == expected
    for first, then in (files, files[::-1]):
        saved(train(begin(first), BATCHES[:2]), tmp_path / "stopped")
        resumed = train(begin(then, tmp_path / "stopped"), BATCHES[2:])
        assert saved(resumed, tmp_path / "resumed") == expected


def test_manifest(cut, tmp_path):
    whole, sliced = both(tmp_path, cut, optim.ExponentialMovingAverage(optim.AdamW()))
    assert not any(port.offset is not None for port in (*manifest_of(whole).inputs, *manifest_of(whole).outputs))
    manifest = manifest_of(sliced)
    by_name = {port.name: port for port in (*manifest.inputs, *manifest.outputs)}
    large = next(p for p in sliced.trainable if p.shape == (64, 9))
    found = [port for port in manifest.inputs_of("parameter") if port.parameter == large.name]
    assert [(port.offset, port.shape) for port in found] == [
        *((start, (1, 128)) for start in range(0, 512, 128)),
        (512, (1, 64)),
    ]
    assert found[1].name == f"{large.name}[128:256]"
    for name in (f"{found[1].name}_grad", f"{found[1].name}.momentum2", f"{found[1].name}.updated"):
        port = by_name[name]
        assert (port.parameter, port.offset, port.shape) == (large.name, 128, (1, 128))
    initial = {pair.input: pair.initial for pair in manifest.state}
    assert initial[f"{found[1].name}.momentum2"].parameter == initial[found[1].name].parameter == large.name
    assert all(pair.in_place for pair in manifest.state)
    small = next(port for port in manifest.inputs_of("parameter") if port.shape == (9,))
    assert (small.parameter, small.offset) == (None, None)


def test_small_models_do_not_change(tmp_path):
    found = generate(perceptron(hidden=9), tmp_path)
    assert b"[0:" not in Path(found.optimizer_model).read_bytes()


def test_gradients_and_moments_stay_arrays(cut, tmp_path):
    _, files = both(tmp_path, cut, optim.AdamW())
    training = train(begin(files))
    for name, array in training.gradients().items():
        assert array.shape == training.data()[name].shape
    kept = training.state.storage.optimizer.moments
    assert {name: [m.shape for m in moments] for name, moments in kept.items()} == {
        p.name: [p.shape, p.shape] for p in files.trainable
    }


# -- what is cut


def test_slices_cover_every_element_once():
    for size in (262_145, 1_000_000, 33_554_432, 10_000_000_007):
        found = slicing.slices({"w": (size,), "b": (262_144,)})
        assert list(found) == ["w"]
        starts, stops = zip(*found["w"])
        assert (starts[0], stops[-1]) == (0, size)
        assert starts[1:] == stops[:-1]
        assert all(start % 64 == 0 for start in starts)
        assert 2 <= len(starts) <= 512
        assert max(stop - start for start, stop in found["w"]) <= max(262_144, size / 500)


def test_slices_are_of_whole_rows_where_rows_are_short():
    for shape in ((30_522, 768), (50_257, 100), (9, 3, 300, 400), (1_000, 1_023)):
        (cut,) = slicing.slices({"w": shape}).values()
        row = math.prod(shape[1:])
        whole = row * math.lcm(row, 64) // row * 8 <= 262_144
        assert all(start % row == 0 for start, _ in cut) == whole
        assert all(stop - start <= 262_144 * 1.125 for start, stop in cut)


def test_the_number_of_slices_is_bounded():
    found = slicing.slices({f"w{k}": (4_000_000,) for k in range(500)})
    assert sum(map(len, found.values())) == 1000
    assert slicing.slices({f"w{k}": (400_000,) for k in range(2000)}) == {}


def sliced_inputs(optimizer: optim.Optimizer, shape=(40, 8)) -> list[str]:
    with optim.slice_form():
        model = step_model(optimizer, shapes={"w": shape, "b": (3,)})
    return [value.name for value in model.graph.input if "[" in value.name]


class Shrinking(optim.AdamW):
    """With a rule of its own, so nothing is known of it."""

    def rule(self, step):
        return lambda p, g, m, v: [p - g.mean(), m, v]


class OwnClip(Block):
    def build(self, gradients):
        return gradients


def test_only_where_it_makes_no_difference(cut):
    cut()
    assert sliced_inputs(optim.SGD())
    assert sliced_inputs(optim.ExponentialMovingAverage(optim.SGD(optim.ClipGradValue(1.0))))
    for other in (optim.LAMB(), optim.Adafactor(), Shrinking(), optim.SGD(OwnClip())):
        assert sliced_inputs(other) == []
        assert sliced_inputs(optim.ExponentialMovingAverage(other)) == []
    assert sliced_inputs(optim.SGD(), ("n", 100)) == []
    groups = optim.ParameterGroups(optim.AdamW(), optim.Group("w", optimizer=optim.LAMB()))
    assert sliced_inputs(groups) == []


def test_custom_blocks_take_their_parameters_whole(cut, tmp_path):
    class Own(Block):
        def build(self, parameters):
            return optim.AdamW()(parameters)

    cut()
    files = generate(perceptron(hidden=9), tmp_path, optimizer=Own())
    assert not any(port.offset for port in manifest_of(files).inputs)


def fused(folder: Path, optimizer: Block, model: onnx.ModelProto) -> tuple[artifacts.Artifacts, Manifest]:
    files = generate(model, folder, optimizer=optimizer, fused_step=True)
    entries = onnx.load(files.step_model, load_external_data=False).metadata_props
    return files, Manifest.from_json(next(p.value for p in entries if p.key == MANIFEST_KEY))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_fused_step_updates_slices_of_what_it_reads_as_a_whole(name, cut, tmp_path):
    """The slices lie in the memory of the parameter, and are written when nothing reads it any more."""
    model = perceptron(hidden=9)
    whole, _ = fused(tmp_path / "whole", OPTIMIZERS[name], model)
    cut()
    files, found = fused(tmp_path / "slices", OPTIMIZERS[name], model)
    slices = [port for port in found.inputs_of("parameter") if port.offset is not None]
    assert {port.owner for port in slices} == ({"Perceptron/Linear/weight"} if name not in WHOLE_ONLY else set())
    assert [port.name for port in found.inputs_of("parameter") if port.offset is None] == [
        parameter.name for parameter in files.trainable
    ]
    assert all(pair.in_place for pair in found.state)
    trained = []
    for given in (whole, files):
        state = CheckpointState.load_checkpoint(given.checkpoint)
        step = TrainingStep(given.step_model, state, given.eval_model)
        assert step.get_parameters_size() == sum(p.data.size for _, p in state.parameters)
        losses = [float(step(*batch)) for batch in BATCHES]
        CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
        trained.append((losses, (tmp_path / "saved").read_bytes(), {n: p.data for n, p in state.parameters}))
    if name in NORM_OF_ALL:
        for parameter, array in trained[0][2].items():
            np.testing.assert_allclose(trained[1][2][parameter], array, rtol=1e-4, atol=1e-6)
    else:
        assert trained[0][:2] == trained[1][:2]


def tied() -> onnx.ModelProto:
    """A table that is looked up, and multiplied by at the end."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
    tied (int64[n] tokens) => (float[n, 24] scores) {
        h = Gather (table, tokens)
        t = Tanh (h)
        turned = Transpose <perm = [1, 0]> (table)
        scores = MatMul (t, turned)
    }""")
    table = np.random.default_rng(0).normal(size=(24, 16)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    return model


def looked_up(rows: str) -> onnx.ModelProto:
    """A table whose gradient is ``few`` or ``many`` rows added up."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
    looked_up (int64[COUNT] tokens) => (float[COUNT, 16] scores) {
        h = Gather (table, tokens)
        scores = Tanh (h)
    }""".replace("COUNT", {"few": "3", "many": "n"}[rows])
    )
    table = np.random.default_rng(0).normal(size=(600, 16)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    return model


@pytest.mark.parametrize("model", [tied(), looked_up("few"), looked_up("many")], ids=["tied", "few", "many"])
def test_very_large_gradients_of_tables_are_computed_slice_by_slice(model, cut, monkeypatch, tmp_path):
    monkeypatch.setattr(scatter, "LARGE", 100)
    cut()
    whole, _ = fused(tmp_path / "whole", optim.AdamW(), model)
    monkeypatch.setattr(fused_gradients, "_LARGE", 100)
    files, _ = fused(tmp_path / "rows", optim.AdamW(), model)
    (table,) = files.trainable
    trained, made = [], []
    for given in (whole, files):
        graph = onnx.load(given.step_model, load_external_data=False).graph
        types = infer_model(onnx.load(given.step_model))
        made.append({node.op_type for node in graph.node if any(as_large(types.get(n), table) for n in node.output)})
        state = CheckpointState.load_checkpoint(given.checkpoint)
        step = TrainingStep(given.step_model, state, given.eval_model)
        losses = [float(step(np.array(t), np.array([1, 0, 2]))) for t in ([3, -1, 3], [0, 5, 23], [7, 7, 7], [1, 2, 3])]
        CheckpointState.save_checkpoint(state, tmp_path / "saved", include_optimizer_state=True)
        trained.append((losses, (tmp_path / "saved").read_bytes()))
    of_gradients = {"ConstantOfShape", "Gemm", "ScatterElements", "ScatterND"}
    assert made[0] & of_gradients
    assert not made[1] & of_gradients
    assert trained[0] == trained[1]


def as_large(type_: onnx.TypeProto | None, parameter: ParameterInfo) -> bool:
    known = tensor_type(type_)
    return known is not None and known.shape == parameter.shape


def test_whatever_the_order_of_the_nodes_the_whole_is_read_before_its_slices_are_written(cut, tmp_path):
    cut()
    files, found = fused(tmp_path, optim.AdamW(), tied())
    assert sum(port.offset is not None for port in found.inputs_of("parameter")) == 3
    assert all(pair.in_place for pair in found.state)
    model = onnx.load(files.step_model)
    feeds = feeds_of(found, tokens=np.array([3, 3, 7]), labels=np.array([1, 0, 2]), step=np.array([3]))
    table = feeds["table"]
    parts = {port.name: part_of(table, port) for port in found.inputs_of("parameter")}
    for seed, setting in enumerate(settings()):
        apart = {**feeds, **{name: part.copy() for name, part in parts.items()}}
        expected = run_bound(shuffled(model, seed), apart, {}, **setting)
        found_bits = run_together(shuffled(model, seed), feeds, found, **setting)
        for name, array in expected.items():
            assert np.array_equal(found_bits[name], array), (seed, setting, name)


def run_together(model: onnx.ModelProto, feeds: dict[str, np.ndarray], manifest: Manifest, **setting: Any) -> Any:
    """The outputs of a run where slices lie in the memory of their parameter, and new values in that of old ones."""
    memory = {name: array.copy() for name, array in feeds.items()}
    for port in manifest.inputs_of("parameter"):
        if port.offset is not None:
            memory[port.name] = part_of(memory[port.owner], port)
    pairs = {pair.input: pair.output for pair in manifest.state}
    return run_bound(model, memory, pairs, copied=False, **setting)


def test_in_place_where_the_gradients_are_clipped_together(cut):
    cut()
    with optim.slice_form():
        model = step_model(optim.AdamW(clip_grad=optim.ClipGradNorm(1.0)), shapes={"w": (1000, 64)})
    proof = InPlace(model)
    assert len(pairs(model)) == 1500
    assert all(proof.is_safe(old, new) for old, new in pairs(model).items())


# -- refusals


def test_names_of_slices_are_taken(tmp_path):
    model = perceptron(hidden=9)
    weight, bias = (model.graph.initializer[k].name for k in (0, 1))
    taken = names.slice_of(weight, 0, 128)
    for node in model.graph.node:
        node.input[:] = [taken if name == bias else name for name in node.input]
    model.graph.initializer[1].name = taken
    with pytest.raises(ParameterError, match=r"names that training needs.*\[0:128\]"):
        generate(model, tmp_path)


def with_manifest(files: artifacts.Artifacts, manifest: Manifest) -> None:
    model = onnx.load(files.optimizer_model)
    next(p for p in model.metadata_props if p.key == MANIFEST_KEY).value = manifest.to_json()
    onnx.save(model, files.optimizer_model)


def test_slices_that_do_not_cover_the_parameter(cut, tmp_path):
    _, files = both(tmp_path, cut, optim.SGD())
    manifest = manifest_of(files)
    large = next(port for port in manifest.inputs_of("parameter") if port.offset == 128)
    moved = tuple(dataclasses.replace(p, offset=64) if p is large else p for p in manifest.inputs)
    with_manifest(files, dataclasses.replace(manifest, inputs=moved))
    with pytest.raises(ArtifactMismatchError, match="a slice of the model begins at element 64, not 128"):
        begin(files)


def test_moments_of_another_shape_are_refused_whole(cut, tmp_path):
    _, files = both(tmp_path, cut, optim.AdamW())
    training = begin(files)
    name = files.trainable[0].name
    moment = training.state.storage.optimizer.moments[name][0]
    training.state.storage.optimizer.moments[name][0] = dataclasses.replace(
        moment, shape=(2, 2), data=np.zeros((2, 2), np.float32)
    )
    saved(training, tmp_path / "wrong")
    with pytest.raises(CheckpointError, match=r"momentum0 of parameter .* is float32\[2, 2\], the optimizer keeps"):
        begin(files, tmp_path / "wrong")


@pytest.mark.parametrize(
    "change", [{"parameter": None}, {"shape": None}, {"shape": (None, 4)}, {"role": "learning_rate", "name": "r"}]
)
def test_only_slices_have_offsets(change):
    port = dataclasses.replace(Input("w[0:4]", "parameter", "float32", (1, 4), "w", offset=0), **change)
    with pytest.raises(InvalidModelError, match="only a slice"):
        Manifest("optimizer", "", "", ("onnxruntime",), (port,), ()).validate()


def test_what_cannot_be_bound_is_refused():
    port = Input("w[4:8]", "parameter", "float32", (1, 4), "w", offset=4)
    array = np.arange(16.0).reshape(4, 4)
    part = part_of(array, port)
    assert part.tolist() == [[4, 5, 6, 7]]
    assert np.shares_memory(part, array)
    with pytest.raises(OnnxBlockError, match="elements 4 to 8 of an array of 6"):
        part_of(np.zeros(6), port)
    with pytest.raises(OnnxBlockError, match="not contiguous"):
        part_of(array.T, port)
