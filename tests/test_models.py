"""Every family once or twice against PyTorch; ``tests/slow`` has the whole matrix.  First, the models themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")

from onnx import numpy_helper  # noqa: E402

from tests.models import ALL, FAMILIES, example, oracle  # noqa: E402
from tests.models.compare import Case, compare  # noqa: E402
from tests.models.export import export  # noqa: E402


def run(model, inputs):
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], inputs, strict=True)))[0]


@pytest.mark.parametrize("family", ALL)
def test_exports_compute_what_the_module_does(family):
    made = example(family)
    model = export(made.module, made.inputs, mode="train", dynamic=True)
    more = example(family, batch=made.inputs[0].shape[0] + 1)
    output = run(model, [x.numpy() for x in more.inputs])
    np.testing.assert_allclose(output, oracle.torch_gradients(made.module, more).output, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ALL)
def test_examples_are_the_same_each_time(family):
    first, again, other = example(family), example(family), example(family, batch=3)
    parameters = [dict(e.module.state_dict()) for e in (first, again, other)]
    assert all(torch.equal(parameters[0][n], p[n]) for p in parameters for n in p)
    assert all(map(torch.equal, first.inputs, again.inputs))
    assert torch.equal(first.target, again.target)
    assert other.inputs[0].shape[0] == 3


@pytest.mark.parametrize("family", ALL)
def test_no_parameter_is_without_gradient(family):
    made = example(family)
    gradients = oracle.torch_gradients(made.module.train(), made).gradients
    assert gradients.keys() == dict(made.module.named_parameters(remove_duplicate=False)).keys()
    assert max(np.abs(g).max() for g in gradients.values()) > 0.1


# Untied, joined and transposed weights: what the exporter makes of them in evaluation mode.
@pytest.mark.parametrize("family", ["gpt2", "lstm", "llama"])
def test_expected_gradients_are_those_of_the_initializers(family):
    """Moving all initializers along a random direction changes the loss as the gradients say."""
    made = example(family)
    model = export(made.module, made.inputs, mode="eval")
    names = {i.name for i in model.graph.initializer}
    assert not names <= set(dict(made.module.named_parameters()))
    theirs = oracle.expected(model, made, "eval")
    generator = np.random.default_rng(0)
    direction = {name: generator.standard_normal(g.shape) for name, g in theirs.gradients.items()}

    def loss(step: float) -> float:
        moved = type(model)()
        moved.CopyFrom(model)
        for tensor in moved.graph.initializer:
            if tensor.name in direction:
                value = numpy_helper.to_array(tensor) + step * direction[tensor.name]
                tensor.CopyFrom(numpy_helper.from_array(value.astype(np.float32), tensor.name))
        output = torch.from_numpy(run(moved, [x.numpy() for x in made.inputs])).double()
        return oracle.LOSSES[made.loss](output, made.target).item()

    step = 1e-3
    slope = (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step)
    assert abs(loss(0) - theirs.loss) < 1e-5
    told = sum(float((g * direction[name]).sum()) for name, g in theirs.gradients.items())
    assert slope == pytest.approx(told, rel=5e-3, abs=2e-3)


@pytest.mark.parametrize("family", ["resnet", "mobilenet", "unet-transpose"])
def test_folding_batch_norms_keeps_the_function(family):
    made = example(family)
    module = made.module.double().eval()
    inputs = [x.double() for x in made.inputs]
    output = module(*inputs)
    folded = oracle.fold_batch_norms(module)
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in folded.modules())
    torch.testing.assert_close(folded(*inputs), output)


def test_errors_measures_against_the_largest_gradient():
    theirs = {"weight": np.array([2.0, -4.0]), "bias": np.array([0.0, 1e-12])}
    assert oracle.errors(theirs, theirs) == {"weight": 0, "bias": 0}
    ours = {"weight": np.array([2.0, -4.1]), "bias": np.array([2e-4, 0.0])}
    assert oracle.errors(ours, theirs) == pytest.approx({"bias": 0.05, "weight": 0.025})
    with pytest.raises(AssertionError, match="different parameters"):
        oracle.errors({"weight": theirs["weight"]}, theirs)
    with pytest.raises(AssertionError, match="shape"):
        oracle.errors({**theirs, "bias": np.zeros(1)}, theirs)


QUICK = [
    *(Case(family, "torchscript", 17, "train", dynamic=True) for family in FAMILIES),
    *(Case(family, "torchscript", 20, "eval") for family in ("resnet", "lstm", "gpt2", "llama")),
    *(Case(family, "dynamo", 20, "train") for family in ("mobilenet", "unet-resize", "vit")),
    Case("llama-sdpa", "dynamo", 23, "eval", dynamic=True),
]


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_gradients_are_pytorchs(case, tmp_path):
    compare(case, tmp_path)


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.float64])
def test_gradients_are_pytorchs_in_float64(family, tmp_path):
    compare(replace(Case(family, "torchscript", 17, "train"), dtype=torch.float64), tmp_path)
