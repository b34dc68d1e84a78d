"""A session whose memory is bound once: from step to step only the user's arrays change."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from artifacts.manifest import Input, Manifest, Output, StatePair
from onnxblock.checkpoint import ElementType
from onnxblock.errors import FeedError, OnnxBlockError, run_failure

from .feeds import STRING, UserInput, checked, unwrap, wrap
from .session import runtime, silent_run_options
from .storage import Array

_CPU = "cpu"
_OUT_OF_RANGE = re.compile(r"out of (range|data bounds|bounds)|invalid ind", re.IGNORECASE)
"""How onnxruntime's kernels say that an index is none of the elements."""


class BoundModel:
    """A model with its parameters and states bound to arrays.

    Each array is bound in place, so a run reads and writes the memory that the state shows.  A state whose output
    must not be bound onto its own input gets a second buffer: either the result is copied back, where others hold the
    array, or the two buffers take turns.
    """

    def __init__(self, session: Any, path: str | os.PathLike[str], manifest: Manifest) -> None:
        self.path = os.fspath(path)
        self.manifest = manifest
        self.user_inputs = [UserInput(port) for port in manifest.inputs_of("user")]
        self.user_outputs = [port.name for port in manifest.outputs_of("loss", "user")]
        # a result that is an input too would be the very memory of that input, which the next step changes
        self._copied = {port.name for port in manifest.inputs}.intersection(self.user_outputs)
        self._session = session
        self._binding = session.io_binding()
        self._run_options = silent_run_options()
        self._ortvalue_type = runtime().OrtValue
        self._lock = threading.Lock()  # two runs with one binding at once would read freed memory
        self._bound: dict[str, tuple[Array, Any]] = {}
        self._targets: dict[str, Array] = {}
        self._written: dict[int, int] = {}
        self._written_bounds: Array | None = None
        self._after: list[Callable[[], None]] = []
        self._pairs = {pair.input: pair for pair in manifest.state}
        self._moves_statistics = manifest.kind != "eval" and bool(manifest.inputs_of("statistic"))
        # I/O binding takes no strings
        self._takes_strings = any(port.type_name == STRING for port in self.user_inputs)
        for name in self.user_outputs:  # first, so that the run's results start with them
            self._binding.bind_output(name)

    def bind(self, name: str, array: Array, of: ElementType, replace: Callable[[Array], None] | None = None) -> None:
        """Bind an input to the memory of ``array`` for all runs to come; a state's next value goes there too.

        ``replace`` is called after a run with the array that then holds the state, when two buffers take turns;
        without it the state stays in ``array``.
        """
        self._bind_input(name, array, of)
        pair = self._pairs.get(name)
        if pair is None:
            return
        if pair.in_place and not self._takes_strings:
            self.bind_output(pair.output, array, of)
            return
        spare = np.empty_like(array)
        self.bind_output(pair.output, spare, of)
        if replace is None:
            self._after.append(lambda: np.copyto(array, spare))
        else:
            self._after.append(self._taking_turns(pair, array, spare, of, replace))

    def bind_output(self, name: str, array: Array, of: ElementType) -> None:
        """Bind an output to the memory of ``array`` for all runs to come."""
        self._targets[name] = array
        start = array.ctypes.data
        if self._written.get(start) != start + array.nbytes:
            self._written[start] = start + array.nbytes
            self._written_bounds = None
        self._binding.bind_ortvalue_output(name, wrap(array, of))

    def _bind_input(self, name: str, array: Array, of: ElementType) -> None:
        value = wrap(array, of)
        self._bound[name] = (array, value)
        self._binding.bind_ortvalue_input(name, value)

    def _taking_turns(
        self, pair: StatePair, array: Array, spare: Array, of: ElementType, replace: Callable[[Array], None]
    ) -> Callable[[], None]:
        current, following = array, spare

        def turn() -> None:
            nonlocal current, following
            current, following = following, current
            self._bind_input(pair.input, current, of)
            self.bind_output(pair.output, following, of)
            replace(current)

        return turn

    def run(self, values: Sequence[Any] = ()) -> Any:
        """Run with the user's arrays or OrtValues.

        Returns:
            One result, or a tuple of several: arrays, or OrtValues when only OrtValues were given.

        Raises:
            FeedError: the values do not fit the inputs.
            OnnxBlockError: the run failed.
        """
        with self._lock:
            return self._run(values)

    def _run(self, values: Sequence[Any]) -> Any:
        wrapped = [isinstance(value, self._ortvalue_type) for value in values]
        ready = checked(self.user_inputs, values, wrapped)
        if self._moves_statistics and ready and all(0 in _shape_of(value) for value in ready):
            raise FeedError(
                "the batch is empty: batch normalization would turn its running statistics into nan",
                "Leave empty batches out.",
            )
        if self._takes_strings:
            return self._run_unbound(ready)
        for port, value in zip(self.user_inputs, ready, strict=True):
            assert port.element_type is not None
            self._binding.bind_ortvalue_input(port.name, self._readable(value, port.element_type))
        for name in self.user_outputs:
            self._binding.bind_output(name)
        try:
            self._session.run_with_iobinding(self._binding, self._run_options)
        except Exception as error:
            raise self._failure(error, ready) from error
        take = self._ortvalue if wrapped and all(wrapped) else self._array
        results = self._binding.get_outputs_as_ortvaluevector()
        taken = [take(*pair) for pair in zip(self.user_outputs, results)]  # the next values of states come after
        for action in self._after:
            action()
        return _one_or_all(taken)

    def _readable(self, value: Any, of: ElementType) -> Any:
        """An OrtValue with the content of ``value``: in the same memory, unless the run writes there."""
        is_array = isinstance(value, np.ndarray)
        if not is_array and value.device_name().lower() != _CPU:
            return value
        start, stop = (value.ctypes.data, value.nbytes) if is_array else (value.data_ptr(), of.nbytes(value.shape()))
        stop += start
        if self._written_bounds is None:
            self._written_bounds = np.array([list(self._written), list(self._written.values())], np.uint64)
        starts, stops = self._written_bounds
        if ((starts < stop) & (start < stops)).any():
            return wrap((value if is_array else unwrap(value)).copy(), of)
        return wrap(value, of) if is_array else value

    def _ortvalue(self, name: str, result: Any) -> Any:
        if name in self._copied:
            return self._ortvalue_type.ortvalue_from_numpy(self._array(name, result))
        return self._ortvalue_type(result)

    def _array(self, name: str, result: Any) -> Array:
        array = unwrap(result)
        return array.copy() if name in self._copied else array

    def _run_unbound(self, values: Sequence[Any]) -> Any:
        feeds = {name: array for name, (array, _) in self._bound.items()}
        feeds |= {port.name: value for port, value in zip(self.user_inputs, values, strict=True)}
        try:
            results = self._session.run([*self.user_outputs, *self._targets], feeds, self._run_options)
        except Exception as error:
            raise self._failure(error, values) from error
        count = len(self.user_outputs)
        for target, result in zip(self._targets.values(), results[count:], strict=True):
            np.copyto(target, result)
        for action in self._after:
            action()
        return _one_or_all(results[:count])

    def _failure(self, error: Exception, values: Sequence[Any]) -> OnnxBlockError:
        fed = ", ".join(
            f"{port.name} {list(_shape_of(value))}" for port, value in zip(self.user_inputs, values, strict=True)
        )
        remedies = []
        if _OUT_OF_RANGE.search(str(error)) and (ranges := ", ".join(self._ranges(values))):
            remedies.append(
                f"A label or an index is out of range: {ranges}. Labels that do not count need ignore_index in the"
                " loss."
            )
        elif fed:
            remedies.append(f"Check labels and indices, and that the sizes of the inputs agree with each other: {fed}.")
        if self.manifest.outputs_of("loss") and "loss" in self.manifest.settings:
            remedies.append(
                f"Check that the loss {self.manifest.settings['loss']} is one number here, or reduce it: loss.mean() "
                "or loss.sum(), or reduction='mean' in the loss block."
            )
        return OnnxBlockError(f"running {self.path} failed: {run_failure(error)}", "\n  ".join(remedies) or None)

    def _ranges(self, values: Sequence[Any]) -> Iterator[str]:
        """The smallest and the largest number of each input of integers."""
        for port, value in zip(self.user_inputs, values, strict=True):
            array = value if isinstance(value, np.ndarray) else unwrap(value)
            if array.dtype.kind in "iu" and array.size:
                yield f"{port.name} holds {array.min()} to {array.max()}"


