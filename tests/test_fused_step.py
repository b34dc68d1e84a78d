"""Forward, backward and update in one run: the same bits as Module and Optimizer, and the same checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import artifacts
import onnxblock
from artifacts import api
from artifacts.api import CheckpointState, TrainingStep
from onnxblock import names, optim
from onnxblock.errors import (
    ArgumentError,
    ArtifactMismatchError,
    BlockBuildError,
    CheckpointError,
    FeedError,
    InvalidModelError,
    OnnxBlockError,
    ParameterError,
)
from tests.optim.test_original import CustomSGD
from tests.refusing import refused
from tests.test_in_place import OPTIMIZERS, assert_same_bits, feeds_of, manifest_of, pairs_of
from tests.training import begin, convolutional, generate, model_of, one_thread, perceptron, random_batch

BATCHES = [random_batch(6, seed=t) for t in range(6)]
IMAGES = [(x.reshape(-1, 1, 8, 8), labels) for x, labels in BATCHES]
SCALARS = {names.LEARNING_RATE: np.array([0.1], np.float32), names.STEP: np.array([3], np.int64)}
TOKENS, WIDTH, LENGTH = 10, 8, 5


class Transformer(onnxblock.ForwardBlock):
    """One layer of attention without dropout; the embedding is the output layer too; [n, 5] tokens to their scores."""

    def build(self) -> onnxblock.Value:
        graph, random = self.graph, np.random.default_rng(0)

        def weight(name: str, *shape: int) -> onnxblock.Value:
            return graph.parameter(name, random.normal(0, 0.3, shape).astype(np.float32))

        def normalized(x: onnxblock.Value, name: str) -> onnxblock.Value:
            scale, shift = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
            made = graph.parameter(f"{name}.scale", scale), graph.parameter(f"{name}.shift", shift)
            return graph.op.LayerNormalization(x, *made, axis=-1)

        embedding = weight("embedding", TOKENS, WIDTH)
        x = graph.op.Gather(embedding, graph.input("x", np.int64, ["n", LENGTH]))
        y = normalized(x, "first")
        q, k, v = (y @ weight(name, WIDTH, WIDTH) for name in ("query", "key", "value"))
        x = x + graph.op.Softmax(q @ graph.op.Transpose(k, perm=[0, 2, 1]), axis=-1) @ v @ weight("mix", WIDTH, WIDTH)
        y = graph.op.Gelu(normalized(x, "second") @ weight("wide", WIDTH, 2 * WIDTH)) @ weight(
            "narrow", 2 * WIDTH, WIDTH
        )
        scores = normalized(x + y, "last").reshape(-1, WIDTH) @ embedding.T
        return graph.rename(scores, "scores")


def transformer() -> onnx.ModelProto:
    with onnxblock.empty_base(20):
        block = Transformer()
        block()
        return block.to_model_proto()


def sentences() -> list[tuple[Any, Any]]:
    random = np.random.default_rng(0)
    return [(random.integers(0, TOKENS, (3, LENGTH)), random.integers(0, TOKENS, 3 * LENGTH)) for _ in range(6)]


class Branching(onnxblock.ForwardBlock):
    """A dense layer in one branch of an If and in the body of a Loop; [n, 64] to 10 scores."""

    def build(self) -> onnxblock.Value:
        graph = self.graph
        x = graph.input("x", np.float32, ["n", 64])
        weight = graph.parameter("weight", np.random.default_rng(0).normal(0, 0.1, (64, 64)).astype(np.float32))
        then, other = (onnxblock.graph.subgraph.Subgraph(graph) for _ in range(2))
        then.returns([then.op.Tanh(then.op.MatMul(x, weight))])
        other.returns([other.op.Neg(x)])
        positive = graph.op.Greater(x.sum(), 0.0)
        (x,) = graph.add("If", [positive], {"then_branch": then.proto, "else_branch": other.proto})
        return graph.rename(onnxblock.blocks.Linear(64, 10)(x @ weight), "scores")


NETWORKS = {
    "perceptron": (lambda: perceptron(hidden=8), BATCHES),
    "convolutional": (convolutional, IMAGES),
    "transformer": (transformer, sentences()),
    "branching": (lambda: model_of(Branching()), BATCHES),
}
MOST = ["clipped", "averaged groups", "SGD"]
CASES = [*(("perceptron", name) for name in OPTIMIZERS), *((n, o) for n in NETWORKS if n != "perceptron" for o in MOST)]


def step_of(files: artifacts.Artifacts, checkpoint: Path | None = None, **options: Any) -> TrainingStep:
    assert files.step_model is not None
    state = CheckpointState.load_checkpoint(checkpoint or files.checkpoint)
    return TrainingStep(files.step_model, state, files.eval_model, session_options=one_thread(), **options)


def saved(state: CheckpointState, path: Path) -> bytes:
    CheckpointState.save_checkpoint(state, path, include_optimizer_state=True)
    return path.read_bytes()


@pytest.mark.parametrize(("network", "name"), CASES)
def test_the_same_bits_as_in_two_runs(network, name, tmp_path):
    make, batches = NETWORKS[network]
    files = generate(make(), tmp_path, optimizer=OPTIMIZERS[name], fused_step=True)
    two, one = begin(files), step_of(files)
    for training in (two.optimizer, one):
        training.set_learning_rate(0.01)
    before = two.data()
    for batch in batches:
        assert float(one(*batch)) == two.step(*batch)
    assert one.completed_steps == len(batches)
    assert saved(one.state, tmp_path / "one") == saved(two.state, tmp_path / "two")
    assert all(not np.array_equal(before[p.name], one.state.parameters[p.name].data) for p in files.trainable)
    assert all(parameter.grad is None for _, parameter in one.state.parameters)
    assert float(one.eval()(*batches[0])) == float(two.module.eval()(*batches[0]))


@pytest.mark.parametrize("network", ["perceptron", "convolutional", "transformer"])
def test_forward_results_may_be_computed_again(network, tmp_path):
    make, batches = NETWORKS[network]
    steps = []
    for folder, recompute in (("kept", None), ("again", True)):
        files = generate(make(), tmp_path / folder, fused_step=True, recompute=recompute)
        steps.append(step_of(files))
        assert all(pair.in_place for pair in manifest_of(onnx.load(files.step_model)).state)
    assert any(names.RECOMPUTED_SUFFIX in node.name for node in onnx.load(files.step_model).graph.node)
    for batch in batches:
        losses = [float(step(*batch)) for step in steps]
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for name, parameter in steps[0].state.parameters:
        np.testing.assert_allclose(steps[1].state.parameters[name].data, parameter.data, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("network", "name"), CASES)
def test_every_state_is_written_in_place(network, name, tmp_path):
    make, _ = NETWORKS[network]
    manifest = manifest_of(
        onnx.load(generate(make(), tmp_path, optimizer=OPTIMIZERS[name], fused_step=True).step_model)
    )
    made = artifacts.manifest.Manifest.inputs_of(manifest, "parameter", "moment", "statistic")
    assert sorted(pairs_of(manifest)) == sorted(port.name for port in made)


@pytest.mark.parametrize(
    ("network", "name"),
    [("perceptron", "AdamW"), ("convolutional", "Lion"), ("transformer", "SGD"), ("branching", "SGD")],
)
def test_in_place_or_not_in_whatever_order_the_nodes_run(network, name, tmp_path):
    make, batches = NETWORKS[network]
    model = onnx.load(generate(make(), tmp_path, optimizer=OPTIMIZERS[name], fused_step=True).step_model)
    manifest = manifest_of(model)
    x, labels = batches[0]
    assert_same_bits(model, feeds_of(manifest, x=x, labels=labels, **SCALARS), pairs_of(manifest))


class Plain(onnxblock.Block):
    """p ← p - g: no number is in the way that could make it wait."""

    def build(self, parameters):
        outputs = []
        for p in optim.parameters.trainable(parameters):
            value = self.graph.input(p.name, p.dtype, p.shape)
            gradient = self.graph.input(p.name + names.GRADIENT_SUFFIX, p.dtype, p.shape)
            outputs.append(self.graph.rename(value - gradient, names.updated(p.name)))
        return outputs


def test_what_cannot_wait_gets_memory_of_its_own(tmp_path):
    files = generate(perceptron(hidden=8), tmp_path, optimizer=Plain(), fused_step=True)
    in_place = {pair.input: pair.in_place for pair in manifest_of(onnx.load(files.step_model)).state}
    assert in_place == {
        "Perceptron/Linear/weight": True,
        "Perceptron/Linear/bias": True,
        "Perceptron/Linear/weight_1": False,
        "Perceptron/Linear/bias_1": True,
    }
    two, one = begin(files), step_of(files)
    for batch in BATCHES:
        assert float(one(*batch)) == two.step(*batch)
    assert saved(one.state, tmp_path / "one") == saved(two.state, tmp_path / "two")


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_a_weight_in_an_if_whose_condition_is_constant(name, tmp_path):
    """onnxruntime puts the branch in its place, so the gradients of its inputs are no longer there all at once."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        branches (float[3, 3] x) => (float loss)
        <float[3] u = {0.5, -1, 2}, float[3, 3] w = {1, 2, 3, -1, -2, -3, 0.1, 0.2, 0.3}, bool flag = {1}>
        {
            h = Mul (x, u)
            z = If (flag) <
                then_branch = t () => (tz) { p = Mul (h, w)  tz = Tanh (p) },
                else_branch = e () => (ez) { ez = Identity (h) }
            >
            loss = ReduceSum <keepdims = 0> (z)
        }""")
    optimizer = {"SGD": optim.SGD(), "AdamW": optim.AdamW()}[name]
    files = generate(model, tmp_path, loss=None, optimizer=optimizer, fused_step=True)
    two, one = begin(files), step_of(files)
    for training in (two.optimizer, one):
        training.set_learning_rate(0.5)
    for x in np.random.default_rng(0).normal(size=(3, 3, 3)).astype(np.float32):
        assert float(one(x)) == two.step(x)
    assert saved(one.state, tmp_path / "one") == saved(two.state, tmp_path / "two")


def order_of(files: artifacts.Artifacts, batch: tuple[Any, ...], folder: Path) -> list[str]:
    """The names of the nodes in the order in which onnxruntime runs them."""
    options = one_thread()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    state = CheckpointState.load_checkpoint(files.checkpoint)
    step = TrainingStep(files.step_model, state, session_options=options)
    step(*batch)
    events = json.loads(Path(step._train_model._session.end_profiling()).read_text())
    return [e["name"] for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]


def test_gradients_do_not_wait_for_each_other(tmp_path):
    """Each update follows its gradient, the last layer's first, and the loss comes before all of them."""
    files = generate(transformer(), tmp_path, optimizer=artifacts.OptimType.AdamW, fused_step=True)
    order = order_of(files, sentences()[0], tmp_path)
    ran = {name: k for k, name in enumerate(order)}

    def last_of(part: str) -> int:
        return max(k for name, k in ran.items() if f"/{part}/" in name and "optimizer/" in name)

    layers = [last_of(name) for name in ("narrow", "wide", "mix", "query", "vectors", "embedding")]
    assert layers == sorted(layers)
    assert layers[-1] - layers[0] > len(order) / 2
    assert next(k for name, k in ran.items() if "CrossEntropyLoss_kernel" in name) < min(
        k for name, k in ran.items() if "AdamW/" in name
    )


