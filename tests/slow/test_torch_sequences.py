"""Indexing, movement, recurrent operators and attention: torch's autograd at random attributes and shapes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")

from torch.nn import functional as F  # noqa: E402

from tests.slow.torch_oracle import Draw, agree, examples  # noqa: E402

# -- gather and scatter


@examples()
def test_gather(data):
    d = Draw(data)
    x = d.normal(*d.ints(d.int(1, 3), 1, 4))
    axis = d.int(0, x.ndim - 1)
    n, stated = x.shape[axis], axis - x.ndim if d.bool() else axis
    kind = d.one("Gather", "GatherElements", "GatherND")
    if kind == "Gather":
        at = d.indices(-n, n, *d.ints(d.int(0, 2), 1, 3))

        def function(x, i):
            rows = torch.index_select(x, axis, (i % n).flatten())
            return rows.reshape(x.shape[:axis] + i.shape + x.shape[axis + 1 :])

        agree(d, kind, function, x, at, axis=stated)
    elif kind == "GatherElements":
        shape = [d.int(1, s) for s in x.shape]
        shape[axis] = d.int(1, 4)
        agree(d, kind, lambda x, i: torch.gather(x, axis, i % n), x, d.indices(-n, n, *shape), axis=stated)
    else:
        depth = d.int(1, x.ndim)
        rows = d.ints(d.int(0, 2), 1, 3)
        at = np.stack([d.indices(-s, s, *rows) for s in x.shape[:depth]], -1)
        agree(d, kind, lambda x, i: x[tuple(i[..., k] for k in range(depth))], x, at)


@examples()
def test_scatter(data):
    d = Draw(data)
    x = d.distinct(*d.ints(d.int(1, 3), 2, 4))
    reduction = d.one("none", "add", "mul", "max", "min")
    torch_name = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}.get(reduction)
    if d.bool():
        axis = d.int(0, x.ndim - 1)
        n = x.shape[axis]
        shape = [d.int(1, s) for s in x.shape]
        if reduction == "none":
            order = [d.rng.permutation(n)[: shape[axis]] for _ in range(int(np.prod(shape)) // shape[axis])]
            moved = [s for k, s in enumerate(shape) if k != axis]
            at = np.moveaxis(np.array(order).reshape(*moved, shape[axis]), -1, axis)
        else:
            at = d.indices(-n, n, *shape)
        updates = d.distinct(*shape) * np.float32(0.93)

        def function(x, i, u):
            i = i % n
            if torch_name is None:
                return x.scatter(axis, i, u)
            return x.scatter_reduce(axis, i, u, torch_name, include_self=True)

        agree(d, "ScatterElements", function, x, at, updates, axis=axis, reduction=reduction)
        return
    depth = d.int(1, x.ndim)
    positions = int(np.prod(x.shape[:depth]))
    count = d.int(1, positions)
    flat = d.rng.permutation(positions)[:count] if reduction == "none" else d.indices(0, positions, count)
    at = np.stack(np.unravel_index(flat, x.shape[:depth]), -1)
    updates = d.distinct(count, *x.shape[depth:]) * np.float32(0.93)

    def function_nd(x, i, u):
        rows = x.reshape(positions, -1)
        where = torch.tensor(flat)[:, None].expand(-1, rows.shape[1])
        u = u.reshape(count, -1)
        if torch_name is None:
            return rows.scatter(0, where, u).reshape(x.shape)
        return rows.scatter_reduce(0, where, u, torch_name, include_self=True).reshape(x.shape)

    agree(d, "ScatterND", function_nd, x, at, updates, reduction=reduction)


# -- movement


@examples()
def test_pad(data):
    d = Draw(data)
    mode = d.one("constant", "reflect", "edge", "wrap")
    rank = d.int(1, 3) if mode != "constant" else 2
    spatial = d.ints(rank, 2, 4)
    x = d.normal(1, d.int(1, 2), *spatial) if mode != "constant" else d.normal(*spatial)
    most = {"reflect": lambda n: n - 1, "wrap": lambda n: n}.get(mode, lambda n: 3)
    low = -1 if mode == "constant" else 0
    begins, ends = ([d.int(low, most(n)) for n in spatial] for _ in range(2))
    lead = [0] * (x.ndim - rank)
    pads = np.array([*lead, *begins, *lead, *ends])
    pairs = [p for b, e in zip(reversed(begins), reversed(ends), strict=True) for p in (b, e)]
    torch_mode = {"edge": "replicate", "wrap": "circular"}.get(mode, mode)
    if mode == "constant":
        if min(n + b + e for n, b, e in zip(spatial, begins, ends, strict=True)) > 0:
            agree(d, "Pad", lambda x, _: F.pad(x, pairs), x, pads)
    else:
        agree(d, "Pad", lambda x, _: F.pad(x, pairs, torch_mode), x, pads, mode=mode)


@examples()
def test_movement(data):
    d = Draw(data)
    x = d.distinct(*d.ints(d.int(1, 4), 1, 4))
    axis = d.int(0, x.ndim - 1)
    n = x.shape[axis]
    kind = d.one("Transpose", "Tile", "Expand", "Concat", "Slice", "Trilu", "DepthToSpace", "SpaceToDepth", "TopK")
    if kind == "Transpose":
        perm = [int(k) for k in d.rng.permutation(x.ndim)]
        agree(d, kind, lambda x: x.permute(perm), x, perm=perm)
    elif kind == "Tile":
        repeats = d.ints(x.ndim, 1, 3)
        agree(d, kind, lambda x, _: x.repeat(repeats), x, np.array(repeats))
    elif kind == "Expand":
        x = x[tuple(slice(0, 1) if d.bool() else slice(None) for _ in x.shape)]
        shape = [*d.ints(d.int(0, 1), 1, 3), *(d.int(1, 3) if s == 1 else s for s in x.shape)]
        agree(d, kind, lambda x, _: x.expand(shape), x, np.array(shape))
    elif kind == "Concat":
        other = d.normal(*(d.int(1, 3) if k == axis else s for k, s in enumerate(x.shape)))
        agree(d, kind, lambda *x: torch.cat(x, axis), x, other, axis=axis)
    elif kind == "Slice":
        start, step = d.int(0, n - 1), d.int(1, 2)
        end = d.int(start + 1, n)
        if d.bool():
            agree(
                d,
                kind,
                lambda x, *_: x.index_select(axis, torch.arange(start, end, step)),
                x,
                np.array([start]),
                np.array([end]),
                np.array([axis]),
                np.array([step]),
            )
        else:
            agree(
                d,
                kind,
                lambda x, *_: x.index_select(axis, torch.tensor(range(n)[start::-step])),
                x,
                np.array([start]),
                np.array([-n - 1]),
                np.array([axis - x.ndim]),
                np.array([-step]),
            )
    elif kind == "Trilu":
        x, k, upper = d.normal(*d.ints(d.int(2, 3), 1, 4)), d.int(-2, 2), d.bool()
        agree(d, kind, lambda x, _: torch.triu(x, k) if upper else torch.tril(x, k), x, np.array(k), upper=int(upper))
    elif kind == "TopK":
        k, largest = d.int(1, n), d.bool()
        agree(
            d,
            kind,
            lambda x, _: (torch.topk(x, k, axis, largest)[0], None),
            x,
            np.array([k]),
            axis=axis,
            largest=int(largest),
            outputs=2,
        )
    else:
        block, (c, h, w) = d.int(1, 3), d.ints(3, 1, 2)
        if kind == "DepthToSpace":
            agree(
                d,
                kind,
                lambda x: F.pixel_shuffle(x, block),
                d.normal(1, c * block**2, h, w),
                blocksize=block,
                mode="CRD",
            )
        else:

            def function(x):
                cells = x.reshape(1, c, h, block, w, block)
                return cells.permute(0, 3, 5, 1, 2, 4).reshape(1, c * block**2, h, w)

            agree(d, kind, function, d.normal(1, c, h * block, w * block), blocksize=block)


@examples()
def test_choice_and_shape(data):
    d = Draw(data)
    x = d.distinct(*d.ints(d.int(1, 4), 1, 4))
    axis = d.int(0, x.ndim - 1)
    n = x.shape[axis]
    kind = d.one("Where", "Mod", "Compress", "Split", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
    if kind == "Where":
        other = d.normal(*(1 if d.bool() else k for k in x.shape))
        taken = d.rng.random((d.int(1, 3), *x.shape[1:])) < 0.5 if x.shape[0] == 1 else d.rng.random(x.shape[1:]) < 0.5
        agree(d, kind, torch.where, taken, x, other)
    elif kind == "Mod":
        agree(d, kind, torch.fmod, x * np.float32(3), d.uniform(0.6, 2, *x.shape[axis:]), fmod=1)
    elif kind == "Compress":
        if d.bool():
            kept = d.rng.random(n) < 0.6
            agree(d, kind, lambda x, c: x.index_select(axis, c.nonzero()[:, 0]), x, kept, axis=axis)
        else:
            kept = d.rng.random(x.size) < 0.6
            agree(d, kind, lambda x, c: x.flatten()[c], x, kept)
    elif kind == "Split":
        first = d.int(0, n)
        agree(
            d,
            kind,
            lambda x, s: torch.split(x, s.tolist(), axis),
            x,
            np.array([first, n - first]),
            axis=axis,
            outputs=2,
        )
    elif kind == "Reshape":
        shape = [x.size // n, n] if d.bool() else [-1, n]
        agree(d, kind, lambda x, _: x.reshape(shape), x, np.array(shape))
    elif kind == "Flatten":
        at = d.int(0, x.ndim)
        agree(d, kind, lambda x: x.reshape(int(np.prod(x.shape[:at])), -1), x, axis=at)
    elif kind == "Squeeze":
        wide = np.expand_dims(x, (0, x.ndim + 1))
        agree(d, kind, lambda x, _: x.squeeze(-1).squeeze(0), wide, np.array([-1, 0]))
    else:
        agree(d, kind, lambda x, _: x.unsqueeze(axis).unsqueeze(-1), x, np.array([axis, -1]))


# -- recurrent operators


@examples()
def test_recurrent(data):
    d = Draw(data)
    kind = d.one("LSTM", "GRU", "RNN")
    steps, batch, size, hidden, two_way = d.int(1, 4), d.int(1, 3), d.int(1, 3), d.int(1, 3), d.bool()
    ways, gates = 1 + two_way, {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    # Where torch has the gate that ONNX has at this place: LSTM i o f c of i f c o, GRU z r h of r z h.
    order = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}[kind]
    x = d.normal(steps, batch, size)
    w, r = d.normal(ways, gates * hidden, size), d.normal(ways, gates * hidden, hidden)
    b = d.normal(ways, 2 * gates * hidden)
    starts = [d.normal(ways, batch, hidden) for _ in range(2 if kind == "LSTM" else 1)]

    def to_torch(m):
        return torch.cat([m[g * hidden : (g + 1) * hidden] for g in order])

    def function(x, w, r, b, _, *starts):
        flat = [to_torch(m) for k in range(ways) for m in (w[k], r[k], b[k, : gates * hidden], b[k, gates * hidden :])]
        settings = (True, 1, 0.0, False, two_way, False)
        if kind == "LSTM":
            y, *last = torch.lstm(x, starts, flat, *settings)
        else:
            y, *last = {"GRU": torch.gru, "RNN": torch.rnn_tanh}[kind](x, starts[0], flat, *settings)
        return y.reshape(steps, batch, ways, hidden).permute(0, 2, 1, 3), *last

    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    agree(
        d,
        kind,
        function,
        x,
        w,
        r,
        b,
        None,
        *starts,
        outputs=1 + len(starts),
        hidden_size=hidden,
        direction="bidirectional" if two_way else "forward",
        **more,
    )


# -- attention


@examples()
def test_attention(data):
    d = Draw(data)
    batch, heads, shared, queries, keys, size = d.int(1, 2), d.int(1, 2), d.int(1, 2), *d.ints(3, 1, 4)
    value_size = d.int(1, 3)
    q = d.normal(batch, heads * shared, queries, size)
    k, v = d.normal(batch, heads, keys, size), d.normal(batch, heads, keys, value_size)
    scale = d.one(None, 0.3, 1.0)
    mask = d.one("none", "float", "bool", "causal")
    attributes = {} if scale is None else {"scale": scale}
    inputs = [q, k, v]
    if mask == "causal":
        attributes["is_causal"] = 1
    elif mask == "float":
        inputs.append(d.normal(queries, keys))
    elif mask == "bool":
        allowed = d.rng.random((queries, keys)) < 0.7
        allowed[:, 0] = True
        inputs.append(allowed)

    def function(q, k, v, m=None):
        return F.scaled_dot_product_attention(q, k, v, m, is_causal=mask == "causal", scale=scale, enable_gqa=True)

    agree(d, "Attention", function, *inputs, opset=23, **attributes)
