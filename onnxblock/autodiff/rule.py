"""What a gradient rule sees of one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..graph.arithmetic import zeros_like
from ..graph.node import NodeContext
from ..graph.value import Value


@dataclass(frozen=True)
class RuleContext(NodeContext):
    """A forward node, its values, and the cotangent of each of its outputs.

    ``grads[k]`` is the cotangent of output k, None where nothing depends on it; at least one is there.  Cotangents have
    the element type and shape of their value.  ``captured`` names the values outside that bodies of the node read and
    whose gradient is needed.
    """

    grads: Sequence[Value | None]
    wanted: Sequence[bool]
    captured: Sequence[str] = ()

    @property
    def dy(self) -> Value:
        """The cotangent of the first output; zeros where only other outputs have one."""
        return self.grads[0] if self.grads[0] is not None else zeros_like(self.y)

    def grad(self, k: int) -> Value | None:
        """The cotangent of the k-th output, or None where it is absent or unused."""
        return self.grads[k] if k < len(self.grads) else None

    def wants(self, k: int) -> bool:
        """Whether the gradient of the k-th input is needed: build nothing costly for nobody."""
        return k < len(self.wanted) and self.wanted[k]

    def output(self, k: int) -> Value:
        """The k-th output, added to the forward node where it is optional and left out."""
        return self.graph.add_optional_output(self.node, k)