# -- going on from a checkpoint


def test_resuming_here_or_there(tmp_path):
    """With Dropout, a seed and a schedule; every way ends with the same bytes."""
    files = generate(
        perceptron(hidden=8, dropout=0.5), tmp_path, optimizer=OPTIMIZERS["averaged groups"], fused_step=True
    )

    def one(checkpoint: Path, batches, seed=None):
        trainer = step_of(files, checkpoint, seed=seed)
        return trainer, trainer.state, lambda batch: float(trainer(*batch))

    def two(checkpoint: Path, batches, seed=None):
        training = begin(files, checkpoint, seed=seed)
        return training.optimizer, training.state, lambda batch: training.step(*batch)

    def run(how, checkpoint, batches, path, seed=None):
        optimizer, state, step = how(checkpoint, batches, seed)
        if seed is not None:
            optimizer.set_learning_rate(0.02)
            optimizer.set_learning_rate_scale("group2", 0.25)
        scheduler = api.WarmUp(api.CosineAnnealingLR(optimizer, 4), 2, 0.5)
        losses = []
        for batch in batches:
            losses.append(step(batch))
            scheduler.step()
        return losses, saved(state, path)

    expected, _ = run(one, files.checkpoint, BATCHES, tmp_path / "all", seed=3)
    ends = set()
    for first in (one, two):
        begun, _ = run(first, files.checkpoint, BATCHES[:3], tmp_path / "half", seed=3)
        for second in (one, two):
            gone_on, end = run(second, tmp_path / "half", BATCHES[3:], tmp_path / "end")
            assert [*begun, *gone_on] == expected
            ends.add(end)
    assert ends == {(tmp_path / "all").read_bytes()}
    assert len(set(expected)) == len(expected)


