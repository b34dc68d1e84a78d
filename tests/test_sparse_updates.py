"""A fused step changes the rows of an embedding that were used, where a gradient of zero changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import artifacts
from artifacts.api import CheckpointState
from onnxblock import fused_gradients, names, optim
from onnxblock.graph import added_rows
from onnxblock.graph.context import empty_base
from onnxblock.graph.inference import infer_model
from onnxblock.graph.types import tensor_type
from onnxblock.optim import slices as slicing
from tests.test_fused_step import SCALARS, saved, step_of
from tests.test_in_place import assert_same_bits, feeds_of, manifest_of, pairs_of
from tests.training import begin, generate

ROWS, WIDTH = 60, 4
BATCHES = [
    (np.array(tokens), np.array(labels))
    for tokens, labels in (
        ([3, -1, 3], [1, 0, 2]),
        ([7, 7, 7], [3, 3, 3]),
        ([1, 2, 59], [0, 1, 2]),
        ([-60, 0, 5], [2, 2, 0]),
        ([4], [1]),
    )
]
USED = {token % ROWS for tokens, _ in BATCHES for token in tokens.tolist()}
USED_TWICE = USED | {int(token / 2) % ROWS for tokens, _ in BATCHES for token in tokens.tolist()}


def looked_up(body: str, dtype: str = "float", count: str = "n", opset: int = 18) -> onnx.ModelProto:
    """A table [60, 4] and a matrix; ``body`` makes the scores [n, 4] of them and of the tokens [n]."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        looked_up (int64[{count}] tokens) => ({dtype}[{count}, {WIDTH}] scores) {{ {body} }}"""
    )
    random = np.random.default_rng(0)
    kind = {"float": np.float32, "double": np.float64, "float16": np.float16}[dtype]
    for name, rows in (("table", ROWS), ("matrix", WIDTH)):
        array = random.normal(size=(rows, WIDTH)).astype(kind)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


ONCE = looked_up("h = Gather (table, tokens) t = Tanh (h) scores = MatMul (t, matrix)")
TWICE = looked_up("""
    two = Constant <value_int = 2> ()
    h = Gather (table, tokens) u = Div (tokens, two) k = Gather (table, u)
    s = Mul (h, k) scores = MatMul (s, matrix)""")
LINEAR = looked_up("h = Gather (table, tokens) scores = MatMul (h, matrix)")
PICKED = looked_up("""
    last = Constant <value_ints = [-1]> () places = Unsqueeze (tokens, last)
    h = GatherND (table, places) scores = MatMul (h, matrix)""")
DOUBLE = looked_up("h = Gather (table, tokens) t = Tanh (h) scores = MatMul (t, matrix)", "double")
NETWORKS = {"once": ONCE, "twice": TWICE, "linear": LINEAR, "picked": PICKED, "double": DOUBLE}
SPARSE = {
    "SGD": optim.SGD(),
    "Adagrad": optim.Adagrad(),
    "Adagrad with decay of the rate": optim.Adagrad(lr_decay=0.1, initial_accumulator_value=0.1),
    "clipped values": optim.SGD(clip_grad=optim.ClipGradValue(0.01)),
    "group": optim.ParameterGroups(optim.AdamW(), optim.Group("table", optimizer=optim.SGD(), learning_rate_scale=3.0)),
}


class Drifting(optim.SGD):
    """SGD that moves every element by a little more."""

    def rule(self, step):
        inner = super().rule(step)

        def update(p, g):
            return inner(p, g + 0.5)

        return update


WHOLE = {
    "momentum": optim.SGD(momentum=0.9),
    "decay": optim.SGD(weight_decay=0.1),
    "Adagrad that decays": optim.Adagrad(weight_decay=0.1),
    "Adagrad without eps": optim.Adagrad(eps=0.0, initial_accumulator_value=0.1),
    "AdamW": optim.AdamW(),
    "averaged": optim.ExponentialMovingAverage(optim.SGD()),
    "a rule of its own": Drifting(),
}


@pytest.fixture(autouse=True)
def small_tables_count(monkeypatch):
    monkeypatch.setattr(added_rows, "LARGE", 100)


def fused(model: onnx.ModelProto, folder: Path, optimizer: optim.Optimizer) -> artifacts.Artifacts:
    return generate(model, folder, optimizer=optimizer, fused_step=True)


