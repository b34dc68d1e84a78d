"""Small artifacts written by hand, as the contract asks: a two-layer network with the mean squared error.

They are independent of the generator, so that the runtime is tested by itself.  ``W1``, ``b1`` and ``W2`` are trained,
``b2`` is frozen, ``mean`` is a running statistic: 0.9 of its old value and 0.1 of the mean of the hidden layer.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from artifacts.manifest import Initial, Input, Manifest, Output, StatePair
from onnxblock import names
from onnxblock.accumulation import accumulate, accumulator_function
from onnxblock.checkpoint import Checkpoint, Tensor, write_checkpoint

OPSET = 18
FLOAT = TensorProto.FLOAT
TRAINED = ("W1", "b1", "W2")
RUNTIMES = ("onnxruntime",)


def pattern(shape, k):
    return ((np.arange(int(np.prod(shape))) + k) % 7 - 3).reshape(shape).astype(np.float32)


X, TARGET = pattern((5, 3), 3), pattern((5, 2), 1)


def parameters():
    return {
        "W1": pattern((4, 3), 1) / 4,
        "b1": pattern((4,), 2) / 4,
        "W2": pattern((2, 4), 5) / 4,
        "b2": pattern((2,), 3) / 4,
    }


SHAPES = {name: array.shape for name, array in parameters().items()} | {"mean": (4,)}


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, output if isinstance(output, list) else [output], **attributes)


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def info(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, constants, manifest, functions=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", OPSET)]
    if functions:
        opsets.append(helper.make_opsetid(names.ACCUMULATOR_DOMAIN, 1))
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))
    if manifest is not None:
        helper.set_model_props(made, manifest.metadata())
    return made


def forward(statistic, dropout):
    nodes = [node("Gemm", ["x", "W1", "b1"], "h", transB=1), node("Relu", ["h"], "r")]
    hidden = "r"
    if dropout:
        nodes.append(node("Dropout", ["r", "half", "yes"], ["d", "mask"]))
        hidden = "d"
    nodes += [
        node("Gemm", [hidden, "W2", "b2"], "y", transB=1),
        node("Sub", ["y", "target"], "e"),
        node("Mul", ["e", "e"], "e2"),
        node("ReduceMean", ["e2"], "loss", keepdims=0),
    ]
    if statistic:
        nodes += [node("ReduceMean", ["r", "axis0"], "batch_mean", keepdims=0)]
    return nodes, hidden


CONSTANTS = [
    constant("axis0", np.array([0], np.int64)),
    constant("half", np.float32(0.5)),
    constant("yes", np.array(True)),
    constant("zero", np.float32(0)),
    constant("two", np.float32(2)),
    constant("keep", np.float32(0.9)),
    constant("take", np.float32(0.1)),
    constant("always", np.array([True])),
]


def training(*, manifest=True, in_place=True, statistic=False, dropout=False, **changes):
    nodes, hidden = forward(statistic, dropout)
    nodes += [
        node("Size", ["e"], "n"),
        node("CastLike", ["n", "e"], "nf"),
        node("Div", ["two", "nf"], "scale"),
        node("Mul", ["e", "scale"], "dy"),
        node("Gemm", ["dy", hidden], "dW2", transA=1),
        node("MatMul", ["dy", "W2"], "dr0"),
        *(
            [
                node("CastLike", ["mask", "e"], "maskf"),
                node("Mul", ["dr0", "maskf"], "dr1"),
                node("Mul", ["dr1", "two"], "dr"),
            ]
            if dropout
            else [node("Identity", ["dr0"], "dr")]
        ),
        node("Greater", ["r", "zero"], "positive"),
        node("CastLike", ["positive", "e"], "positivef"),
        node("Mul", ["dr", "positivef"], "dh"),
        node("Gemm", ["dh", "x"], "dW1", transA=1),
        node("ReduceSum", ["dh", "axis0"], "db1", keepdims=0),
    ]
    inputs = [Input("x", "user", "float32", ("N", 3)), Input("target", "user", "float32", ("N", 2))]
    inputs += [
        Input(n, "parameter" if n in TRAINED else "frozen", "float32", SHAPES[n]) for n in ("W1", "b1", "W2", "b2")
    ]
    outputs, pairs = [Output("loss", "loss", "float32", ())], []
    for name in TRAINED:
        buffer, flag, out = names.gradient_buffer(name), names.gradient_flag(name), names.accumulated_gradient(name)
        nodes.append(accumulate(buffer, f"d{name}", names.LAZY_RESET_GRAD, flag, out))
        inputs.append(Input(buffer, "gradient_buffer", "float32", SHAPES[name], name))
        outputs.append(Output(flag, "gradient_flag", "bool", (1,), name))
        outputs.append(Output(out, "accumulated_gradient", "float32", SHAPES[name], name))
        pairs.append(StatePair(buffer, out, in_place, Initial("zeros")))
    if statistic:
        nodes += [
            node("Mul", ["mean", "keep"], "kept"),
            node("Mul", ["batch_mean", "take"], "taken"),
            node("Add", ["kept", "taken"], "new_mean"),
        ]
        nodes.append(accumulate("mean", "new_mean", "always", "mean_flag_grad.accumulation.out", "mean_grad"))
        inputs.append(Input("mean", "statistic", "float32", (4,)))
        outputs.append(Output("mean_grad", "statistic", "float32", (4,), "mean"))
        pairs.append(StatePair("mean", "mean_grad", in_place, Initial("parameter", parameter="mean")))
    inputs.append(Input(names.LAZY_RESET_GRAD, "reset", "bool", (1,)))
    made = Manifest("training", "model-a", "generation-a", RUNTIMES, tuple(inputs), tuple(outputs), tuple(pairs))
    made = dataclasses.replace(made, **changes)
    return model(nodes, *ports(made), CONSTANTS, made if manifest else None, [accumulator_function(OPSET)])


def ports(manifest):
    def infos(group):
        kinds = {"float32": FLOAT, "bool": TensorProto.BOOL, "int64": TensorProto.INT64}
        return [info(p.name, p.shape, kinds[p.dtype]) for p in group]

    return infos(manifest.inputs), infos(manifest.outputs)


def evaluation(*, manifest=True, statistic=False, **changes):
    nodes, _ = forward(False, False)
    inputs = [Input("x", "user", "float32", ("N", 3)), Input("target", "user", "float32", ("N", 2))]
    inputs += [
        Input(n, "parameter" if n in TRAINED else "frozen", "float32", SHAPES[n]) for n in ("W1", "b1", "W2", "b2")
    ]
    outputs = [Output("loss", "loss", "float32", ())]
    if statistic:
        nodes.append(node("Sub", ["r", "mean"], "centred"))
        inputs.append(Input("mean", "statistic", "float32", (4,)))
        outputs.append(Output("centred", "user", "float32", ("N", 4)))
    made = Manifest("eval", "model-a", "generation-a", RUNTIMES, tuple(inputs), tuple(outputs))
    made = dataclasses.replace(made, **changes)
    return model(nodes, *ports(made), CONSTANTS, made if manifest else None)


def sgd_nodes(p, g, out):
    return [node("Mul", [g, names.LEARNING_RATE], f"{p}/step"), node("Sub", [p, f"{p}/step"], out)]


def adamw_nodes(p, g, m, v, out, m_out, v_out):
    """The original's AdamW: eps 1e-6 added to the uncorrected root, no decay."""
    return [
        node("Mul", [m, "beta1"], f"{p}/m1"),
        node("Mul", [g, "rest1"], f"{p}/m2"),
        node("Add", [f"{p}/m1", f"{p}/m2"], m_out),
        node("Mul", [v, "beta2"], f"{p}/v1"),
        node("Mul", [g, g], f"{p}/g2"),
        node("Mul", [f"{p}/g2", "rest2"], f"{p}/v2"),
        node("Add", [f"{p}/v1", f"{p}/v2"], v_out),
        node("Sqrt", [v_out], f"{p}/root"),
        node("Add", [f"{p}/root", "eps"], f"{p}/bottom"),
        node("Div", [m_out, f"{p}/bottom"], f"{p}/direction"),
        node("Mul", [f"{p}/direction", "corrected"], f"{p}/step"),
        node("Sub", [p, f"{p}/step"], out),
    ]