def test_a_nominal_checkpoint_is_filled_first(tmp_path):
    files = generate(perceptron(hidden=8), tmp_path / "full", fused_step=True)
    nominal = generate(perceptron(hidden=8), tmp_path / "nominal", fused_step=True, nominal_checkpoint=True)
    full, step = step_of(files), step_of(nominal, nominal.nominal_checkpoint)
    step.set_learning_rate(0.01)
    full.set_learning_rate(0.01)
    with refused(CheckpointError, "nominal"):
        step(*BATCHES[0])
    step.copy_buffer_to_parameters(full.get_contiguous_parameters(), trainable_only=False)
    assert [float(step(*batch)) for batch in BATCHES] == [float(full(*batch)) for batch in BATCHES]


def test_gradients_of_a_step_that_was_not_made_are_not_dropped(tmp_path):
    files = generate(perceptron(hidden=8), tmp_path, fused_step=True)
    training = begin(files)
    training.accumulate(*BATCHES[0])
    kept = tmp_path / "kept"
    CheckpointState.save_checkpoint(training.state, kept, include_gradients=True)
    with refused(CheckpointError, "gradients of batches", "module.lazy_reset_grad()"):
        step_of(files, kept)
    training.apply()
    TrainingStep(files.step_model, training.state)(*BATCHES[1])
    assert training.optimizer.completed_steps == 2


