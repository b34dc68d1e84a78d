"""Groups of nodes that exporters write for one operator, and whose gradient is better than that of its parts.

Their parts each leave results for the gradient and get a pass over the whole tensor.  The rule of the operator reads
its input and output alone, so that fewer values live until the gradient is computed, and onnxruntime can fuse the
forward nodes, which nobody else reads.  Where the group keeps NaN from its result, the gradient of its parts would be
NaN all the same, as 0 * NaN is; so it would where the slopes of two parts are infinite and zero.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from onnx import NodeProto, TensorProto, helper

from .. import names
from ..graph.dependencies import reads
from ..graph.graph import Graph
from ..graph.value import Value
from .squares import Squares

_CUBIC = 0.044715
_RELATIVE_ERROR = 1e-5
"""How much a constant may differ, above the rounding of 16-bit types."""
_ROUNDING: dict[int, float] = {TensorProto.FLOAT16: 2**-11, TensorProto.BFLOAT16: 2**-8}


def composites(
    graph: Graph, nodes: Iterable[NodeProto], live: set[str], visible: Iterable[str]
) -> dict[str, NodeProto]:
    """The operators that groups of ``nodes`` are, by the output of their last node.

    What a group computes on the way is read by nobody else and not among ``visible``, and its constants are not among
    the ``live`` values, whose gradients are asked for.
    """
    reader = _Reader(graph, nodes, live, visible)
    found = {}
    for node in reader.live("Mul", "Where"):
        operator = _gelu(reader, node) or _swish(reader, node) or _masked_softmax(reader, node)
        if operator is None:
            continue
        x, y = graph.value(operator.input[0]), graph.value(operator.output[0])
        if y.rank is not None and x.type == y.type:
            found[node.output[0]] = operator
    squares = Squares(reader.inside, reader.number, live)
    for node in reader.live("Sqrt", "Pow", "Atan"):
        operator = _root(reader, node, squares) or _angle(reader, node)
        if operator is not None:
            found[node.output[0]] = operator
    return found


@dataclass(frozen=True)
class _Product:
    """A number times values, which are in no particular order."""

    scale: float
    values: list[str]
    rounding: float = 0.0

    def has_scale(self, scale: float) -> bool:
        return abs(self.scale - scale) <= (_RELATIVE_ERROR + self.rounding) * scale

    def equals(self, scale: float, values: list[str]) -> bool:
        return self.has_scale(scale) and sorted(self.values) == sorted(values)


def _gelu(reader: _Reader, last: NodeProto) -> NodeProto | None:
    """x Φ(x): ½ x (1 + erf(x / √2)), or ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    product = reader.product_of(last)
    if len(product.values) != 2 or not product.has_scale(0.5):
        return None
    for x, total in (product.values, product.values[::-1]):
        inner = reader.plus_one(total)
        erf, tanh = reader.only("Erf", inner), reader.only("Tanh", inner)
        if erf is not None and reader.product(erf.input[0]).equals(math.sqrt(0.5), [x]):
            return helper.make_node("Gelu", [x], last.output, last.name, approximate="none")
        if tanh is not None and _is_cubic(reader, reader.product(tanh.input[0]), x):
            return helper.make_node("Gelu", [x], last.output, last.name, approximate="tanh")
    return None


def _is_cubic(reader: _Reader, z: _Product, x: str) -> bool:
    """√(2/π) (x + 0.044715 x³), or the same with x before the parenthesis."""
    if not z.has_scale(math.sqrt(2 / math.pi)):
        return False
    if len(z.values) == 1:
        terms = reader.terms(z.values[0])
        return x in terms and any(reader.product(term).equals(_CUBIC, [x] * 3) for term in terms)
    squares = [reader.plus_one(value) for value in z.values if value != x]
    return len(z.values) == 2 and len(squares) == 1 and reader.product(squares[0]).equals(_CUBIC, [x] * 2)


def _swish(reader: _Reader, last: NodeProto) -> NodeProto | None:
    """x σ(x)."""
    product = reader.product_of(last)
    for gate in product.values:
        sigmoid = reader.only("Sigmoid", gate)
        if sigmoid is not None and product.equals(1.0, [gate, sigmoid.input[0]]):
            return helper.make_node("Swish", sigmoid.input, last.output, last.name, alpha=1.0)
    return None


def _masked_softmax(reader: _Reader, last: NodeProto) -> NodeProto | None:
    """Where(IsNaN(s), 0, s) of s = Softmax(x): zeros, and no NaN, along an axis of which all is masked with -∞.

    PyTorch's exporter writes it for attention.
    """
    if last.op_type != "Where" or reader.number(last.input[1]) != 0:
        return None
    softmax = reader.only("Softmax", last.input[2], readers=2)
    test = reader.producer(last.input[0])
    if softmax is None or test is None or test.op_type != "IsNaN" or test.input[0] != last.input[2]:
        return None
    masked = NodeProto(op_type="Softmax", input=softmax.input, output=last.output, name=last.name)
    masked.attribute.extend(softmax.attribute)
    return masked


