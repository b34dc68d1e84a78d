"""Each operator that PyTorch has: torch's autograd at random attributes and shapes (the same in every run)."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")

from torch.nn import functional as F  # noqa: E402

from tests.slow.torch_oracle import Draw, agree, examples  # noqa: E402

# -- convolutions


def _torch_pads(pads: list[int]) -> list[int]:
    """ONNX lists all begins, then all ends; torch lists (begin, end) from the last dimension."""
    rank = len(pads) // 2
    return [p for k in reversed(range(rank)) for p in (pads[k], pads[rank + k])]


@examples()
def test_conv(data):
    d = Draw(data)
    rank, group = d.int(1, 3), d.one(1, 1, 2, 3)
    kernel, strides, dilations = d.ints(rank, 1, 3), d.ints(rank, 1, 3), d.ints(rank, 1, 2)
    pads = d.ints(2 * rank, 0, 2)
    size = [(k - 1) * e + 1 + d.int(0, 3) for k, e in zip(kernel, dilations, strict=True)]
    x = d.normal(d.int(1, 2), group * d.int(1, 2), *size)
    w = d.normal(group * d.int(1, 2), x.shape[1] // group, *kernel)
    b = d.normal(w.shape[0]) if d.bool() else None
    convolve = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]

    def function(x, w, b=None):
        return convolve(F.pad(x, _torch_pads(pads)), w, b, strides, 0, dilations, group)

    inputs = (x, w) if b is None else (x, w, b)
    agree(d, "Conv", function, *inputs, strides=strides, dilations=dilations, pads=pads, group=group)


@examples()
def test_conv_transpose(data):
    d = Draw(data)
    rank, group = d.int(1, 3), d.one(1, 1, 2)
    kernel, strides, dilations = d.ints(rank, 1, 3), d.ints(rank, 1, 3), d.ints(rank, 1, 2)
    extra = [d.int(0, s - 1) for s in strides]  # torch allows less than the dilation too, onnxruntime does not
    pads = [d.int(0, (k - 1) * e) for k, e in zip(kernel, dilations, strict=True)]
    size = [d.int(2, 4) for _ in range(rank)]
    shape = [
        (n - 1) * s + (k - 1) * e + 1 + o - 2 * p
        for n, s, k, e, o, p in zip(size, strides, kernel, dilations, extra, pads, strict=True)
    ]
    if min(shape) < 1:
        pads = [0] * rank
    x = d.normal(d.int(1, 2), group * d.int(1, 2), *size)
    w = d.normal(x.shape[1], d.int(1, 2), *kernel)
    b = d.normal(w.shape[1] * group) if d.bool() else None
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]

    def function(x, w, b=None):
        return convolve(x, w, b, strides, pads, extra, group, dilations)

    inputs = (x, w) if b is None else (x, w, b)
    agree(
        d,
        "ConvTranspose",
        function,
        *inputs,
        strides=strides,
        dilations=dilations,
        pads=pads + pads,
        group=group,
        output_padding=extra,
    )


# -- pooling


def _windows(d: Draw, dilated: bool) -> tuple[int, list[int], list[int], list[int], list[int], list[int]]:
    rank = d.int(1, 3)
    kernel, strides = d.ints(rank, 1, 3), d.ints(rank, 1, 3)
    dilations = d.ints(rank, 1, 2) if dilated else [1] * rank
    pads = [d.int(0, k // 2) for k in kernel]
    size = [(k - 1) * e + 1 + d.int(0, 4) for k, e in zip(kernel, dilations, strict=True)]
    return rank, kernel, strides, dilations, pads, size


@examples()
def test_max_pool(data):
    d = Draw(data)
    rank, kernel, strides, dilations, pads, size = _windows(d, dilated=True)
    ceil = d.bool()
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    x = d.distinct(d.int(1, 2), d.int(1, 2), *size)
    agree(
        d,
        "MaxPool",
        lambda x: pool(x, kernel, strides, pads, dilations, ceil),
        x,
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        pads=pads + pads,
        ceil_mode=int(ceil),
    )


@examples()
def test_average_pool(data):
    d = Draw(data)
    rank, kernel, strides, _, pads, size = _windows(d, dilated=False)
    ceil, counted = d.bool(), d.bool()
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
    x = d.normal(d.int(1, 2), d.int(1, 2), *size)
    agree(
        d,
        "AveragePool",
        lambda x: pool(x, kernel, strides, pads, ceil, counted),
        x,
        kernel_shape=kernel,
        strides=strides,
        pads=pads + pads,
        ceil_mode=int(ceil),
        count_include_pad=int(counted),
        opset=d.one(19, 21, 22),  # before 22, inference counts windows that lie in the padding
    )


@examples()
def test_other_pools(data):
    d = Draw(data)
    rank, kernel, strides, _, _, size = _windows(d, dilated=False)
    x = d.distinct(d.int(1, 2), d.int(1, 2), *size)
    kind = d.one("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "LpPool", "MaxUnpool")
    axes = list(range(2, rank + 2))
    if kind == "GlobalAveragePool":
        agree(d, kind, lambda x: x.mean(axes, keepdim=True), x)
    elif kind == "GlobalMaxPool":
        agree(d, kind, lambda x: x.amax(axes, keepdim=True), x)
    elif kind == "GlobalLpPool":
        p = d.int(1, 3)
        agree(d, kind, lambda x: x.abs().pow(p).sum(axes, keepdim=True).pow(1 / p), x, p=p)
    elif kind == "LpPool":
        p = d.int(1, 3)
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
        count = int(np.prod(kernel))
        agree(
            d,
            kind,
            lambda x: (pool(x.abs().pow(p), kernel, strides) * count).pow(1 / p),
            x,
            kernel_shape=kernel,
            strides=strides,
            p=p,
        )
    else:
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
        unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[rank - 1]
        channel = torch.tensor(d.distinct(1, 1, *[2 * k for k in kernel]), dtype=torch.float64)
        y, found = pool(channel, kernel, kernel, return_indices=True)
        agree(
            d,
            kind,
            lambda x, _: unpool(x, found, kernel, kernel),
            y.numpy().astype(np.float32),
            found.numpy(),
            kernel_shape=kernel,
            strides=kernel,
        )


# -- normalisation


@examples()
def test_normalization(data):
    d = Draw(data)
    kind = d.one("Batch", "BatchTraining", "Layer", "Group", "Instance", "RMS", "Lp", "LRN", "MeanVariance")
    n, c, spatial = d.int(2, 3), d.int(1, 3) * 2, d.ints(d.int(1, 2), 2, 3)
    if kind == "LRN":
        spatial = d.ints(2, 2, 3)  # all that onnxruntime has
    x, scale, bias = d.normal(n, c, *spatial), d.normal(c), d.normal(c)
    epsilon = d.one(1e-5, 1e-2)
    if kind == "Batch":
        mean, var = d.normal(c), d.uniform(0.5, 2, c)
        agree(
            d,
            "BatchNormalization",
            lambda x, s, b, m, v: F.batch_norm(x, m, v, s, b, False, 0, epsilon),
            x,
            scale,
            bias,
            mean,
            var,
            epsilon=epsilon,
            constants=(3, 4),
        )
    elif kind == "BatchTraining":
        mean, var = d.normal(c), d.uniform(0.5, 2, c)
        agree(
            d,
            "BatchNormalization",
            lambda x, s, b, *_: (F.batch_norm(x, None, None, s, b, True, 0, epsilon),),
            x,
            scale,
            bias,
            mean,
            var,
            epsilon=epsilon,
            training_mode=1,
            outputs=3,
            constants=(3, 4),
        )
    elif kind in {"Layer", "RMS"}:
        axis = d.int(1, x.ndim - 1)
        shape = x.shape[axis:]
        scale, bias = d.normal(*shape), d.normal(*shape)
        stated = axis - x.ndim if d.bool() else axis
        if kind == "RMS":
            agree(
                d,
                "RMSNormalization",
                lambda x, s: F.rms_norm(x, shape, s, epsilon),
                x,
                scale,
                axis=stated,
                epsilon=epsilon,
                opset=23,
            )
        else:
            agree(
                d,
                "LayerNormalization",
                lambda x, s, b: F.layer_norm(x, shape, s, b, epsilon),
                x,
                scale,
                bias,
                axis=stated,
                epsilon=epsilon,
            )
    elif kind == "Group":
        groups = d.one(1, 2, c)
        agree(
            d,
            "GroupNormalization",
            lambda x, s, b: F.group_norm(x, groups, s, b, epsilon),
            x,
            scale,
            bias,
            num_groups=groups,
            epsilon=epsilon,
        )
    elif kind == "Instance":
        agree(
            d,
            "InstanceNormalization",
            lambda x, s, b: F.instance_norm(x, None, None, s, b, True, 0, epsilon),
            x,
            scale,
            bias,
            epsilon=epsilon,
        )
    elif kind == "Lp":
        axis, p = d.int(-x.ndim, x.ndim - 1), d.int(1, 2)
        agree(d, "LpNormalization", lambda x: F.normalize(x, p, axis, 0), x, axis=axis, p=p)
    elif kind == "LRN":
        size, alpha, beta, k = d.one(1, 3, 5), d.uniform(0.01, 1).item(), d.one(0.5, 0.75, 1.5), d.one(1.0, 2.0)
        agree(
            d,
            "LRN",
            lambda x: F.local_response_norm(x, size, alpha, beta, k),
            x,
            size=size,
            alpha=alpha,
            beta=beta,
            bias=k,
        )
    else:
        axes = sorted(a % x.ndim for a in d.axes(x.ndim, least=1))

        def standardised(x):
            centred = x - x.mean(axes, keepdim=True)
            return centred / (centred.pow(2).mean(axes, keepdim=True).sqrt() + 1e-9)

        if np.prod([x.shape[a] for a in axes]) > 2:
            agree(d, "MeanVarianceNormalization", standardised, x, axes=axes)


# -- sampling


@examples()
def test_resize(data):
    """Without antialias, which onnxruntime computes otherwise at the borders than torch does."""
    d = Draw(data)
    rank = d.int(1, 2)
    size, target = d.ints(rank, 2, 6), d.ints(rank, 1, 8)
    x = d.normal(1, d.int(1, 2), *size)
    sizes = np.array([*x.shape[:2], *target])
    kind = d.one("nearest", "nearest-exact", "linear", "cubic", "area")
    corners = d.bool() and min(target) > 1
    mode = "align_corners" if corners else "half_pixel"
    if kind == "nearest":
        agree(
            d,
            "Resize",
            lambda x, *_: F.interpolate(x, target, mode="nearest"),
            x,
            None,
            None,
            sizes,
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
            constants=(1, 2),
        )
    elif kind == "nearest-exact":
        agree(
            d,
            "Resize",
            lambda x, *_: F.interpolate(x, target, mode="nearest-exact"),
            x,
            None,
            None,
            sizes,
            nearest_mode="round_prefer_ceil",
            constants=(1, 2),
        )
    elif kind == "area" or (kind == "cubic" and rank == 1):
        scale = d.int(1, 3)
        scales = np.array([1, 1, *[scale] * rank], np.float32)
        agree(
            d,
            "Resize",
            lambda x, *_: F.interpolate(x, scale_factor=scale, mode="nearest"),
            x,
            None,
            scales,
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
            constants=(1, 2),
        )
    else:
        torch_mode = {"linear": ("linear", "bilinear"), "cubic": ("", "bicubic")}[kind][rank - 1]
        agree(
            d,
            "Resize",
            lambda x, *_: F.interpolate(x, target, mode=torch_mode, align_corners=corners),
            *(x, None, None, sizes),
            mode=kind,
            coordinate_transformation_mode=mode,
            constants=(1, 2),
        )


@examples()
def test_grid_sample(data):
    d = Draw(data)
    rank = d.one(2, 2, 3)
    mode = d.one("linear", "nearest", "cubic") if rank == 2 else d.one("linear", "nearest")
    padding, corners, n = d.one("zeros", "border", "reflection"), d.bool(), d.int(1, 2)
    x = d.normal(n, d.int(1, 2), *d.ints(rank, 2, 4))
    grid = d.uniform(-1.4, 1.4, n, *d.ints(rank, 1, 3), rank)
    torch_mode = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}[mode]
    agree(
        d,
        "GridSample",
        lambda x, g: F.grid_sample(x, g, torch_mode, padding, corners),
        x,
        grid,
        mode=mode,
        padding_mode=padding,
        align_corners=int(corners),
        tolerance=1e-3,
    )


@examples()
def test_affine_grid(data):
    d = Draw(data)
    rank, n, corners = d.int(2, 3), d.int(1, 2), d.bool()
    size = [n, d.int(1, 2), *d.ints(rank, 2, 4)]
    agree(
        d,
        "AffineGrid",
        lambda t, _: F.affine_grid(t, size, align_corners=corners),
        d.normal(n, rank, rank + 1),
        np.array(size),
        align_corners=int(corners),
    )


@examples()
def test_col2im(data):
    d = Draw(data)
    kernel, strides, dilations = d.ints(2, 1, 3), d.ints(2, 1, 2), d.ints(2, 1, 2)
    image = [(k - 1) * e + 1 + d.int(0, 3) for k, e in zip(kernel, dilations, strict=True)]
    pads = d.ints(2, 0, 1)
    blocks = [
        (i + 2 * p - (k - 1) * e - 1) // s + 1
        for i, p, k, e, s in zip(image, pads, kernel, dilations, strides, strict=True)
    ]
    x = d.normal(d.int(1, 2), d.int(1, 2) * int(np.prod(kernel)), int(np.prod(blocks)))
    agree(
        d,
        "Col2Im",
        lambda x, *_: F.fold(x, image, kernel, dilations, pads, strides),
        x,
        np.array(image),
        np.array(kernel),
        dilations=dilations,
        pads=pads + pads,
        strides=strides,
    )