def is_sparse(files: artifacts.Artifacts) -> bool:
    """Whether the new table is what rows were put into, and nothing else in the step is as large."""
    model = onnx.load(files.step_model)
    types = infer_model(model)
    size = next(p.shape for p in files.trainable if p.name == "table")
    makers = {
        node.op_type
        for node in model.graph.node
        for name in node.output
        if (known := tensor_type(types.get(name))) is not None and known.shape == size
    }
    return makers == {"ScatterND"}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", SPARSE)
def test_the_used_rows_get_the_bits_of_two_runs(network, name, tmp_path):
    files = fused(NETWORKS[network], tmp_path, SPARSE[name])
    assert is_sparse(files)
    two, one = begin(files), step_of(files)
    before = two.data()["table"]
    for training in (two.optimizer, one):
        training.set_learning_rate(0.1)
    for batch in BATCHES:
        assert float(one(*batch)) == two.step(*batch)
    assert saved(one.state, tmp_path / "one") == saved(two.state, tmp_path / "two")
    after = one.state.parameters["table"].data
    moved = set(np.flatnonzero((after != before).any(axis=1)).tolist())
    assert moved == (USED_TWICE if network == "twice" else USED)


@pytest.mark.parametrize("name", WHOLE)
def test_what_moves_without_a_gradient_is_updated_as_a_whole(name, tmp_path):
    files = fused(ONCE, tmp_path, WHOLE[name])
    assert not is_sparse(files)
    two, one = begin(files), step_of(files)
    for batch in BATCHES:
        assert float(one(*batch)) == two.step(*batch)
    assert saved(one.state, tmp_path / "one") == saved(two.state, tmp_path / "two")


