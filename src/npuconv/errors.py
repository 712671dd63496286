"""Exceptions that npuconv raises on purpose.

    NpuconvError                 base class, with exit code and hint
    |-- UsageError           2   a flag or an argument that cannot be used
    |-- ConfigError          2   a YAML file or key that is wrong (file, line, column)
    |-- TargetError          2   a target description that is wrong (file, line, column)
    |-- ModelError           2   an input that cannot be read as a valid ONNX model
    |-- CalibrationError     2   samples that are missing, unreadable or of the wrong shape
    |-- OutputError          2   a destination that cannot be written
    |-- UnsupportedModelError 1  findings block the conversion; carries the report
    `-- InternalError       70   a bug in npuconv; names the pass

A user's mistake raises an error of this list, shown as one line, or as a line
for each of several; any other exception that escapes is a bug and becomes an
``InternalError`` at the edge.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar


class NpuconvError(Exception):
    """Base of every error a user can see.

    Args:
        message: the fault, beginning with its place (file, node, key).
        hint: advice to the user, or empty.
    """

    exit_code: ClassVar[int] = 2
    lines: tuple[str, ...] = ()  # lines of several errors that are raised as one

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild the error in another process without the arguments of its class."""
        return _remade, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        """Return one line: message and hint."""
        text = " ".join(self.message.split())
        return f"{text} ({self.hint})" if self.hint else text


def _remade(kind: type[NpuconvError], args: tuple[Any, ...]) -> NpuconvError:
    return kind.__new__(kind, *args)


class UsageError(NpuconvError):
    """A flag or argument that cannot be used as given."""


class LocatedError(NpuconvError):
    """An error in a YAML file: knows the file, line and column."""

    def __init__(
        self, message: str, *, file: str = "", line: int = 0, column: int = 0, hint: str = ""
    ) -> None:
        self.file, self.line, self.column = file, line, column
        where = file + (f":{line}:{column}" if line else "")
        super().__init__(f"{where}: {message}" if where else message, hint=hint)


class ConfigError(LocatedError):
    """A configuration file or key that is wrong."""


class TargetError(LocatedError):
    """A target description that is wrong."""


class ModelError(NpuconvError):
    """An input that cannot be read as a valid ONNX model."""


class CalibrationError(NpuconvError):
    """Calibration samples that cannot be used."""


class OutputError(NpuconvError):
    """A file that cannot be written."""


class UnsupportedModelError(NpuconvError):
    """Findings block the conversion.

    Args:
        message: the verdict in one line.
        report: the full ``npuconv.Report``, with every finding.
    """

    exit_code = 1

    def __init__(self, message: str, report: Any) -> None:
        super().__init__(message)
        self.report = report


class InternalError(NpuconvError):
    """A bug in npuconv itself.

    Args:
        message: what went wrong.
        where: the pass or rule that failed.
    """

    exit_code = 70

    def __init__(self, message: str, *, where: str) -> None:
        super().__init__(
            f"bug in npuconv, {where}: {message}",
            hint="please report it with the model, or the part of it that shows it",
        )
        self.where = where


def raise_together(errors: Iterable[NpuconvError], kind: type[NpuconvError]) -> None:
    """Raise all errors of a file, or of flags, as one, so that one run shows all of them.

    Raises:
        NpuconvError: if there are errors; the message names each, errors of a file with line and
            column and in their order. Several are raised as one ``kind``.
    """
    ordered = sorted(errors, key=lambda e: (getattr(e, "line", 0), getattr(e, "column", 0)))
    messages = {line: error for error in ordered for line in error.lines or (str(error),)}
    if len(messages) > 1:
        together = kind(f"{len(messages)} errors: {'; '.join(messages)}")
        together.lines = tuple(messages)
        raise together
    for error in messages.values():
        raise error


@contextlib.contextmanager
def bugs_in(where: str) -> Iterator[None]:
    """Name a pass or rule in the error of a bug in it, within a with statement.

    Raises:
        InternalError: anything but an error of this module was raised, or a lack of memory.
    """
    try:
        yield
    except (NpuconvError, MemoryError):
        raise
    except Exception as error:
        raise InternalError(f"{type(error).__name__}: {error}", where=where) from error


@contextlib.contextmanager
def naming_model(name: str) -> Iterator[None]:
    """Begin model errors with the model's name, unless they do, within a with statement.

    Code deep in a graph knows the node that fails, not the file.
    """
    try:
        yield
    except ModelError as error:
        if not error.message.startswith(name):
            error.message = f"{name}: {error.message}"
        raise


# Texts of errors other than MemoryError that systems raise when memory is short.
_SHORT = (
    "can't start new thread",
    "failed to map segment",
    "Cannot allocate memory",
    "Failed to allocate memory",  # onnxruntime, as the next
    "bad_alloc",
    "returned NULL without setting an exception",  # protobuf
)


def is_lack_of_memory(error: BaseException) -> bool:
    """Return whether an error, or its cause, is a lack of memory, not a bug."""
    if isinstance(error, MemoryError) or any(text in str(error) for text in _SHORT):
        return True
    return error.__cause__ is not None and is_lack_of_memory(error.__cause__)
