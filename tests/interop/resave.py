"""Checkpoints through the original: ``python resave.py FOLDER``, in the original's environment.

Each ``<name>.ckpt`` in the folder is loaded; what its parameters hold goes to ``<name>.npz``, and the state is saved
again as ``<name>.saved``.  What cannot be loaded leaves its message in ``<name>.refused``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from loop import original_api


def main(folder: Path) -> None:
    api = original_api()
    for path in sorted(folder.glob("*.ckpt")):
        try:
            state = api.CheckpointState.load_checkpoint(str(path))
        except RuntimeError as error:
            path.with_suffix(".refused").write_text(str(error), encoding="utf-8")
            continue
        held = {name: np.array(parameter.data) for name, parameter in state.parameters}
        trained = [name for name, parameter in state.parameters if parameter.requires_grad]
        np.savez(path.with_suffix(".npz"), trained=np.array(trained, dtype="U64"), **held)
        api.CheckpointState.save_checkpoint(state, str(path.with_suffix(".saved")), include_optimizer_state=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
