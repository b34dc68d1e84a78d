"""What the classes of ``api`` do, told by one program for two runtimes: ``python semantics.py JOB.json``.

The names used are those of the original; where ours takes more, or other classes, that is left out.  It needs NumPy
only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from loop import original_api

CHANGED = "b1"
"""A trained parameter that is written to."""


def raises(action: Callable[[], Any], kind: type[Exception] = Exception) -> bool:
    """Whether ``action`` raises an exception of this kind."""
    try:
        action()
    except kind:
        return True
    return False


def set_attribute(owner: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(owner, name, value)


class Observer:
    """Opens the files of a job and notes what they do."""

    def __init__(self, api: Any, job: dict[str, Any]) -> None:
        self.api, self.job = api, job
        self.seen: dict[str, Any] = {}
        with np.load(job["data"]) as arrays:
            self.batches = list(zip(*(arrays[f"input{k}"] for k in range(len(arrays))), strict=True))

    def open(self, checkpoint: str = "checkpoint") -> tuple[Any, Any, Any]:
        state = self.api.CheckpointState.load_checkpoint(self.job[checkpoint])
        module = self.api.Module(self.job["training_model"], state, self.job["eval_model"])
        return state, module, self.api.Optimizer(self.job["optimizer_model"], module)

    def gradients(self, state: Any) -> np.ndarray:
        """All gradients in one array."""
        return np.concatenate([np.array(p.grad).ravel() for _, p in sorted(state.parameters) if p.requires_grad])

    def properties(self) -> None:
        state = self.api.CheckpointState.load_checkpoint(self.job["checkpoint"])
        given = {"true": True, "int": 7, "int64": np.int64(-3), "float": 0.1, "text": "grüße"}
        for name, value in given.items():
            state.properties[name] = value
        state.properties["int"] = 8
        self.seen["types of properties"] = {name: type(state.properties[name]).__name__ for name in given}
        self.seen["properties"] = {name: state.properties[name] for name in given}
        self.seen["a property that is not there"] = raises(lambda: state.properties["zz"], KeyError)
        for value in (None, [1]):
            self.seen[f"property {value}"] = raises(lambda v=value: state.properties.__setitem__("no", v), TypeError)
        self.seen["refused: an integer of 65 bits"] = raises(
            lambda: state.properties.__setitem__("beyond", 2**63), TypeError
        )
        state.properties["float32"] = np.float32(1)
        self.seen["a float32"] = type(state.properties["float32"]).__name__
        self.seen["in"] = ["int" in state.properties, "zz" in state.properties]
        self.api.CheckpointState.save_checkpoint(state, self.job["saved"])
        again = self.api.CheckpointState.load_checkpoint(self.job["saved"]).properties
        self.seen["properties saved"] = {name: again[name] for name in given}

    def parameters(self) -> None:
        state = self.api.CheckpointState.load_checkpoint(self.job["checkpoint"])
        self.seen["names"] = sorted(name for name, _ in state.parameters)
        self.seen["count"] = len(state.parameters)
        self.seen["in parameters"] = [CHANGED in state.parameters, "nope" in state.parameters]
        self.seen["no such parameter"] = raises(lambda: state.parameters["nope"], KeyError)
        self.seen["gradient before there is a module"] = state.parameters[CHANGED].grad is None
        state, module, optimizer = self.open()
        self.seen["trained"] = {name: p.requires_grad for name, p in sorted(state.parameters)}
        self.seen["gradient of a frozen one"] = state.parameters[self.job["frozen"]].grad is None
        self.seen["gradients at first"] = self.gradients(state)
        parameter = state.parameters[CHANGED]
        self.seen["name"] = parameter.name
        data, before = parameter.data, parameter.data.copy()
        self.seen["one memory"] = [
            np.shares_memory(data, state.parameters[CHANGED].data),
            np.shares_memory(parameter.grad, state.parameters[CHANGED].grad),
            data.flags.writeable,
        ]
        wrong = [np.zeros(3, np.float32), before.astype(np.float64)]
        self.seen["data that does not fit"] = [raises(set_attribute(parameter, "data", x)) for x in wrong]
        self.seen["gradient that does not fit"] = [raises(set_attribute(parameter, "grad", x)) for x in wrong]
        plain = module(*self.batches[0])
        optimizer.step()
        self.seen["an array obtained earlier shows the step"] = not np.array_equal(data, before)
        parameter.data = before + 1
        self.seen["assigned"] = data.copy()
        data -= 1  # writing into the array changes the parameter
        module.lazy_reset_grad()
        self.seen["losses with another parameter"] = [plain, module(*self.batches[0])]
        parameter.grad[...] = 1
        optimizer.step()
        self.seen["after a step with a gradient that was written"] = data.copy()
        state.parameters[CHANGED] = before
        self.seen["assigned by name"] = [
            data.copy(),
            raises(lambda: state.parameters.__setitem__("nope", before), KeyError),
            raises(lambda: state.parameters.__setitem__(CHANGED, wrong[0])),
        ]

    def gradient_buffers(self) -> None:
        state, module, optimizer = self.open()
        losses = [module(*self.batches[0])]
        steps = [self.gradients(state)]
        losses.append(module(*self.batches[1]))
        steps.append(self.gradients(state))  # the sum
        module.lazy_reset_grad()
        steps.append(self.gradients(state))  # still the sum
        optimizer.step()  # applies it all the same
        applied = state.parameters[CHANGED].data.copy()
        module.eval()
        losses.append(module(*self.batches[2]))  # does not use the request up
        steps.append(self.gradients(state))
        module.train()
        for k in (2, 3):  # overwritten once, then added to
            losses.append(module(*self.batches[k]))
            steps.append(self.gradients(state))
        optimizer.step()
        steps.append(self.gradients(state))  # a step leaves them
        self.seen |= {"losses": losses, "gradients": steps, "applied": applied}

    def calls(self) -> None:
        _, module, optimizer = self.open()
        x, labels = self.batches[0]
        self.seen["names of inputs and outputs"] = [module.input_names(), module.output_names()]
        loss = module(x, labels)
        self.seen["what a call gives"] = [type(loss).__name__, str(loss.dtype), list(loss.shape)]
        self.seen["a list beside an array"] = module(x.tolist(), labels)
        self.seen["modes"] = [module.training, module.eval() is module, module.training]
        self.seen["names in evaluation"] = [module.input_names(), module.output_names()]
        self.seen["modes again"] = [module.train() is module, module.training, module.train(False).training]
        module.train()
        for what, given in {
            "another type": (x.astype(np.float64), labels),
            "too few": (x,),
            "too many": (x, labels, labels),
            "another size": (x[:, :3], labels),
        }.items():
            self.seen[what] = raises(lambda g=given: module(*g))
        from onnxruntime import OrtValue

        for mode in (True, False):
            result = module.train(mode)(*map(OrtValue.ortvalue_from_numpy, (x, labels)))
            self.seen[f"OrtValues, {mode}"] = [isinstance(result, OrtValue), result.numpy()]
        self.seen["rates"] = [optimizer.get_learning_rate()]
        optimizer.set_learning_rate(0.25)
        self.seen["rates"].append(optimizer.get_learning_rate())
        api, job = self.api, self.job
        module = api.Module(job["training_model"], api.CheckpointState.load_checkpoint(job["checkpoint"]))
        self.seen["export without an evaluation model"] = raises(
            lambda: module.export_model_for_inferencing(job["exported"], [job["value"]])
        )

    def one_array(self) -> None:
        state, module, _ = self.open()
        self.seen["sizes"] = [
            module.get_parameters_size(),
            module.get_parameters_size(False),
            module.get_parameters_size(trainable_only=True),
        ]
        everything = module.get_contiguous_parameters()
        trained = module.get_contiguous_parameters(trainable_only=True)
        self.seen["arrays"] = [everything.numpy().copy(), trained.numpy().copy()]
        state.parameters[CHANGED].data = state.parameters[CHANGED].data + 1
        self.seen["a copy"] = everything.numpy().copy()
        module.copy_buffer_to_parameters(trained)
        self.seen["back"] = [state.parameters[CHANGED].data.copy()]
        state.parameters[CHANGED].data = state.parameters[CHANGED].data + 1
        module.copy_buffer_to_parameters(everything, trainable_only=False)
        self.seen["back"].append(state.parameters[CHANGED].data.copy())
        self.seen["another number of elements"] = [
            raises(lambda: module.copy_buffer_to_parameters(everything)),
            raises(lambda: module.copy_buffer_to_parameters(trained, trainable_only=False)),
        ]

    def schedule(self) -> None:
        _, module, optimizer = self.open()
        scheduler = self.api.LinearLRScheduler(optimizer, *self.job["schedule"], 0.2)
        rates = [optimizer.get_learning_rate()]
        scheduler.step()  # counts optimizer steps, so this changes nothing
        rates.append(optimizer.get_learning_rate())
        for _ in range(8):
            module(*self.batches[0])
            optimizer.step()
            scheduler.step()
            rates.append(optimizer.get_learning_rate())
        self.seen["schedule"] = rates

    def nominal(self) -> None:
        _, module, _ = self.open()
        everything = module.get_contiguous_parameters()
        state, module, optimizer = self.open("nominal")
        self.seen["nominal: names"] = [len(state.parameters), CHANGED in state.parameters]
        self.seen["nominal: sizes"] = [module.get_parameters_size(), module.get_parameters_size(False)]
        self.seen["nominal: refused"] = [
            raises(lambda: state.parameters[CHANGED].data),
            raises(lambda: module(*self.batches[0])),
            raises(lambda: module.eval()(*self.batches[0])),
            raises(optimizer.step),
            raises(module.get_contiguous_parameters),
        ]
        module.train()
        module.copy_buffer_to_parameters(everything, trainable_only=False)
        losses = []
        for batch in self.batches[:4]:
            losses.append(module(*batch))
            optimizer.step()
            module.lazy_reset_grad()
        self.seen["nominal: losses"] = losses

    def export(self) -> None:
        state, module, _ = self.open()
        state.parameters[CHANGED].data = state.parameters[CHANGED].data + 1
        module.export_model_for_inferencing(self.job["exported"], [self.job["value"]])
        wrong = [["nope"], []]
        self.seen["names to export"] = [
            raises(lambda names=names: module.export_model_for_inferencing(self.job["exported"] + "2", names))
            for names in wrong
        ]

    def everything(self) -> dict[str, Any]:
        for part in (
            self.properties,
            self.parameters,
            self.gradient_buffers,
            self.calls,
            self.one_array,
            self.schedule,
            self.nominal,
            self.export,
        ):
            part()
        return self.seen


def plain(value: Any) -> Any:
    """``value`` as JSON has it."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


if __name__ == "__main__":
    path = Path(sys.argv[1])
    seen = Observer(original_api(), json.loads(path.read_text(encoding="utf-8"))).everything()
    path.with_suffix(".seen").write_text(json.dumps(plain(seen)), encoding="utf-8")
