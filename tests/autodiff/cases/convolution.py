"""Rows for Conv and ConvTranspose."""

from __future__ import annotations

from . import DEFINITIONS, case, normal

EVALUATORS = {"Conv": DEFINITIONS, "ConvTranspose": DEFINITIONS}

X, X1, X3 = normal(2, 4, 7, 8), normal(2, 4, 9), normal(1, 2, 4, 3, 5)

ROWS = [
    *(
        case("Conv", X, normal(*w), normal(w[0]), kernel_shape=w[2:], **attributes)
        for w, attributes in [
            ((6, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
            ((6, 4, 3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
            ((6, 2, 3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1], "group": 2}),
            ((4, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 4}),
            ((8, 1, 5, 3), {"pads": [2, 1, 2, 1], "group": 4, "strides": [2, 2]}),
            ((4, 4, 3, 3), {"dilations": [2, 1], "strides": [1, 3]}),
            ((4, 4, 2, 2), {"dilations": [3, 2], "strides": [3, 2], "pads": [2, 2, 2, 2]}),
            ((5, 4, 1, 1), {}),
            ((5, 4, 1, 1), {"strides": [2, 3]}),
            ((6, 2, 1, 1), {"strides": [2, 3], "group": 2, "pads": [1, 0, 0, 1]}),
        ]
    ),
    *(
        case("Conv", X, normal(5, 4, *kernel), kernel_shape=kernel, strides=strides, auto_pad=auto_pad)
        for auto_pad in ("SAME_UPPER", "SAME_LOWER", "VALID")
        for kernel, strides in (((2, 3), (1, 2)), ((1, 1), (3, 2)), ((4, 3), (2, 2)))
    ),
    case("Conv", X, normal(5, 4, 3, 3), strides=[2, 2], name="kernel_shape_from_the_weights"),
    case("Conv", normal(2, 32, 5, 4), normal(2, 32, 3, 2), strides=[2, 1], pads=[1, 0, 1, 1], name="many_channels"),
    case("Conv", normal(2, 3, 9, 8), normal(2, 3, 5, 5), strides=[2, 2], pads=[2, 2, 2, 1], name="few_channels"),
    case("Conv", X, normal(4, 1, 3, 3), group=4, strides=[2, 2], dilations=[1, 2], pads=[0, 1, 1, 2], name="depthwise"),
    case("Conv", normal(1, 6, 4, 4), normal(4, 3, 3, 3), group=2, pads=[1, 1, 1, 1], name="small_groups"),
    *(
        case("Conv", normal(*x), normal(*w), pads=pads, dilations=dilations, name=f"wide_image_{len(x) - 2}d")
        for x, w, pads, dilations in (
            ((2, 2, 30), (2, 2, 3), [1, 2], [1]),
            ((2, 3, 8, 9), (2, 3, 3, 2), [1, 0, 2, 1], [1, 2]),
            ((1, 2, 4, 5, 4), (1, 2, 2, 3, 2), [0, 2, 1, 1, 0, 0], [1, 1, 1]),
        )
    ),
    *(
        case("Conv", normal(*x), normal(*w), name=f"many_positions_{len(x) - 2}d_{k}", **attributes)
        for k, (x, w, attributes) in enumerate(
            (
                ((2, 2, 24, 25), (2, 2, 3, 2), {"pads": [1, 0, 2, 1], "dilations": [1, 2]}),
                ((1, 4, 24, 25), (4, 2, 2, 3), {"group": 2}),
                ((2, 2, 24, 25), (2, 2, 3, 1), {}),
                ((2, 3, 520), (2, 3, 4), {"pads": [1, 2]}),
                ((1, 2, 8, 9, 12), (1, 2, 2, 1, 3), {"pads": [0, 0, 1, 1, 0, 0]}),
            )
        )
    ),
    case("Conv", normal(2, 2, 8, 9), normal(2, 2, 2, 1), pads=[2, 0, 2, 1], name="wide_image_with_wide_borders"),
    case("Conv", normal(0, 32, 4, 4), normal(2, 32, 3, 3), kernel_shape=[3, 3], name="conv_of_an_empty_batch"),
    *(
        case("Conv", normal(batch, 6, 3, 2), normal(7, 6, 1, 1), normal(7), name=f"more_weights_than_positions_{batch}")
        for batch in (0, 1, 3)
    ),
    case("Conv", normal(2, 6, 4, 3), normal(7, 6, 1, 1), strides=[2, 2], name="more_weights_than_positions_strided"),
    *(
        case(
            "Conv",
            normal(batch, 6, 4, 5),
            normal(7, 6, 2, 3),
            strides=[2, 1],
            dilations=[1, 2],
            name=f"windows_{batch}",
        )
        for batch in (0, 1, 2)
    ),
    case("Conv", X1, normal(5, 4, 1), normal(5), name="conv1d_of_one_element"),
    case("Conv", X1, normal(6, 2, 3), normal(6), strides=[2], pads=[1, 1], group=2),
    case("Conv", X3, normal(4, 2, 3, 2, 2), normal(4), strides=[2, 1, 2], pads=[1, 0, 0, 0, 1, 1]),
    case("Conv", X3, normal(2, 1, 2, 2, 2), group=2, dilations=[2, 2, 1]),
    *(
        case(
            "ConvTranspose", X, normal(*w), normal(w[1] * attributes.get("group", 1)), kernel_shape=w[2:], **attributes
        )
        for w, attributes in [
            ((4, 3, 3, 2), {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0]}),
            ((4, 3, 2, 2), {"strides": [2, 2], "group": 2}),
            ((4, 1, 3, 2), {"strides": [2, 1], "dilations": [2, 1], "group": 4, "output_padding": [1, 0]}),
            ((4, 3, 3, 3), {"auto_pad": "VALID"}),
            ((4, 3, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
            ((4, 3, 4, 5), {"auto_pad": "SAME_LOWER", "strides": [2, 2], "output_shape": [13, 16]}),
            ((4, 3, 4, 5), {"auto_pad": "SAME_UPPER", "strides": [2, 2], "output_shape": [13, 16]}),
            ((4, 3, 4, 5), {"strides": [2, 2], "output_shape": [13, 16]}),
            ((4, 3, 1, 1), {}),
            ((4, 80, 1, 1), {}),
        ]
    ),
    case("ConvTranspose", X1, normal(4, 3, 3), normal(3), strides=[2], pads=[1, 0]),
    case("ConvTranspose", X3, normal(2, 3, 2, 3, 2), normal(3), strides=[2, 1, 3], pads=[1, 0, 1, 0, 0, 0]),
]
