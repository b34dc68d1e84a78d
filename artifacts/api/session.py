"""Opening models with onnxruntime, on the device that is asked for."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from onnxblock.errors import ArgumentError, InvalidModelError, RuntimeUnavailableError, did_you_mean, refusal
from onnxblock.files import as_path
from onnxblock.left_in_file import with_weights_left
from onnxblock.wire import WireError

from .kernels import missing_kernel

Provider = str | tuple[str, dict[str, Any]]
"""An execution provider of onnxruntime, with options if any."""

_FATAL = 4
_STOP_SPINNING = "session.force_spinning_stop"
_GRAPH_NUMBER = "gpu_graph_id"
_CPU = "CPUExecutionProvider"
_PROVIDERS = {
    "cpu": _CPU,
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "dml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "cann": "CANNExecutionProvider",
}
_FAULTY = {"MatmulTransposeFusion": "MatmulTransposeFusion", "_new_reshape": "ReshapeFusion"}
"""Signs in messages, and the optimizations they come from: releases up to 1.23 fuse float64 products into an operator
that they have in float32 only, and join a Reshape with slices that others read."""
_LARGE_FILE = 2**24
"""Bytes: from this size on weights may stay in the file, and reading it leaves free memory that is worth returning."""
_FOLDER = "session.model_external_initializers_file_folder_path"
_FOLDER_SINCE = (1, 21)
_LEFT_IN_FILE = 2**16
"""Bytes: smaller weights are read."""
_WITH_DEVICE_ID = {"cuda", "tensorrt", "rocm", "migraphx", "dml", "cann"}


def runtime() -> ModuleType:
    """The package onnxruntime.

    Raises:
        RuntimeUnavailableError: it is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise RuntimeUnavailableError(
            f"onnxruntime cannot be imported: {error}", "Install it: pip install onnxruntime."
        ) from error
    return onnxruntime  # type: ignore[no-any-return]


def providers_for(device: str) -> list[Provider]:
    """The execution providers for a device such as ``cpu``, ``cuda`` or ``cuda:1``; the CPU runs what they cannot.

    Raises:
        ArgumentError: the device is no text.
        RuntimeUnavailableError: the name is unknown, or the installed onnxruntime lacks its provider.
    """
    if not isinstance(device, str):
        raise ArgumentError(f"the device is {type(device).__name__}, where a str is expected.", "Write device='cpu'.")
    kind, _, number = device.lower().partition(":")
    if kind not in _PROVIDERS or (number and not (number.isdecimal() and kind in _WITH_DEVICE_ID)):
        raise RuntimeUnavailableError(
            f"there is no device {device!r}.{did_you_mean(kind, _PROVIDERS)}",
            f"Known: {', '.join(_PROVIDERS)}, where it applies with a number as in 'cuda:0'; "
            "or pass providers=[…] as to an InferenceSession.",
        )
    provider = _PROVIDERS[kind]
    available = runtime().get_available_providers()
    if provider not in available:
        raise RuntimeUnavailableError(
            f"device {device!r} needs {provider}, which this onnxruntime does not have",
            f"It has {', '.join(available)}; install the build of onnxruntime for that device.",
        )
    if provider == _CPU:
        return [_CPU]
    return [(provider, {"device_id": int(number)}) if number else provider, _CPU]


def listed_providers(providers: Sequence[Provider]) -> list[Provider]:
    """The execution providers as a list; raises :class:`ArgumentError` for a single name and for what is none."""
    if isinstance(providers, str) or not all(isinstance(provider, str | tuple) for provider in providers):
        raise ArgumentError(
            f"the providers are {providers!r}, where a list of names is expected.",
            "Write ['CPUExecutionProvider'], or (name, options) for one with options.",
        )
    return list(providers)


def default_session_options() -> Any:
    """Session options under which onnxruntime prints nothing."""
    options = runtime().SessionOptions()
    options.log_severity_level = _FATAL
    return options


def silent_run_options() -> Any:
    """Run options under which onnxruntime prints nothing; what goes wrong is raised."""
    options = runtime().RunOptions()
    options.log_severity_level = _FATAL
    # onnxruntime looks for this entry in each run, and makes up for a missing one by an exception, which takes 30 µs
    options.add_run_config_entry(_GRAPH_NUMBER, "0")
    return options


