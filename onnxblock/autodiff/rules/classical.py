"""Operators of ai.onnx.ml, which converters of scikit-learn write, and of ONNX's own training: rules and refusals."""

from __future__ import annotations

import numpy as np

from ...errors import UnsupportedOperatorError
from ...graph.arithmetic import cast_like, mask, zeros_like
from ...graph.scatter import scatter_along
from ...graph.value import Value
from ..registry import RuleResult, gradient, no_gradient, refuse
from ..rule import RuleContext

ML = "ai.onnx.ml"
"""The domain of the operators of classical machine learning."""

TRAINING = "ai.onnx.preview.training"
"""The domain of ONNX's own operators for training."""

no_gradient("Binarizer", domain=ML, reason="constant between its jumps")
no_gradient(
    "TreeEnsemble",
    "TreeEnsembleClassifier",
    "TreeEnsembleRegressor",
    domain=ML,
    reason="a tree gives the same result until a threshold is passed",
)
no_gradient(
    "CastMap",
    "CategoryMapper",
    "DictVectorizer",
    "LabelEncoder",
    "OneHotEncoder",
    "ZipMap",
    domain=ML,
    reason="it looks up labels, which cannot be told apart by small changes",
)
refuse(
    "LinearClassifier",
    "SVMClassifier",
    "SVMRegressor",
    domain=ML,
    reason="its weights are attributes, which cannot be trained; write it with MatMul and its kin",
)
refuse(
    "Adagrad",
    "Adam",
    "Gradient",
    "Momentum",
    domain=TRAINING,
    reason="it is a step of training, not a part of a model",
)


@gradient("Scaler", domain=ML)
def scaler(g: RuleContext) -> RuleResult:
    """For y = (x - offset) scale: dx = dy scale."""
    return g.dy * g.graph.constant(np.array(g.attr("scale", [1.0])), g.dy.dtype)


@gradient("LinearRegressor", domain=ML)
def linear_regressor(g: RuleContext) -> RuleResult:
    """For y = x C' + intercepts, with a row of C for each target: dx = dy C."""
    if g.attr("post_transform", "NONE") != "NONE":
        raise UnsupportedOperatorError(
            f"LinearRegressor {g.node.name or g.node.output[0]!r} transforms its result: {g.attr('post_transform')}.",
            "Leave post_transform out, and put the operator behind the node.",
        )
    rows = np.array(g.attr("coefficients", [])).reshape(g.attr("targets", 1), -1)
    return g.dy @ g.graph.constant(rows, g.dy.dtype)


@gradient("Normalizer", domain=ML)
def normalizer(g: RuleContext) -> RuleResult:
    """For y = x / n, rows divided by their largest element, the sum of their sizes or their length.

    dx = (dy - dn Σ dy y) / n, with dn 1 at the largest, the signs of x, or y.  A row whose n is 0 stays as it is.
    """
    op, kind, x = g.op, g.attr("norm", "MAX"), g.x
    if kind == "MAX":
        n = op.ReduceMax(x, [-1], keepdims=1)
    else:
        n = (op.ReduceL1 if kind == "L1" else op.ReduceL2)(x, [-1], keepdims=1)
    is_zero = mask(op.Equal(n, 0.0), n)
    n = n + is_zero
    dy, y = cast_like(g.dy, x), x / n
    if kind == "MAX":
        first = op.ArgMax(x, axis=-1, keepdims=1)
        direction: Value = op.ScatterElements(zeros_like(x), first, n * 0.0 + 1.0, axis=-1)
    else:
        direction = op.Sign(x) if kind == "L1" else y
    return (dy - direction * (dy * y).sum([-1], keepdims=True) * (1.0 - is_zero)) / n


@gradient("FeatureVectorizer", domain=ML)
def feature_vectorizer(g: RuleContext) -> RuleResult:
    """Columns side by side: each input takes its own back."""
    sizes = g.attr("inputdimensions")
    parts: list[Value] = g.op.Split(g.dy, np.array(sizes), axis=1, outputs=len(sizes))
    return parts


@gradient("Imputer", domain=ML)
def imputer(g: RuleContext) -> RuleResult:
    """The cotangent passes where x was not the value to be replaced."""
    replaced = g.attr("replaced_value_float", 0.0)
    found = g.op.IsNaN(g.x) if np.isnan(replaced) else g.op.Equal(g.x, replaced)
    return g.dy * mask(g.op.Not(found), g.dy)


@gradient("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(g: RuleContext) -> RuleResult:
    """Columns were picked, some of them perhaps twice: the cotangents are added up where they came from."""
    return scatter_along(g.x, g.op.Reshape(g.inputs[1], [-1]), g.dy, -1, "add")