# -- what comes out


def test_results_names_and_export(tmp_path):
    files = generate(
        perceptron(hidden=8), tmp_path, fused_step=True, additional_output_names=["scores"], requires_grad=None
    )
    step, two = step_of(files), begin(files)
    x, labels = BATCHES[0]
    assert step.input_names() == ["x", "labels"]
    assert step.output_names()[1:] == ["scores"]
    loss, scores = step(x, labels)
    expected = two.module(x, labels)
    np.testing.assert_array_equal(scores, expected[1])
    assert loss.shape == ()
    given = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in (x, labels)]
    assert all(isinstance(result, onnxruntime.OrtValue) for result in step(*given))
    assert step.completed_steps == 2
    step.eval()
    held = {name: p.data.copy() for name, p in step.state.parameters}
    np.testing.assert_array_equal(step(x, labels)[1], step(x, labels)[1])
    assert all(np.array_equal(p.data, held[name]) for name, p in step.state.parameters)
    assert step.completed_steps == 2
    step.export_model_for_inferencing(tmp_path / "inference.onnx", ["scores"])
    session = onnxruntime.InferenceSession(tmp_path / "inference.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], step(x, labels)[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("take", [np.asarray, onnxruntime.OrtValue.ortvalue_from_numpy])
def test_a_weight_that_is_a_result_is_that_before_the_update(take, tmp_path):
    files = generate(
        perceptron(hidden=8), tmp_path, fused_step=True, additional_output_names=["Perceptron/Linear/weight"]
    )
    two, one = begin(files), step_of(files)
    kept = []
    for x, labels in BATCHES:
        kept.append([training(take(x), take(labels))[1] for training in (two.module, one)])
        two.optimizer.step()
        two.module.lazy_reset_grad()
    for results in kept:
        first, second = (result if isinstance(result, np.ndarray) else result.numpy() for result in results)
        np.testing.assert_array_equal(first, second)
    assert len({result[0].tobytes() if take is np.asarray else result[0].numpy().tobytes() for result in kept}) == 6


CHAIN = """
    <ir_version: 9, opset_import: ["": 18]> chain (float[n, 4] x) => (float[n, 4] y)
    {
        a = MatMul (x, A)
        b = Tanh (a)
        c = MatMul (b, B)
        d = Tanh (c)
        y = MatMul (d, C)
    }
"""


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_a_parameter_may_be_fed_while_it_is_trained(name, wrapped, tmp_path):
    random = np.random.default_rng(0)
    model = parser.parse_model(CHAIN)
    for weight in "ABC":
        array = random.standard_normal((4, 4)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, weight))
    files = generate(model, tmp_path, loss=onnxblock.loss.MSELoss(), fused_step=True)
    after = {}
    for live in (True, False):
        state = CheckpointState.load_checkpoint(files.checkpoint)
        step = TrainingStep(files.step_model, state, session_options=one_thread())
        step.set_learning_rate(0.1)
        for _ in range(2):
            x = state.parameters[name].data if live else state.parameters[name].data.copy()
            target = np.ones((4, 4), np.float32)
            if wrapped:
                x, target = (onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in (x, target))
            step(x, target)
        after[live] = {key: p.data.copy() for key, p in state.parameters}
    for key, array in after[False].items():
        np.testing.assert_array_equal(after[True][key], array, err_msg=key)


