"""Activations, reductions, products and losses: torch's autograd at random attributes and shapes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")

from torch.nn import functional as F  # noqa: E402

from tests.slow.torch_oracle import Draw, agree, examples  # noqa: E402

# -- one operand

UNARY = {
    "Abs": (torch.abs, -2, 2),
    "Acos": (torch.acos, -0.9, 0.9),
    "Acosh": (torch.acosh, 1.2, 3),
    "Asin": (torch.asin, -0.9, 0.9),
    "Asinh": (torch.asinh, -2, 2),
    "Atan": (torch.atan, -2, 2),
    "Atanh": (torch.atanh, -0.9, 0.9),
    "Cos": (torch.cos, -2, 2),
    "Cosh": (torch.cosh, -2, 2),
    "Erf": (torch.erf, -2, 2),
    "Exp": (torch.exp, -2, 2),
    "HardSwish": (F.hardswish, -4, 4),
    "Log": (torch.log, 0.3, 3),
    "Mish": (F.mish, -3, 3),
    "Neg": (torch.neg, -2, 2),
    "Reciprocal": (torch.reciprocal, 0.4, 2),
    "Relu": (F.relu, -2, 2),
    "Sigmoid": (torch.sigmoid, -4, 4),
    "Sin": (torch.sin, -2, 2),
    "Sinh": (torch.sinh, -2, 2),
    "Softplus": (F.softplus, -4, 4),
    "Softsign": (F.softsign, -4, 4),
    "Sqrt": (torch.sqrt, 0.3, 3),
    "Tan": (torch.tan, -1, 1),
    "Tanh": (torch.tanh, -3, 3),
}


def _shape(d: Draw, least: int = 0, most: int = 3) -> list[int]:
    return d.ints(d.int(least, most), 1, 4)


@examples(300)
def test_unary(data):
    d = Draw(data)
    kind = d.one(*UNARY)
    function, low, high = UNARY[kind]
    agree(d, kind, function, d.uniform(low, high, *_shape(d)))


@examples()
def test_parametrised_activations(data):
    d = Draw(data)
    x = d.uniform(-4, 4, *_shape(d, least=1))
    alpha, gamma = round(d.uniform(0.1, 2).item(), 3), round(d.uniform(0.5, 2).item(), 3)
    cases = {
        "Celu": (lambda x: F.celu(x, alpha), {"alpha": alpha}),
        "Elu": (lambda x: F.elu(x, alpha), {"alpha": alpha}),
        "Gelu": (F.gelu, {"opset": 20}),
        "GeluTanh": (lambda x: F.gelu(x, approximate="tanh"), {"opset": 20, "approximate": "tanh"}),
        "HardSigmoid": (lambda x: (alpha * x + 0.4).clamp(0, 1), {"alpha": alpha, "beta": 0.4}),
        "LeakyRelu": (lambda x: F.leaky_relu(x, alpha), {"alpha": alpha}),
        "Selu": (lambda x: gamma * F.elu(x, alpha), {"alpha": alpha, "gamma": gamma}),
        "Shrink": (lambda x: F.softshrink(x, alpha), {"lambd": alpha, "bias": alpha}),
        "Swish": (lambda x: x * torch.sigmoid(alpha * x), {"alpha": alpha, "opset": 24}),
        "ThresholdedRelu": (lambda x: F.threshold(x, alpha, 0), {"alpha": alpha}),
    }
    kind = d.one(*cases, "PRelu", "Clip")
    if kind == "PRelu":
        slope = d.normal(x.shape[-1])
        agree(d, kind, lambda x, s: torch.where(x > 0, x, s * x), x, slope)
    elif kind == "Clip":
        agree(
            d,
            kind,
            lambda x, low, high: x.clamp(low.item(), high.item()),
            x,
            np.float32(-1.5),
            np.float32(alpha),
            constants=(1, 2),
        )
    else:
        function, attributes = cases[kind]
        agree(d, kind.removesuffix("Tanh"), function, x, **attributes)


# -- two operands


@examples()
def test_broadcasting(data):
    d = Draw(data)
    shape = _shape(d, most=4)
    thinned = [n if d.bool() else 1 for n in shape]
    a, b = d.uniform(0.5, 2, *shape), d.uniform(0.5, 2, *thinned[d.int(0, len(shape)) :])
    if d.bool():
        a, b = b, a
    kinds = {
        "Add": torch.add,
        "Sub": torch.sub,
        "Mul": torch.mul,
        "Div": torch.div,
        "Pow": torch.pow,
        "Max": torch.maximum,
        "Min": torch.minimum,
        "Mean": lambda a, b: (a + b) / 2,
        "Sum": torch.add,
    }
    kind = d.one(*kinds)
    agree(d, kind, kinds[kind], a, b)


@examples()
def test_matmul(data):
    d = Draw(data)
    if d.bool():
        alpha, beta, rows, columns, inner = d.one(1.0, 0.5), d.one(1.0, 2.0), *d.ints(3, 1, 4)
        ta, tb = d.bool(), d.bool()
        c = d.normal(*d.one((), (columns,), (1, columns), (rows, 1), (rows, columns)))
        a, b = (
            d.normal(*((inner, rows) if ta else (rows, inner))),
            d.normal(*((columns, inner) if tb else (inner, columns))),
        )
        agree(
            d,
            "Gemm",
            lambda a, b, c: alpha * (a.T if ta else a) @ (b.T if tb else b) + beta * c,
            a,
            b,
            c,
            alpha=alpha,
            beta=beta,
            transA=int(ta),
            transB=int(tb),
        )
        return
    batch = d.ints(d.int(0, 2), 1, 3)
    left, right = ([n if d.bool() else 1 for n in batch][d.int(0, len(batch)) :] for _ in range(2))
    rows, inner, columns = d.ints(3, 1, 4)
    a = d.normal(inner) if not left and d.bool() else d.normal(*left, rows, inner)
    b = d.normal(inner) if not right and d.bool() else d.normal(*right, inner, columns)
    agree(d, "MatMul", torch.matmul, a, b)


EQUATIONS = (
    "ij,jk->ik",
    "bij,bjk->bik",
    "bhid,bhjd->bhij",
    "i,i->",
    "i,j->ij",
    "ii->i",
    "ii",
    "ijk->kji",
    "ij->",
    "...ij,...jk->...ik",
    "bi,ij,bj->b",
    "ij,ij->i",
    "bij->bj",
    "i,ij,j",
    "iij->ij",
    "ab,cd->abcd",
    "b...,b->...",
    "ab,->ab",
    ",ab,->b",
    ",->",
)


@examples()
def test_einsum(data):
    d = Draw(data)
    equation = d.one(*EQUATIONS)
    sizes = {letter: d.int(1, 3) for letter in "abcdhijk"}
    more = d.ints(d.int(0, 2), 1, 3)
    shapes = []
    for term in equation.partition("->")[0].split(","):
        shape = [sizes[letter] for letter in term.replace("...", "")]
        at = term.find("...")
        shapes.append(shape if at < 0 else [*shape[:at], *more, *shape[at:]])
    agree(
        d, "Einsum", lambda *x: torch.einsum(equation, *x), *(d.normal(*shape) for shape in shapes), equation=equation
    )


# -- reductions

REDUCTIONS = {
    "ReduceL1": lambda x, a, k: x.abs().sum(a, k),
    "ReduceL2": lambda x, a, k: x.pow(2).sum(a, k).sqrt(),
    "ReduceLogSum": lambda x, a, k: x.sum(a, k).log(),
    "ReduceLogSumExp": torch.logsumexp,
    "ReduceMax": torch.amax,
    "ReduceMean": torch.mean,
    "ReduceMin": torch.amin,
    "ReduceSum": torch.sum,
    "ReduceSumSquare": lambda x, a, k: x.pow(2).sum(a, k),
}


@examples(300)
def test_reductions(data):
    d = Draw(data)
    kind = d.one(*REDUCTIONS, "ReduceProd")
    x = d.distinct(*_shape(d, least=1))
    axes, keep = d.axes(x.ndim), d.bool()
    over = [a % x.ndim for a in axes] or list(range(x.ndim))
    if kind == "ReduceLogSum":
        x = np.abs(x)
    if kind == "ReduceProd":
        x = np.where(d.rng.random(x.shape) < 0.2, np.float32(0), x)

        def function(x, *_):
            for axis in sorted(over, reverse=True):
                x = x.prod(axis, keep)
            return x
    else:

        def function(x, *_):
            return REDUCTIONS[kind](x, over, keep)

    inputs = (x, np.array(axes)) if axes else (x,)
    agree(d, kind, function, *inputs, keepdims=int(keep))


@examples()
def test_scans(data):
    d = Draw(data)
    x = d.normal(*_shape(d, least=1))
    axis, exclusive, reverse = d.int(-x.ndim, x.ndim - 1), d.bool(), d.bool()
    kind = d.one("CumSum", "CumProd")
    scan = {"CumSum": torch.cumsum, "CumProd": torch.cumprod}[kind]

    def function(x, _):
        x = x.flip(axis) if reverse else x
        if exclusive:
            first = torch.zeros_like if kind == "CumSum" else torch.ones_like
            x = torch.cat([first(x.narrow(axis, 0, 1)), x.narrow(axis, 0, x.shape[axis] - 1)], axis)
        y = scan(x, axis)
        return y.flip(axis) if reverse else y

    agree(
        d,
        kind,
        function,
        x,
        np.array(axis),
        exclusive=int(exclusive),
        reverse=int(reverse),
        opset=26 if kind == "CumProd" else 21,
    )


# -- softmax and losses


@examples()
def test_softmax(data):
    d = Draw(data)
    x = d.uniform(-3, 3, *_shape(d, least=1, most=4))
    axis = d.int(-x.ndim, x.ndim - 1)
    kind = d.one("Softmax", "LogSoftmax")
    function = {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}[kind]
    agree(d, kind, lambda x: function(x, axis), x, axis=axis)


@examples()
def test_cross_entropy(data):
    d = Draw(data)
    n, c, spatial = d.int(1, 4), d.int(2, 4), d.ints(d.int(0, 2), 1, 3)
    x, target = d.normal(n, c, *spatial), d.indices(0, c, n, *spatial)
    weight = d.uniform(0.5, 2, c) if d.bool() else None
    reduction = d.one("none", "mean", "sum")
    attributes = {"reduction": reduction}
    ignored = d.one(None, 0, -100)
    if ignored is not None:
        attributes["ignore_index"] = ignored
        target = np.where(d.rng.random(target.shape) < 0.3, ignored, target)
        target.flat[0] = 1
    kind = d.one("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
    loss = F.cross_entropy if kind.startswith("Soft") else F.nll_loss
    ignore_index = -1 if ignored is None else ignored

    def function(x, t, w=None):
        return loss(x, t, w, ignore_index=ignore_index, reduction=reduction)

    inputs = (x, target) if weight is None else (x, target, weight)
    agree(d, kind, function, *inputs, constants=(2,), **attributes)
