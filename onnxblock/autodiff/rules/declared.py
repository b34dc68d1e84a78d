"""Functions of our own domain: the backward pass is the one that came with the forward pass."""

from __future__ import annotations

from onnx import helper

from ...graph.arithmetic import zeros_like
from ...graph.inlining import inlined
from ...graph.value import Value
from ...names import OWN_DOMAIN, backward_function
from ..registry import ANY, RuleResult, gradient, no_gradient
from ..rule import RuleContext

no_gradient("StopGradient", domain=OWN_DOMAIN, reason="stopping the gradient is what it is for")


@gradient(ANY, domain=OWN_DOMAIN)
def declared(g: RuleContext) -> RuleResult:
    """What the backward function makes of inputs, outputs and cotangents: its output ``gradient<k>`` is for input k."""
    name = backward_function(g.node.op_type)
    function = next(f for f in g.graph.model.functions if (f.domain, f.name) == (OWN_DOMAIN, name))
    cotangents = [g.grad(k) or zeros_like(y) for k, y in enumerate(g.outputs)]
    made = {formal: g.graph.unique(formal) for formal in function.output}
    call = helper.make_node(
        name, [*g.node.input, *g.node.output, *cotangents], list(made.values()), g.graph.unique(name), domain=OWN_DOMAIN
    )
    g.graph.proto.node.extend(inlined(call, function))
    g.graph.sync()
    found = {formal: Value(name, g.graph) for formal, name in made.items()}
    return [found.get(f"gradient{k}") for k in range(len(g.node.input))]