def test_the_manifest(tmp_path):
    files = generate(convolutional(), tmp_path, fused_step=True, optimizer=OPTIMIZERS["averaged groups"])
    assert files.step_model == tmp_path / "step_model.onnx"
    assert str(files.step_model) in str(files)
    model = onnx.load(files.step_model)
    manifest, other = manifest_of(model), manifest_of(onnx.load(files.optimizer_model))
    assert (manifest.kind, manifest.runtimes, manifest.memory) == ("step", ("onnxruntime",), other.memory)
    assert manifest.generation == other.generation
    assert [p.name for p in manifest.inputs_of("user")] == ["x", "labels"]
    assert {p.name: p.scale for p in manifest.inputs_of("learning_rate")} == {
        "learning_rate": None,
        "learning_rate.group2": 0.5,
    }
    assert [p.name for p in manifest.inputs_of("moment")] == [p.name for p in other.inputs_of("moment")]
    assert [p.role for p in manifest.outputs][:1] == ["loss"]
    assert {p.role for p in manifest.outputs} == {"loss", "statistic", "parameter", "moment"}
    assert {i.initial.kind for i in manifest.state} == {"zeros", "parameter"}
    assert {o.domain for o in model.opset_import} == {""}
    assert not model.functions
    assert [p.key for p in model.metadata_props] == [names.MANIFEST_KEY]


def test_it_is_written_on_request_only(tmp_path):
    files = generate(perceptron(hidden=8), tmp_path)
    assert files.step_model is None
    assert not (tmp_path / "step_model.onnx").exists()


def test_the_same_call_gives_the_same_bytes_and_leaves_the_others_alone(tmp_path):
    first, second = (generate(perceptron(hidden=8), tmp_path / name, fused_step=True) for name in "ab")
    plain = generate(perceptron(hidden=8), tmp_path / "c")
    assert first.step_model.read_bytes() == second.step_model.read_bytes()
    for name in ("training_model", "optimizer_model"):
        assert onnx.load(getattr(first, name)).graph == onnx.load(getattr(plain, name)).graph


# -- what is refused