def open_session(path: str | os.PathLike[str], session_options: Any, providers: Sequence[Provider]) -> Any:
    """Open a model file.

    Raises:
        ArgumentError: the session options are something else.
        InvalidModelError: there is no such file, or onnxruntime cannot load it.
        RuntimeUnavailableError: the installed onnxruntime lacks an execution provider, or cannot start it.
    """
    file = as_path(path, InvalidModelError)
    if not file.is_file():
        raise InvalidModelError(f"there is no model file {file}", "Pass the path that generate_artifacts wrote.")
    if not isinstance(session_options, runtime().SessionOptions):
        raise ArgumentError(
            f"the session options are {type(session_options).__name__}, where SessionOptions are expected.",
            "Pass onnxruntime.SessionOptions(), or nothing.",
        )
    _settle(session_options)
    wanted = [provider if isinstance(provider, str) else provider[0] for provider in providers]
    _require_available(wanted)
    try:
        session = _open(file, session_options, list(providers))
    except Exception as error:
        explained = missing_kernel(str(error), file, wanted)
        if explained is not None:
            raise InvalidModelError(*explained) from error
        raise InvalidModelError(f"onnxruntime cannot load {file}: {refusal(error)}", _remedy(str(error))) from error
    lost = [name for name in wanted if name not in session.get_providers()]
    if lost:
        raise RuntimeUnavailableError(
            f"onnxruntime cannot start {', '.join(lost)}, and would run on {', '.join(session.get_providers())} only",
            "Check the driver and the libraries of the device; session_options.log_severity_level = 0 shows more.",
        )
    if file.stat().st_size >= _LARGE_FILE:
        _return_free_memory()
    return session


def _open(file: Path, session_options: Any, providers: list[Provider]) -> Any:
    """Open a session, of a large file without reading the weights in it where that can be."""
    light = _with_weights_left(file, session_options, providers)
    if light is not None:
        try:
            return _start(light, session_options, providers)
        except Exception:  # noqa: S110, BLE001  # what is wrong is said of the file as it is
            pass
    return _start(str(file), session_options, providers)


def _with_weights_left(file: Path, session_options: Any, providers: list[Provider]) -> bytes | None:
    """The model with references to its large weights, which onnxruntime maps into memory in place of copying them.

    None for a small file and where that may not work: providers that want the path of the model, releases before 1.21,
    Windows, where a file that is mapped cannot be replaced, and links, whose target may have another name.
    """
    size = file.stat().st_size
    if size < _LARGE_FILE or providers != [_CPU] or sys.platform == "win32" or file.is_symlink():
        return None
    release = tuple(int(part) for part in runtime().__version__.split(".")[:2])
    if release < _FOLDER_SINCE or session_options.optimized_model_filepath:
        return None
    try:
        with file.open("rb") as content:
            light = with_weights_left(content, size, file.name, _LEFT_IN_FILE)
    except (WireError, OSError):
        return None
    is_lighter = len(light) < size
    return light if is_lighter and _settled(session_options, _FOLDER, str(file.parent.absolute())) else None


def _settled(session_options: Any, key: str, value: str) -> bool:
    """Whether the options have this value, given now if there was none: to change one makes onnxruntime print."""
    try:
        return bool(session_options.get_session_config_entry(key) == value)
    except RuntimeError:
        session_options.add_session_config_entry(key, value)
        return True


def _start(model: str | bytes, session_options: Any, providers: list[Provider], left_out: tuple[str, ...] = ()) -> Any:
    """Open a session, without the optimizations of onnxruntime that its messages show to fail on the model."""
    extra = {"disabled_optimizers": list(left_out)} if left_out else {}
    try:
        return runtime().InferenceSession(model, session_options, providers=providers, **extra)
    except Exception as error:
        failed = tuple(name for sign, name in _FAULTY.items() if sign in str(error) and name not in left_out)
        if not failed:
            raise
    return _start(model, session_options, providers, left_out + failed)


def _return_free_memory() -> None:
    """Give the copies that onnxruntime made of weights while it read them, and freed, back to the system.

    glibc keeps them for later: for a model with 45 MB of weights 88 MB.  Other C libraries give them back themselves.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _require_available(wanted: Sequence[str]) -> None:
    """onnxruntime leaves out the providers that it does not have, with a warning at most."""
    available = runtime().get_available_providers()
    missing = [name for name in wanted if name not in available]
    if missing:
        unknown = [name for name in missing if name not in _PROVIDERS.values()]
        near = "".join(did_you_mean(name, [*_PROVIDERS.values(), *available], 1) for name in unknown)
        raise RuntimeUnavailableError(
            f"this onnxruntime does not have {', '.join(missing)}.{near}",
            f"It has {', '.join(available)}; install the build of onnxruntime for that device.",
        )


def _settle(session_options: Any) -> None:
    """Set what training needs of a session.

    * Threads sleep as soon as a run ends, unless the options say what they should do.  They would otherwise spin for a
      while, and a training step is runs of two sessions in turn: the threads of each would take the processor from
      those of the other.
    * No memory pattern: a block for a whole run, taken at the second run beside all that the first one took.
    * No reuse of memory that is planned ahead: a tensor would stay until the one that shall have its place is there.
      The allocator hands out again what is free, and finds a better place.
    """
    session_options.enable_mem_pattern = False
    session_options.enable_mem_reuse = False
    _settled(session_options, _STOP_SPINNING, "1")


def _remedy(message: str) -> str:
    if "is not a registered function/op" in message:
        return (
            "Generate the artifacts for stock onnxruntime with this library, or register the library of custom "
            "operators: session_options.register_custom_ops_library(path)."
        )
    if "ShapeInferenceError" in message or "Type Error" in message:
        return "Check that onnxruntime loads the forward model itself; it may be the one that does not fit together."
    return "Generate the artifacts again, or use an onnxruntime that knows the model's opset and operators."
