"""The report and its renderers: pure functions, the same report gives the same bytes.

A format has a module of its name with ``render``, ``render_many`` and ``render_batch``. It is
imported when it is asked for, so importing this package costs nothing. Every name in a report
comes from an untrusted model file and is escaped by the rules of the format. Each text ends in
one newline; a format that does not exist is a UsageError.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from npuconv.errors import UsageError

if TYPE_CHECKING:
    import os

    from npuconv.schemas.batch import BatchReport
    from npuconv.schemas.report import Report

# Name of each format, with the file suffix that asks for it.
FORMATS = {
    "text": ".txt",
    "json": ".json",
    "html": ".html",
    "markdown": ".md",
    "sarif": ".sarif",
    "junit": ".xml",
    "github": "",
}
PRINTED = tuple(name for name in FORMATS if name != "html")  # formats for a terminal


class Unreadable(NamedTuple):
    """A model without a report, because it cannot be read."""

    path: str
    message: str  # the error in one line


def render(report: Report, format: str) -> str:
    """Render one report."""
    return str(_renderer(format).render(report))


def render_many(
    reports: Sequence[Report], format: str, unreadable: Sequence[Unreadable] = ()
) -> str:
    """Render several reports as one valid document.

    ``unreadable`` are models without a report, which the document lists too.
    """
    return str(_renderer(format).render_many(reports, unreadable))


def render_batch(batch: BatchReport, format: str, base: str = "") -> str:
    """Render the summary of a batch.

    ``base`` is the path from the folder of a page to the folder of the jobs file, for its links.
    """
    links = {"base": base} if format == "html" else {}
    return str(_renderer(format).render_batch(batch, **links))


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format that the suffix of a file asks for.

    Returns:
        A name in ``FORMATS``.

    Raises:
        UsageError: the suffix belongs to no format.
    """
    suffix = PurePath(path).suffix.lower()
    formats = {value: name for name, value in FORMATS.items() if value}
    if suffix not in formats:
        hint = f"use {' '.join(formats)}"
        raise UsageError(f"{path}: no report format for the suffix '{suffix}'", hint=hint)
    return formats[suffix]


def _renderer(format: str) -> ModuleType:
    if format not in FORMATS:
        raise UsageError(f"no report format '{format}'", hint=f"use one of {', '.join(FORMATS)}")
    return import_module(f"{__name__}.{format}")