def test_what_it_needs(tmp_path):
    model = perceptron(hidden=8)
    with refused(ArgumentError, "fused_step=True needs an optimizer"):
        generate(model, tmp_path, optimizer=None, fused_step=True)
    with refused(ArgumentError, "no form for onnxruntime-training"):
        generate(model, tmp_path, runtime="onnxruntime-training", fused_step=True)
    with refused(BlockBuildError, "'params', 'gradients'", "p_grad"):
        generate(model, tmp_path, optimizer=CustomSGD(), fused_step=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["step", "learning_rate", "Perceptron/Linear/bias.momentum1"])
def test_names_that_the_optimizer_needs(name, tmp_path):
    model = perceptron(hidden=8)
    for node in model.graph.node:
        node.input[:] = [name if x == "x" else x for x in node.input]
    model.graph.input[0].name = name
    with refused(ParameterError, repr(name), "leave fused_step out"):
        generate(model, tmp_path, fused_step=True)


def test_a_gradient_as_the_name_of_an_input(tmp_path):
    model = perceptron(hidden=8)
    for node in model.graph.node:
        node.input[:] = ["Perceptron/Linear/bias_grad" if x == "x" else x for x in node.input]
    model.graph.input[0].name = "Perceptron/Linear/bias_grad"
    step = step_of(generate(model, tmp_path, fused_step=True))
    assert step.input_names() == ["Perceptron/Linear/bias_grad", "labels"]
    assert float(step(*BATCHES[0])) > float([step(*BATCHES[0]) for _ in range(20)][-1])


def test_files_in_the_wrong_place(tmp_path):
    files = generate(perceptron(hidden=8), tmp_path / "a", fused_step=True)
    others = generate(perceptron(hidden=9), tmp_path / "b", fused_step=True)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    with refused(ArtifactMismatchError, "is the training model, where the step model is expected", "TrainingStep"):
        TrainingStep(files.training_model, state)
    with refused(ArtifactMismatchError, "is the step model, where the training model is expected"):
        api.Module(files.step_model, state)
    with refused(ArtifactMismatchError, "different models"):
        TrainingStep(others.step_model, state)
    with refused(ArtifactMismatchError, "different generations"):
        TrainingStep(files.step_model, state, others.eval_model)
    with refused(ArgumentError, "state is PosixPath", "TrainingStep(step model, state, eval model)"):
        TrainingStep(files.step_model, files.checkpoint)
    bare = onnx.load(files.step_model)
    del bare.metadata_props[:]
    onnx.save(bare, tmp_path / "bare.onnx")
    with refused(InvalidModelError, "has no manifest"):
        TrainingStep(tmp_path / "bare.onnx", state)


def test_moments_of_another_optimizer(tmp_path):
    files = generate(perceptron(hidden=8), tmp_path / "a", fused_step=True)
    step = step_of(files)
    step(*BATCHES[0])
    saved(step.state, tmp_path / "saved")
    others = generate(perceptron(hidden=8), tmp_path / "b", optimizer=optim.Adadelta(), fused_step=True)
    with refused(CheckpointError, "is that of another optimizer"):
        step_of(others, tmp_path / "saved")


def test_a_run_that_is_refused_or_fails_is_no_step(tmp_path):
    step = step_of(generate(convolutional(), tmp_path, fused_step=True))
    (x, labels), held = IMAGES[0], {name: p.data.copy() for name, p in step.state.parameters}
    with refused(FeedError, "takes 2 inputs"):
        step(x)
    with refused(FeedError, "the batch is empty"):
        step(x[:0], labels[:0])
    with refused(OnnxBlockError, "label or an index is out of range"):
        step(x, labels + 10)
    with refused(OnnxBlockError, "the TrainingStep has no evaluation model"):
        TrainingStep(tmp_path / "step_model.onnx", step.state).eval()(x, labels)
    assert step.completed_steps == 0
    trained = {port.name for port in step.manifest.inputs_of("parameter")}
    assert all(np.array_equal(step.state.parameters[name].data, held[name]) for name in trained)
    with refused(ArgumentError, "not a finite number"):
        step.set_learning_rate(np.nan)
    step(x, labels)
    assert step.completed_steps == 1