ADAMW_CONSTANTS = [
    constant("beta1", np.float32(0.9)),
    constant("rest1", np.float32(1) - np.float32(0.9)),
    constant("beta2", np.float32(0.999)),
    constant("rest2", np.float32(1) - np.float32(0.999)),
    constant("eps", np.float32(1e-6)),
    constant("one", np.float32(1)),
]
CORRECTION = [
    node("CastLike", [names.STEP, "one"], "t"),
    node("Pow", ["beta1", "t"], "power1"),
    node("Pow", ["beta2", "t"], "power2"),
    node("Sub", ["one", "power1"], "bias1"),
    node("Sub", ["one", "power2"], "bias2"),
    node("Sqrt", ["bias2"], "root2"),
    node("Div", ["root2", "bias1"], "correction"),
    node("Mul", [names.LEARNING_RATE, "correction"], "corrected"),
]


def optimizer(kind="AdamW", *, manifest=True, in_place=True, trained=TRAINED, **changes):
    moments = 2 if kind == "AdamW" else 0
    nodes = list(CORRECTION) if moments else []
    inputs = [Input(names.LEARNING_RATE, "learning_rate", "float32", (1,)), Input(names.STEP, "step", "int64", (1,))]
    outputs, pairs = [], []
    for p in trained:
        states = [names.moment(p, k) for k in range(moments)]
        inputs.append(Input(p, "parameter", "float32", SHAPES[p]))
        inputs.append(Input(p + "_grad", "gradient", "float32", SHAPES[p], p))
        inputs += [Input(s, "moment", "float32", SHAPES[p], p) for s in states]
        outputs.append(Output(names.updated(p), "parameter", "float32", SHAPES[p], p))
        outputs += [Output(names.updated(s), "moment", "float32", SHAPES[p], p) for s in states]
        pairs.append(StatePair(p, names.updated(p), in_place, Initial("parameter", parameter=p)))
        pairs += [StatePair(s, names.updated(s), in_place, Initial("zeros")) for s in states]
        ins, outs = [p, p + "_grad", *states], [names.updated(s) for s in (p, *states)]
        nodes += adamw_nodes(*ins, *outs) if moments else sgd_nodes(*ins, *outs)
    made = Manifest("optimizer", "model-a", "generation-a", RUNTIMES, tuple(inputs), tuple(outputs), tuple(pairs))
    made = dataclasses.replace(made, **changes)
    return model(nodes, *ports(made), ADAMW_CONSTANTS, made if manifest else None)