def _root(reader: _Reader, last: NodeProto, squares: Squares) -> NodeProto | None:
    """A root of a sum of squares: a norm, a distance, a standard deviation."""
    exponent = 0.5 if last.op_type == "Sqrt" else reader.number(last.input[1]) if last.op_type == "Pow" else None
    if exponent is None or not 0 < exponent < 1 or not squares.make_up(last.input[0]):
        return None
    root = helper.make_node("RootOfSquares", last.input[:1], last.output, last.name, domain=names.OWN_DOMAIN)
    root.attribute.append(helper.make_attribute("exponent", exponent))
    return root


def _angle(reader: _Reader, last: NodeProto) -> NodeProto | None:
    """arctan(y / x), of which the angle of a point is made; x may be 0."""
    quotient = reader.only("Div", last.input[0]) if last.op_type == "Atan" else None
    if quotient is None or reader.number(quotient.input[1]):
        return None
    return helper.make_node("AtanOfQuotient", quotient.input, last.output, last.name, domain=names.OWN_DOMAIN)


class _Reader:
    """Reads values as products and sums of others, as far as nobody else needs what is between."""

    def __init__(self, graph: Graph, nodes: Iterable[NodeProto], live: set[str], visible: Iterable[str]) -> None:
        self._graph, self._live = graph, live
        self._producers = {node.output[0]: node for node in nodes if not node.domain and len(node.output) == 1}
        self._uses = Counter(name for node in graph.proto.node for name in reads(node))
        self._visible = {*visible, *(value.name for value in graph.proto.output)}

    def live(self, *op_types: str) -> list[NodeProto]:
        """The nodes of these types that a gradient passes."""
        return [n for name, n in self._producers.items() if n.op_type in op_types and name in self._live]

    def only(self, op_type: str, name: str | None, readers: int = 1) -> NodeProto | None:
        """The node of this type that computes ``name`` for so many readers."""
        node = self._inner(name, readers)
        return node if node is not None and node.op_type == op_type else None

    def producer(self, name: str) -> NodeProto | None:
        """The node that computes ``name``, whoever reads it."""
        return self._graph.producer(name)

    def inside(self, name: str) -> NodeProto | None:
        """The node that computes ``name``, whoever reads it; None where the value is asked for."""
        return None if name in self._visible else self._producers.get(name)

    def _inner(self, name: str | None, readers: int = 1) -> NodeProto | None:
        if name is None or self._uses[name] != readers or name in self._visible:
            return None
        return self._producers.get(name)

    def product(self, name: str | None) -> _Product:
        """``name`` as a product; an empty one where others read it too."""
        node = self._inner(name)
        return _Product(0.0, []) if node is None else self.product_of(node)

    def product_of(self, node: NodeProto) -> _Product:
        """The result of ``node`` as a product, of itself alone where it is none."""
        scale, values, parts = 1.0, [], self._parts(node) or [(node.output[0], 1)]
        while parts:
            name, power = parts.pop()
            number, inner = self.number(name), self._inner(name)
            further = None if inner is None else self._parts(inner)
            if number is not None:
                scale *= number**power
            elif further is not None:
                parts += further
            else:
                values.append(name)
        dtype = self._graph.value(node.output[0]).dtype
        return _Product(scale, values, _ROUNDING.get(dtype or 0, 0.0))

    def _parts(self, node: NodeProto) -> list[tuple[str, int]] | None:
        """The factors of a result, each with its exponent; None where it is no product."""
        if node.op_type == "Mul":
            return [(name, 1) for name in node.input]
        number = self.number(node.input[1]) if node.op_type in ("Div", "Pow") else None
        if node.op_type == "Div" and number:
            return [(node.input[0], 1), (node.input[1], -1)]
        if node.op_type == "Pow" and number in (2, 3):
            return [(node.input[0], 1)] * int(number)
        return None

    def terms(self, name: str) -> list[str]:
        """``name`` as a sum of two values for one reader; nothing where it is none."""
        node = self.only("Add", name)
        return [] if node is None else list(node.input)

    def plus_one(self, name: str) -> str | None:
        """What ``name`` is, less one, where it is a value plus one for one reader."""
        terms = self.terms(name)
        rest = [term for term in terms if self.number(term) != 1]
        return rest[0] if len(terms) == 2 and len(rest) == 1 else None

    def number(self, name: str) -> float | None:
        """The number that a constant of one element is."""
        array = None if name in self._live else self._graph.constant_value(Value(name, self._graph))
        return float(array.item()) if array is not None and array.size == 1 else None
