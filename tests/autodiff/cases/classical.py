"""Rows for the operators of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from onnxblock.autodiff.rules.classical import ML

from . import REFERENCE, case, normal

_NAMES = ("ArrayFeatureExtractor", "FeatureVectorizer", "Imputer", "LinearRegressor", "Normalizer", "Scaler")

EVALUATORS = {f"{ML}.{name}": REFERENCE for name in _NAMES}

X = normal(3, 4)
ZEROS = X * np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], np.float32)

ROWS = [
    case("Scaler", X, domain=ML, offset=[1.0, 2.0, 3.0, 4.0], scale=[0.5, 1.0, 2.0, 3.0], name="scaler_of_columns"),
    case("Scaler", X, domain=ML, offset=[1.0], scale=[0.5], name="scaler_of_all"),
    case(
        "LinearRegressor",
        X,
        domain=ML,
        coefficients=[0.5, 1.0, -2.0, 3.0, 1.5, 0.25, 4.0, -1.0],
        intercepts=[1.0, 2.0],
        targets=2,
        name="linear_regressor",
    ),
    *(case("Normalizer", X, domain=ML, norm=n, name=f"normalizer_{n}") for n in ("L1", "L2")),
    # onnxruntime divides by the largest element, ONNX's own evaluator by the largest size
    case("Normalizer", [[1.0, 2.0, 4.0]], domain=ML, gradient=[[0.25, 0.25, -0.1875]], name="normalizer_MAX"),
    case("Normalizer", [[1.0, 3.0], [0, 0]], domain=ML, norm="L1", gradient=[[0, 0], [1, 1]], name="zero_row_L1"),
    case("Normalizer", [[3, 4.0], [0, 0]], domain=ML, norm="L2", gradient=[[0.032, -0.024], [1, 1]], name="zero_row"),
    case("FeatureVectorizer", X, normal(3, 2), domain=ML, inputdimensions=[4, 2], name="feature_vectorizer"),
    case("Imputer", ZEROS, domain=ML, imputed_value_floats=[7.0], replaced_value_float=0.0, name="imputer"),
    case(
        *("Imputer", np.where(ZEROS == 0, -1, ZEROS)),
        domain=ML,
        imputed_value_floats=[7.0, 1, 2, 3],
        replaced_value_float=-1.0,
        name="imputer_of_ones",
    ),
    case("ArrayFeatureExtractor", X, np.array([[1, 3, 1]]), domain=ML, name="array_feature_extractor"),
]