def sequence_sgd(*, manifest=True):
    """SGD on sequences, as both runtimes read it: a node of the original's name with a body in standard operators."""
    sequences = [names.PARAMETERS_SEQUENCE, names.GRADIENTS_SEQUENCE, names.FIRST_MOMENTS_SEQUENCE]
    of_floats = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    body = helper.make_graph(
        [
            node("SequenceAt", ["params", "i"], "p"),
            node("SequenceAt", ["gradients", "i"], "g"),
            node("Mul", ["g", "lr"], "u"),
            node("Sub", ["p", "u"], "q"),
            node("SequenceInsert", ["done", "q"], "more"),
            node("Identity", ["go"], "again"),
        ],
        "body",
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), helper.make_value_info("done", of_floats)],
        [info("again", [], TensorProto.BOOL), helper.make_value_info("more", of_floats)],
    )
    function = helper.make_function(
        "com.microsoft",
        "SGDOptimizerV2",
        ["lr", "params", "gradients"],
        ["flag", "updated"],
        [
            node("SequenceLength", ["params"], "count"),
            helper.make_node("Constant", [], ["true"], value=constant("t", np.array(True))),
            helper.make_node("Constant", [], ["flag"], value=constant("f", np.array([True]))),
            node("SequenceEmpty", [], "empty"),
            node("Loop", ["count", "true", "empty"], ["updated"], body=body),
        ],
        [helper.make_opsetid("", OPSET)],
    )
    nodes = [
        helper.make_node(
            "SGDOptimizerV2", ["learning_rate", "params", "gradients"], ["done", "params_out"], domain="com.microsoft"
        ),
        node("Identity", [names.FIRST_MOMENTS_SEQUENCE], "moments_out"),
    ]
    inputs = [info(names.LEARNING_RATE, [1]), info(names.STEP, [1], TensorProto.INT64)]
    inputs += [helper.make_value_info(name, of_floats) for name in sequences]
    outputs = [info("done", [1], TensorProto.BOOL)]
    outputs += [helper.make_value_info(name, of_floats) for name in ("params_out", "moments_out")]
    described = Manifest(
        "optimizer",
        "model-a",
        "generation-a",
        RUNTIMES,
        (
            Input(names.LEARNING_RATE, "learning_rate", "float32", (1,)),
            Input(names.STEP, "step", "int64", (1,)),
            Input(names.PARAMETERS_SEQUENCE, "parameters", "float32"),
            Input(names.GRADIENTS_SEQUENCE, "gradients", "float32"),
            Input(names.FIRST_MOMENTS_SEQUENCE, "moments", "float32"),
        ),
        (
            Output("done", "updated", "bool", (1,)),
            Output("params_out", "parameters", "float32"),
            Output("moments_out", "moments", "float32"),
        ),
        (
            StatePair(names.PARAMETERS_SEQUENCE, "params_out", False, Initial("zeros")),
            StatePair(names.FIRST_MOMENTS_SEQUENCE, "moments_out", False, Initial("zeros")),
        ),
    )
    return model(nodes, inputs, outputs, [], described if manifest else None, [function])