def _shape_of(value: Any) -> Sequence[int]:
    """The shape of an array or an OrtValue."""
    shape: Sequence[int] = value.shape if isinstance(value, np.ndarray) else value.shape()
    return shape


def single(port: Input | Output | None, dtype: type[np.generic]) -> Array:
    """An array of one element in the shape of ``port``, [1] if that is unknown."""
    shape = None if port is None else port.shape
    return np.zeros((1,) if shape is None else (1,) * len(shape), dtype)


def part_of(array: Array, port: Input) -> Array:
    """What ``port`` takes of the array that it belongs to, in the same memory: all of it, or a slice.

    Raises:
        OnnxBlockError: the array is not contiguous, or has no such slice.
    """
    if port.offset is None:
        return array
    stop = port.offset + (port.size or 0)
    if not array.flags.c_contiguous or stop > array.size:
        raise OnnxBlockError(
            f"{port.name!r} cannot be bound to elements {port.offset} to {stop} of an array of {array.size}"
            + ("" if array.flags.c_contiguous else ", which is not contiguous"),
            "Generate the artifacts again, and load the checkpoint that belongs to them.",
        )
    shape = tuple(d for d in port.shape or () if isinstance(d, int))  # all of them: a slice has fixed sizes
    part: Array = array.reshape(-1)[port.offset : stop].reshape(shape)
    return part


def _one_or_all(results: list[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)