def test_the_norm_of_the_gradients_is_that_of_the_used_rows(tmp_path):
    files = fused(ONCE, tmp_path, optim.SGD(clip_grad=optim.ClipGradNorm(0.01)))
    assert is_sparse(files)
    two, one = begin(files), step_of(files)
    for batch in BATCHES:
        assert float(one(*batch)) == pytest.approx(two.step(*batch), rel=1e-6)
    for name, array in two.data().items():
        np.testing.assert_allclose(one.state.parameters[name].data, array, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("count", "sparse"), [("3", True), (str(ROWS // 2), True), (str(ROWS // 2 + 1), False), ("n", True)]
)
def test_where_most_rows_may_be_used_all_are_updated(count, sparse, tmp_path):
    files = fused(looked_up("h = Gather (table, tokens) scores = Tanh (h)", count=count), tmp_path, optim.SGD())
    assert is_sparse(files) == sparse


def test_small_tables_are_updated_as_a_whole(monkeypatch, tmp_path):
    monkeypatch.setattr(added_rows, "LARGE", ROWS * WIDTH + 1)
    assert not is_sparse(fused(ONCE, tmp_path, optim.SGD()))


KNOWN_ROWS = {
    "one": "z = Constant <value_ints = [-2]> () k = Gather (table, z)",
    "several": "z = Constant <value_ints = [3, -1, 4]> () m = Gather (table, z) k = ReduceMean <keepdims = 1> (m)",
    "range": """from = Constant <value_ints = [57]> () to = Constant <value_ints = [60]> () m = Slice (table, from, to)
        k = ReduceMean <keepdims = 1> (m)""",
    "columns": """from = Constant <value_ints = [57, 1]> () to = Constant <value_ints = [60, 2]> ()
        m = Slice (table, from, to) k = ReduceMean <keepdims = 1> (m)""",
}


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("name", KNOWN_ROWS)
def test_rows_that_are_known_while_building(name, others, tmp_path):
    """As those of positions or of a first token; of the columns only some elements are looked up, not whole rows."""
    if others:
        body = f"{KNOWN_ROWS[name]} h = Gather (table, tokens) s = Mul (h, k) scores = MatMul (s, matrix)"
    else:
        body = f"{KNOWN_ROWS[name]} h = Gather (matrix, classes) s = Mul (h, k) scores = MatMul (s, matrix)"
        body = f"four = Constant <value_int = 4> () classes = Mod (tokens, four) {body}"
    files = fused(looked_up(body), tmp_path, optim.SGD())
    assert is_sparse(files) == (name != "columns")
    two, one = begin(files), step_of(files)
    before = two.data()["table"]
    for batch in BATCHES:
        assert float(one(*batch)) == two.step(*batch)
    assert saved(one.state, tmp_path / "one") == saved(two.state, tmp_path / "two")
    moved = set(np.flatnonzero((one.state.parameters["table"].data != before).any(axis=1)).tolist())
    known = {"one": {58}, "several": {3, 59, 4}}.get(name, {57, 58, 59})
    assert moved == (USED if others else set()) | known


@pytest.mark.parametrize(
    "body",
    [
        """h = Gather (table, tokens) t = Tanh (h) p = Transpose <perm = [1, 0]> (table) a = MatMul (t, p)
        b = MatMul (a, table) scores = MatMul (b, matrix)""",
        """turned = Transpose <perm = [1, 0]> (table) k = Gather <axis = 1> (turned, tokens)
        h = Transpose <perm = [1, 0]> (k) scores = MatMul (h, matrix)""",
        "h = Gather (table, tokens) s = ReduceMean <keepdims = 1> (table) r = Add (h, s) scores = MatMul (r, matrix)",
    ],
    ids=["tied", "columns", "read as a whole too"],
)
def test_gradients_of_other_kinds(body, tmp_path):
    files = fused(looked_up(body), tmp_path, optim.SGD())
    two, one = begin(files), step_of(files)
    for batch in BATCHES:
        assert float(one(*batch)) == two.step(*batch)
    assert saved(one.state, tmp_path / "one") == saved(two.state, tmp_path / "two")


@pytest.mark.parametrize("network", NETWORKS)
def test_in_place_or_not_in_whatever_order_the_nodes_run(network, tmp_path):
    """The linear network reads the table in a node that its gradient does not need."""
    files = fused(NETWORKS[network], tmp_path, optim.Adagrad())
    model = onnx.load(files.step_model)
    manifest = manifest_of(model)
    tokens, labels = BATCHES[0]
    pairs = pairs_of(manifest)
    assert {"table", "table.momentum0"} <= pairs.keys()
    assert_same_bits(model, feeds_of(manifest, tokens=tokens, labels=labels, **SCALARS), pairs)


def test_an_empty_batch_changes_nothing(tmp_path):
    files = fused(ONCE, tmp_path, optim.SGD())
    one = step_of(files)
    before = one.state.parameters["table"].data.copy()
    one(np.zeros(0, np.int64), np.zeros(0, np.int64))
    np.testing.assert_array_equal(one.state.parameters["table"].data, before)


def test_half_precision(tmp_path):
    body = "h = Gather (table, tokens) t = Tanh (h) scores = MatMul (t, matrix)"
    files = fused(looked_up(body, "float16"), tmp_path, optim.SGD())
    two, one = begin(files), step_of(files)
    for batch in BATCHES:
        assert float(one(*batch)) == two.step(*batch)
    assert saved(one.state, tmp_path / "one") == saved(two.state, tmp_path / "two")


def test_a_checkpoint_goes_on_in_two_runs(tmp_path):
    files = fused(ONCE, tmp_path, optim.Adagrad())
    one = step_of(files)
    one(*BATCHES[0])
    CheckpointState.save_checkpoint(one.state, tmp_path / "saved", include_optimizer_state=True)
    two, again = begin(files, tmp_path / "saved"), step_of(files, tmp_path / "saved")
    assert float(again(*BATCHES[1])) == two.step(*BATCHES[1])
    assert saved(again.state, tmp_path / "one") == saved(two.state, tmp_path / "two")


class OwnRule:
    """A rule to be mixed into an optimizer; what the optimizer says of its own rule does not hold of it."""

    def rule(self, step):
        rate = step.scalar(step.learning_rate)
        return lambda p, g: [p - g / (g.graph.op.ReduceL2(g, keepdims=0) + 1e-12) * rate]


class MixedIn(OwnRule, optim.SGD):
    pass


class Further(MixedIn):
    pass


class SaidBesideTheRule(optim.SGD):
    elementwise = sparse = True

    def rule(self, step):
        return super().rule(step)


class Inherited(optim.SGD):
    pass


class Refused(optim.SGD):
    sparse = False


class OwnRuleOfAverages(optim.ExponentialMovingAverage):
    def rule(self, step):
        return super().rule(step)


@pytest.mark.parametrize(
    ("optimizer", "elementwise", "sparse"),
    [
        (MixedIn(), False, False),
        (Further(), False, False),
        (SaidBesideTheRule(), True, True),
        (SaidBesideTheRule(momentum=0.9), True, False),
        (Drifting(), False, False),
        (Inherited(), True, True),
        (Refused(), True, False),
        (optim.ExponentialMovingAverage(optim.SGD()), True, False),
        (optim.ExponentialMovingAverage(MixedIn()), False, False),
        (OwnRuleOfAverages(optim.SGD()), False, False),
        (optim.AdamW(), True, False),
        (optim.LAMB(), False, False),
        (optim.Adagrad(eps=1e-46), True, False),  # nothing, as a float32
    ],
)
def test_what_an_optimizer_says_of_its_rule_is_said_of_that_rule(optimizer, elementwise, sparse):
    assert (optimizer.elementwise, optimizer.sparse) == (elementwise, sparse)


def test_the_form_of_the_optimizer_model():
    """An optimizer outside of generate_artifacts is asked for rows in the same way."""
    parameters = [("table", 1, (ROWS, WIDTH)), ("matrix", 1, (WIDTH, WIDTH))]
    with empty_base(18) as graph, optim.sparse_form(lambda name: name == "table"):
        optim.SGD()(parameters)
        model = graph.to_model_proto()
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    assert shapes["table_grad"] == [0, WIDTH]
    assert shapes[names.gradient_rows("table")] == [0]
    assert shapes["matrix_grad"] == [WIDTH, WIDTH]
    assert names.gradient_rows("matrix") not in shapes
    assert names.owners_in_optimizer(names.gradient_rows("table")) >= {"table"}


GATHERED = """<ir_version: 8, opset_import: ["" : 18]>
    gathered ({index}[{rows}, 1] tokens) => (float[4, {width}] scores) {{
        size = Constant <value_ints = [4, {width}]> () places = Expand (tokens, size)
        scores = GatherElements (table, places)
    }}"""


@pytest.mark.parametrize("optimizer", [optim.SGD(), optim.Adagrad(), optim.AdamW()], ids=["SGD", "Adagrad", "AdamW"])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("width", [WIDTH, WIDTH - 2])
@pytest.mark.parametrize("index", ["int64", "int32"])
def test_elements_at_places_that_are_expanded(optimizer, rows, width, index, monkeypatch, tmp_path):
    """One number for several rows, rows that are not as wide as the table, numbers of another type."""
    monkeypatch.setattr(fused_gradients, "_LARGE", 100)
    monkeypatch.setattr(slicing, "_LONGEST", 64)
    model = onnx.parser.parse_model(GATHERED.format(index=index, rows=rows, width=width))
    table = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    files = fused(model, tmp_path, optimizer)
    two, one = begin(files), step_of(files)
    tokens, labels = np.array([[5], [7], [5], [-1]], index)[:rows], np.array([0, 1, 1, 0])
    for _ in range(3):
        assert float(one(tokens, labels)) == two.step(tokens, labels)
    assert saved(one.state, tmp_path / "one") == saved(two.state, tmp_path / "two")


@pytest.mark.parametrize("form", ["two runs", "fused"])
def test_two_lookups_that_are_one(form, tmp_path):
    """Their equal gradients become one node, which is then added to itself; nodes keep names of their own."""
    body = "same = Identity (table) h = Gather (table, tokens) k = Gather (same, tokens) scores = Add (h, k)"
    files = fused(looked_up(body), tmp_path, optim.SGD())
    tokens, labels = BATCHES[0]
    training = begin(files) if form == "two runs" else step_of(files)
    training_step = training.step if form == "two runs" else training
    (training.optimizer if form == "two runs" else training).set_learning_rate(1.0)
    table = training.state.parameters["table"].data.copy()
    training_step(tokens, labels)
    scores = 2 * table[tokens].astype(np.float64)
    share = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    share[np.arange(len(labels)), labels] -= 1
    expected = table.astype(np.float64)
    np.subtract.at(expected, tokens, 2 * share / len(labels))
    np.testing.assert_allclose(training.state.parameters["table"].data, expected, rtol=1e-5, atol=1e-6)
