"""The porting guide names everything that the original has."""

from __future__ import annotations

import re
from pathlib import Path

from tests.test_public import ORIGINAL_NAMES

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "porting-from-onnxruntime-training.md"
METHODS = {
    "ForwardBlock": "to_model_proto",
    "TrainingBlock": "requires_grad parameters to_model_proto",
    "CheckpointState": "load_checkpoint save_checkpoint parameters properties",
    "Parameter": "name data grad requires_grad",
    "Module": "__call__ train eval lazy_reset_grad get_contiguous_parameters get_parameters_size "
    "copy_buffer_to_parameters export_model_for_inferencing input_names output_names",
    "Optimizer": "step set_learning_rate get_learning_rate",
}


def section(text: str, title: str) -> str:
    found = re.search(rf"^### `{re.escape(title)}`\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section about {title}"
    return found[1]


def test_every_name_of_the_original_is_there():
    text = GUIDE.read_text(encoding="utf-8")
    missing = []
    for module, names in ORIGINAL_NAMES.items():
        listed = set(re.findall(r"`([\w.]+)`", section(text, module)))
        wanted = set(names.split()) - ({"Block"} if module == "onnxblock.blocks" else set())  # the one of onnxblock
        wanted |= {f"{owner}.{method}" for owner in wanted & METHODS.keys() for method in METHODS[owner].split()}
        missing += [f"{module}: {name}" for name in sorted(wanted - listed) if not _covered(name, listed)]
    assert missing == []


def _covered(name: str, listed: set[str]) -> bool:
    """A class is named by its methods."""
    return any(entry.startswith(f"{name}.") for entry in listed)
