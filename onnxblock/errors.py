"""Every exception of the library.

All derive from :class:`OnnxBlockError`.  Where the original raised a builtin exception, the subclass derives from that
builtin too, so that existing ``except`` clauses keep working.  A message says what is wrong and where; its second line
says what to do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class OnnxBlockError(RuntimeError):
    """Base class of every exception raised by ``onnxblock`` and ``artifacts``."""

    def __init__(self, what: str, remedy: str | None = None) -> None:
        super().__init__(what if remedy is None else f"{what}\n  {remedy}")


class NoGraphError(OnnxBlockError, AttributeError):
    """A block was called, or its graph asked for, outside ``base(...)`` and ``empty_base()``."""


class BlockBuildError(OnnxBlockError, TypeError, ValueError):
    """A block or an operator was given arguments that do not fit."""


class ArgumentError(OnnxBlockError, TypeError, ValueError):
    """An argument of the wrong kind, or a setting out of range."""


class InvalidModelError(OnnxBlockError, ValueError):
    """The model cannot be read, is not valid ONNX, or is outside what can be handled."""


class UnknownNameError(OnnxBlockError, KeyError, ValueError):
    """A parameter, output or property that does not exist."""

    def __str__(self) -> str:
        return str(self.args[0])


class ParameterError(OnnxBlockError, ValueError, TypeError):
    """A parameter that cannot be trained or frozen as asked."""


class UnsupportedOperatorError(OnnxBlockError, NotImplementedError):
    """Operators without a gradient lie between the loss and what should be trained."""


class GradientMismatchError(OnnxBlockError, AssertionError):
    """A gradient differs from finite differences.  ``result`` is the ``GradientCheck`` that says where."""

    def __init__(self, result: object) -> None:
        super().__init__(
            f"gradients differ from finite differences:\n{result}", "The rule of an operator is wrong there."
        )
        self.result = result


class DuplicateRuleError(OnnxBlockError, ValueError):
    """A second gradient rule for an operator that already has one."""


class RuleError(OnnxBlockError, TypeError, ValueError):
    """A gradient rule or a decomposition returned what cannot be the result of its node."""


class CheckpointError(OnnxBlockError, ValueError):
    """A checkpoint that cannot be read, written or used."""


class PropertyValueError(CheckpointError, TypeError):
    """A value that a checkpoint's property cannot hold."""


class ArtifactMismatchError(OnnxBlockError, ValueError):
    """Files that do not come from the same generation or the same model."""


class FeedError(OnnxBlockError, ValueError, TypeError):
    """Arrays fed to a model that do not fit its inputs."""


class RuntimeUnavailableError(OnnxBlockError, ImportError):
    """Something needs a package or a runtime feature that is not installed."""


_TOO_NEW = {
    "opset": re.compile(r"Opset (\d+) is under development.* is till opset (\d+)"),
    "IR version": re.compile(r"IR version: (\d+), max supported IR version: (\d+)"),
}


def refusal(error: Exception) -> str:
    """Why onnxruntime does not load a model: in plain words where the model is newer than it, else its first line."""
    text = str(error).strip()
    for what, pattern in _TOO_NEW.items():
        found = pattern.search(text)
        if found:
            return f"it is of {what} {found[1]}, and the installed onnxruntime knows only up to {found[2]}"
    return text.partition("\n")[0]


_SOURCE = re.compile(
    r"\S+\.(?:cc|cpp|h|hpp):\d+ (?:[^\n]*?\[with [^\]\n]*\] |[\w:<>~*& ]+\([^()\n]*\)(?: const)? )",
)


def run_failure(error: Exception) -> str:
    """What onnxruntime says of a run that failed, without the places in its own source code."""
    return _SOURCE.sub("", str(error)).strip()


def listed(problems: Iterable[str]) -> str:
    """The problems in one sentence."""
    text = "; ".join(problems)
    return text if text.endswith("?") else f"{text}."


def did_you_mean(name: object, known: Iterable[str], count: int = 3) -> str:
    """`` Did you mean 'a' or 'b'?`` for the nearest known spellings, or an empty string."""
    if not isinstance(name, str):
        return ""
    unique = dict.fromkeys(known)
    near = [k for k in unique if k.lower() == name.lower()]
    near += [k for k in difflib.get_close_matches(name, unique, count, cutoff=0.5) if k not in near]
    # the same weight is often known under a longer path, like model.layer.weight
    near += [k for k in unique if _last_parts_are(name, k) and k not in near]
    near = near[:count]
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""


def _last_parts_are(part: str, whole: str) -> bool:
    return whole.endswith(part) and not whole[: -len(part) or None][-1:].isalnum()