def checkpoint(path, *, statistic=False, nominal=False, fingerprint=None, external=False):
    tensors = {name: Tensor.from_array(name, array) for name, array in parameters().items()}
    frozen = [tensors["b2"]]
    if statistic:
        frozen.append(Tensor.from_array("mean", np.zeros(4, np.float32)))
    properties = None if fingerprint is None else {names.STATE_PROPERTY: f'{{"version":1,"model":"{fingerprint}"}}'}
    trained = [tensors[name] for name in TRAINED]
    write_checkpoint(
        path, Checkpoint(trained, frozen, nominal=nominal, properties=properties, external=external), inline_below=0
    )


class Files:
    """The four files in a folder."""

    def __init__(self, folder: Path, kind="AdamW", *, manifest=True, in_place=True, statistic=False, dropout=False):
        self.training, self.evaluation = folder / "training_model.onnx", folder / "eval_model.onnx"
        self.optimizer, self.checkpoint = folder / "optimizer_model.onnx", folder / "checkpoint"
        onnx.save(training(manifest=manifest, in_place=in_place, statistic=statistic, dropout=dropout), self.training)
        onnx.save(evaluation(manifest=manifest, statistic=statistic), self.evaluation)
        made = (
            sequence_sgd(manifest=manifest)
            if kind == "sequence"
            else optimizer(kind, manifest=manifest, in_place=in_place)
        )
        onnx.save(made, self.optimizer)
        checkpoint(self.checkpoint, statistic=statistic)

    def open(self, checkpoint=None, **options):
        from artifacts.api import CheckpointState, Module, Optimizer

        state = CheckpointState.load_checkpoint(checkpoint or self.checkpoint)
        module = Module(self.training, state, self.evaluation, **options)
        return state, module, Optimizer(self.optimizer, module)


def train(module, optimizer, steps, x=X, target=TARGET):
    losses = []
    for _ in range(steps):
        losses.append(float(module(x, target)))
        optimizer.step()
        module.lazy_reset_grad()
    return losses
