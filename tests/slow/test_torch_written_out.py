"""Operators that PyTorch lacks, or has in another form, written out in it from their definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")

from onnxblock.graph.precision import to_float64  # noqa: E402
from tests.autodiff import harness  # noqa: E402
from tests.autodiff.cases import DEFINITIONS  # noqa: E402
from tests.slow.torch_oracle import Draw, agree, examples  # noqa: E402

# -- signals


@examples()
def test_dft(data):
    d = Draw(data)
    rank = d.int(1, 3)
    size = d.ints(rank, 1, 4)
    axis = d.int(0, rank - 1) if rank == 1 else d.int(1, rank - 1)
    complex_input = d.bool()
    onesided = not complex_input and d.bool()
    inverse = not onesided and d.bool()
    length = d.one(None, size[axis], size[axis] + 2, max(size[axis] - 1, 1))
    x = d.normal(1, *size, 2 if complex_input else 1)
    opset, place = d.one(17, 20), axis + 1

    def function(x, *_):
        whole = torch.view_as_complex(x) if complex_input else x[..., 0]
        if onesided:
            found = torch.fft.rfft(whole, length, place)
        else:
            found = (torch.fft.ifft if inverse else torch.fft.fft)(whole, length, place)
        return torch.view_as_real(found.resolve_conj())

    inputs = [x] if length is None else [x, np.array(length)]
    more = {"inverse": int(inverse), "onesided": int(onesided)}
    if opset == 17:
        agree(d, "DFT", function, *inputs, opset=18, axis=place, **more)
    else:
        stated = place - (rank + 2) if d.bool() else place
        agree(d, "DFT", function, *inputs, *[None] * (2 - len(inputs)), np.array(stated), opset=20, **more)


@examples()
def test_stft(data):
    d = Draw(data)
    length, step, onesided = d.int(2, 5), d.int(1, 4), d.bool()
    count = length + d.int(0, 7)
    windowed = d.bool()
    signal = d.normal(d.int(1, 2), count, 1)
    # The length is that of the window where both are given.
    inputs = [signal, np.array(step), d.normal(length) if windowed else None]
    if not windowed or d.bool():
        inputs.append(np.array(length))

    def function(x, _, window=None, *__):
        frames = x[..., 0].unfold(1, length, step)
        frames = frames if window is None else frames * window
        return torch.view_as_real((torch.fft.rfft if onesided else torch.fft.fft)(frames))

    agree(d, "STFT", function, *inputs, opset=d.one(18, 21), onesided=int(onesided))


# -- sampling


def _at(image, y, x):
    """``image`` [C, H, W] read at points [...] by linear interpolation, zero outside of it: [C, ...]."""
    total = 0.0
    for dy, dx in itertools.product((0, 1), repeat=2):
        row, column = y.detach().floor().long() + dy, x.detach().floor().long() + dx
        weight = (1 - (y - row).abs()) * (1 - (x - column).abs())
        inside = (row >= 0) & (row < image.shape[1]) & (column >= 0) & (column < image.shape[2])
        value = image[:, row.clamp(0, image.shape[1] - 1), column.clamp(0, image.shape[2] - 1)]
        total = total + value * (weight * inside)
    return total


@examples()
def test_deform_conv(data):
    d = Draw(data)
    group, parts = d.one(1, 2), d.one(1, 2)
    kernel, strides, dilations = d.ints(2, 1, 3), d.ints(2, 1, 2), d.ints(2, 1, 2)
    pads, extra = d.ints(4, 0, 1), d.ints(2, 0, 2)
    size = [(k - 1) * e + 1 + more for k, e, more in zip(kernel, dilations, extra, strict=True)]
    count = [
        (n + pads[a] + pads[a + 2] - (k - 1) * e - 1) // s + 1
        for a, (n, k, e, s) in enumerate(zip(size, kernel, dilations, strides, strict=True))
    ]
    batch, per_group = d.int(1, 2), d.int(1, 2)
    x = d.normal(batch, 2 * per_group, *size)
    w = d.normal(2 * d.int(1, 2), x.shape[1] // group, *kernel)
    places = kernel[0] * kernel[1]
    offset = d.normal(batch, 2 * parts * places, *count)
    b, mask = (
        (d.normal(w.shape[0]) if d.bool() else None),
        (d.normal(batch, parts * places, *count) if d.bool() else None),
    )

    def function(x, w, offset, b=None, mask=None):
        rows = torch.arange(count[0], dtype=torch.float64)[:, None] * strides[0] - pads[0]
        columns = torch.arange(count[1], dtype=torch.float64)[None, :] * strides[1] - pads[1]
        share = x.shape[1] // parts
        images = []
        for n in range(batch):
            taken = []
            for part, (i, j) in itertools.product(range(parts), itertools.product(*map(range, kernel))):
                k = part * places + i * kernel[1] + j
                y_at = rows + i * dilations[0] + offset[n, 2 * k]
                x_at = columns + j * dilations[1] + offset[n, 2 * k + 1]
                value = _at(x[n, part * share : (part + 1) * share], y_at, x_at)
                taken.append(value if mask is None else value * mask[n, k])
            stacked = torch.stack(taken).reshape(parts, places, share, *count)
            columns_of = stacked.transpose(1, 2).reshape(group, -1, places, *count)
            weights = w.reshape(group, w.shape[0] // group, w.shape[1], places)
            y = torch.einsum("gmck,gckhw->gmhw", weights, columns_of).reshape(w.shape[0], *count)
            images.append(y if b is None else y + b[:, None, None])
        return torch.stack(images)

    inputs = [x, w, offset] + ([b] if b is not None or mask is not None else []) + ([] if mask is None else [mask])
    agree(
        d,
        "DeformConv",
        function,
        *inputs,
        opset=d.one(19, 22),
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=group,
        offset_group=parts,
    )


@examples()
def test_roi_align(data):
    d = Draw(data)
    height, width, bins = d.int(2, 6), d.int(2, 6), d.ints(2, 1, 3)
    ratio, scale, mode = d.one(0, 1, 2), d.one(0.5, 1.0), d.one("avg", "max")
    pixel = d.one("half_pixel", "output_half_pixel")
    batch, count = d.int(1, 2), d.int(1, 3)
    x = d.distinct(batch, d.int(1, 2), height, width)
    start = d.uniform(-1, 3, count, 2)
    regions = np.concatenate([start, start + d.uniform(0.3, 4, count, 2)], axis=1)
    of = d.indices(0, batch, count)

    def function(x, *_):
        shift = 0.5 if pixel == "half_pixel" else 0.0
        found = []
        for region, image in zip(regions, of, strict=True):
            x1, y1, x2, y2 = (float(np.float32(v)) * scale - shift for v in region)
            sizes = [y2 - y1, x2 - x1]
            sizes = sizes if shift else [max(s, 1.0) for s in sizes]
            steps = [s / n for s, n in zip(sizes, bins, strict=True)]
            samples = [ratio or math.ceil(s) for s in steps]
            for row, column in itertools.product(*map(range, bins)):
                taken = []
                for i, j in itertools.product(*map(range, samples)):
                    y = y1 + (row + (i + 0.5) / samples[0]) * steps[0]
                    z = x1 + (column + (j + 0.5) / samples[1]) * steps[1]
                    inside = -1 <= y <= height and -1 <= z <= width
                    y, z = min(max(y, 0.0), height - 1.0), min(max(z, 0.0), width - 1.0)
                    top, left = int(y), int(z)
                    for a, wa in ((top, 1 - y + top), (min(top + 1, height - 1), y - top)):
                        for c, wc in ((left, 1 - z + left), (min(left + 1, width - 1), z - left)):
                            taken.append(x[image, :, a, c] * (wa * wc * inside))
                every = torch.stack(taken)
                found.append(every.sum(0) / (samples[0] * samples[1]) if mode == "avg" else every.amax(0))
        return torch.stack(found).reshape(count, bins[0], bins[1], -1).permute(0, 3, 1, 2)

    agree(
        d,
        "RoiAlign",
        function,
        x,
        regions.astype(np.float32),
        of,
        constants=(1,),
        opset=d.one(18, 21),  # onnxruntime has no kernel of opset 22
        output_height=bins[0],
        output_width=bins[1],
        sampling_ratio=ratio,
        spatial_scale=scale,
        mode=mode,
        coordinate_transformation_mode=pixel,
    )


# -- matrices and sequences


@examples()
def test_det(data):
    """The sum over permutations: torch differentiates its own determinant by an inverse, which singular ones lack."""
    d = Draw(data)
    size = d.int(1, 4)
    x = d.normal(*d.ints(d.int(0, 2), 1, 3), size, size)
    if d.bool() and size > 1:
        x[..., -1, :] = x[..., 0, :] + np.float32(d.one(0.0, 1e-3))

    def function(x):
        total = 0.0
        for places in itertools.permutations(range(size)):
            swaps = sum(a > b for a, b in itertools.combinations(places, 2))
            total = total + (-1) ** swaps * torch.stack([x[..., k, at] for k, at in enumerate(places)]).prod(0)
        return total

    agree(d, "Det", function, x, opset=d.one(18, 22))


@examples()
def test_reverse_sequence(data):
    d = Draw(data)
    batch_axis = d.int(0, 1)
    shape = d.ints(2 + d.int(0, 2), 1, 4)
    lengths = d.indices(1, shape[1 - batch_axis] + 1, shape[batch_axis])

    def function(x, _):
        rows = x.movedim(batch_axis, 0)
        turned = [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(rows, lengths, strict=True)]
        return torch.stack(turned).movedim(0, batch_axis)

    agree(d, "ReverseSequence", function, d.normal(*shape), lengths, batch_axis=batch_axis, time_axis=1 - batch_axis)


# -- recurrent operators, one step at a time

_ACTIVATIONS = {
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "Softsign": torch.nn.functional.softsign,
    "Softplus": torch.nn.functional.softplus,
}


def _step(kind, x, state, w, r, b, p, hidden, options):
    """The state behind a step: [h] or [h, c], of one direction."""
    gates = w.shape[0] // hidden
    bias = b[: gates * hidden] + b[gates * hidden :]
    f, *others = options["activations"]
    h = state[0]
    if kind == "RNN":
        return [f(x @ w.T + h @ r.T + bias)]
    if kind == "LSTM":
        i, o, f_, c_ = (x @ w.T + h @ r.T + bias).split(hidden, -1)
        c = state[1]
        i = f(i + p[:hidden] * c)
        forget = 1 - i if options["input_forget"] else f(f_ + p[2 * hidden :] * c)
        new = forget * c + i * others[0](c_)
        o = f(o + p[hidden : 2 * hidden] * new)
        return [o * others[1](new), new]
    (wz, wr, wh), (rz, rr, rh) = (m.split(hidden, 0) for m in (w, r))
    z_, r_, h_ = b[: gates * hidden].split(hidden, -1)
    rz_, rr_, rh_ = b[gates * hidden :].split(hidden, -1)
    z = f(x @ wz.T + h @ rz.T + z_ + rz_)
    reset = f(x @ wr.T + h @ rr.T + r_ + rr_)
    if options["linear_before_reset"]:
        candidate = others[0](x @ wh.T + reset * (h @ rh.T + rh_) + h_)
    else:
        candidate = others[0](x @ wh.T + (reset * h) @ rh.T + rh_ + h_)
    return [(1 - z) * candidate + z * h]


def _run_definitions(model):
    run = harness.EVALUATORS[DEFINITIONS](to_float64(model))
    return lambda feeds: run({k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in feeds.items()})


@examples(300)
def test_recurrent_with_every_option(data):
    d = Draw(data)
    kind = d.one("LSTM", "GRU", "RNN")
    steps, batch, size, hidden = d.int(1, 4), d.int(1, 3), d.int(1, 3), d.int(1, 3)
    direction = d.one("forward", "reverse", "bidirectional")
    ways, gates = 1 + (direction == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    layout = int(d.int(0, 4) == 0)
    lengths = d.indices(1, steps + 1, batch).astype(np.int32) if d.bool() else None
    arrays = {
        "x": d.normal(steps, batch, size),
        "w": d.normal(ways, gates * hidden, size),
        "r": d.normal(ways, gates * hidden, hidden),
        "b": d.normal(ways, 2 * gates * hidden) if d.bool() else None,
        "lengths": lengths,
        "h": d.normal(ways, batch, hidden) if d.bool() else None,
    }
    if kind == "LSTM":
        arrays["c"] = d.normal(ways, batch, hidden) if d.bool() else None
        arrays["p"] = d.normal(ways, 3 * hidden) if d.bool() else None
    if layout:
        for name in ("x", "h", "c"):
            if arrays.get(name) is not None:
                arrays[name] = np.ascontiguousarray(np.swapaxes(arrays[name], 0, 1))
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[kind]
    named = [d.one(*_ACTIVATIONS) for _ in usual] if d.int(0, 2) == 0 else usual
    options = {
        "activations": [_ACTIVATIONS[name] for name in named],
        "input_forget": kind == "LSTM" and d.bool(),
        "linear_before_reset": kind == "GRU" and d.bool(),
    }
    inputs = list(arrays.values())
    while inputs[-1] is None:
        inputs.pop()
    names = list(arrays)[: len(inputs)]

    def function(*given):
        have = dict(zip(names, given, strict=True))
        x = have["x"].transpose(0, 1) if layout else have["x"]
        states = 2 if kind == "LSTM" else 1
        ys, lasts = [], []
        for way in range(ways):
            backwards = direction == "reverse" or way == 1
            b = torch.zeros(2 * gates * hidden) if have.get("b") is None else have["b"][way]
            p = torch.zeros(3 * hidden) if have.get("p") is None else have["p"][way]
            outputs, finals = [], []
            for n in range(batch):
                count = steps if lengths is None else int(lengths[n])
                state = []
                for name in ("h", "c")[:states]:
                    start = have.get(name)
                    start = start if start is None or not layout else start.transpose(0, 1)
                    state.append(torch.zeros(hidden, dtype=torch.float64) if start is None else start[way, n])
                rows = [torch.zeros(hidden, dtype=torch.float64)] * steps
                for t in reversed(range(count)) if backwards else range(count):
                    state = _step(kind, x[t, n], state, have["w"][way], have["r"][way], b, p, hidden, options)
                    rows[t] = state[0]
                outputs.append(torch.stack(rows))
                finals.append(state)
            ys.append(torch.stack(outputs, 1))
            lasts.append([torch.stack([state[k] for state in finals]) for k in range(states)])
        y = torch.stack(ys, 1)
        last = [torch.stack([of_way[k] for of_way in lasts]) for k in range(states)]
        if layout:
            return y.permute(2, 0, 1, 3), *(v.transpose(0, 1) for v in last)
        return y, *last

    attributes = {"hidden_size": hidden, "direction": direction, "layout": layout}
    if named != usual:
        attributes["activations"] = named * ways
    for name in ("input_forget", "linear_before_reset"):
        if options[name]:
            attributes[name] = 1
    more = {"run": _run_definitions} if layout else {}  # onnxruntime has no such kernel
    agree(d, kind, function, *inputs, outputs=3 if kind == "LSTM" else 2, opset=d.one(18, 22), **more, **attributes)
