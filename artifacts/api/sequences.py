"""Optimizer models that take all parameters, gradients and moments as sequences of tensors.

I/O binding cannot make sequences, so each step feeds lists and copies the results back: the form exists for files that
train on onnxruntime-training too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from artifacts.manifest import Manifest
from onnxblock.errors import OnnxBlockError, run_failure

from .session import silent_run_options
from .storage import Array


class SequenceModel:
    """A model whose state inputs are sequences.

    ``sequences`` gives the arrays of each such input, ``scalars`` the arrays of the others.
    """

    def __init__(
        self,
        session: Any,
        path: str,
        manifest: Manifest,
        sequences: Mapping[str, Sequence[Array]],
        scalars: dict[str, Array],
    ) -> None:
        self._session = session
        self._path = path
        self._feeds: dict[str, Any] = {name: list(arrays) for name, arrays in sequences.items()} | scalars
        self._targets = [(pair.output, sequences[pair.input]) for pair in manifest.state]
        self._flags = [port.name for port in manifest.outputs_of("updated")]
        self._run_options = silent_run_options()

    def run(self) -> bool:
        """Do one step and copy the results into the arrays; tells whether the model says that it did.

        Raises:
            OnnxBlockError: the run failed.
        """
        wanted = [*self._flags, *(output for output, _ in self._targets)]
        try:
            results = self._session.run(wanted, self._feeds, self._run_options)
        except Exception as error:
            raise OnnxBlockError(f"running {self._path} failed: {run_failure(error)}") from error
        count = len(self._flags)
        if not all(np.all(flag) for flag in results[:count]):
            return False
        for (_, arrays), updated in zip(self._targets, results[count:], strict=True):
            for array, value in zip(arrays, updated, strict=True):
                np.copyto(array, value)
        return True
