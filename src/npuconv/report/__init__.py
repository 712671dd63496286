"""The report and its renderers: pure functions, the same report gives the same bytes.

A renderer is imported when its format is asked for, so importing this package costs nothing.
Every name in a report comes from somebody's model file and is escaped by each format's rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol, cast

from npuconv.errors import UsageError

if TYPE_CHECKING:
    import os

    from npuconv.report.unreadable import Unreadable
    from npuconv.schemas.report import Report


class _Renderer(Protocol):
    """Interface of a renderer module."""

    def render(self, report: Report) -> str: ...

    def render_many(
        self, reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()
    ) -> str: ...


@dataclass(frozen=True)
class Format:
    """One output format: which module renders it, and the file suffix that asks for it."""

    name: str
    module: str
    suffix: str = ""

    def render(self, report: Report) -> str:
        """One report as text that ends in one newline."""
        return self._load().render(report)

    def render_many(self, reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
        """Several reports, and models that cannot be read, as one valid document."""
        return self._load().render_many(reports, unreadable)

    def _load(self) -> _Renderer:
        return cast(_Renderer, import_module(f"{__name__}.{self.module}"))


FORMATS: dict[str, Format] = {
    fmt.name: fmt
    for fmt in (
        Format("text", "text", ".txt"),
        Format("json", "jsonfmt", ".json"),
        Format("html", "html", ".html"),
        Format("markdown", "markdown", ".md"),
        Format("sarif", "sarif", ".sarif"),
        Format("junit", "junit", ".xml"),
        Format("github", "github"),
    )
}


def render(report: Report, format: str) -> str:
    """One report in one format.

    Args:
        report: what to render.
        format: a name in ``FORMATS``.

    Returns:
        Text that ends in one newline.

    Raises:
        UsageError: there is no such format.
    """
    return _format(format).render(report)


def render_many(
    reports: Sequence[Report], format: str, unreadable: Sequence[Unreadable] = ()
) -> str:
    """Several reports as one valid document of one format.

    Args:
        reports: in the order in which they are shown.
        format: a name in ``FORMATS``.
        unreadable: models that there is no report of; whoever reads the document must not
            take it for all there was.

    Returns:
        Text that ends in one newline.

    Raises:
        UsageError: there is no such format.
    """
    return _format(format).render_many(reports, unreadable)


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a file's suffix asks for.

    Args:
        path: where the report will be written.

    Returns:
        A name in ``FORMATS``.

    Raises:
        UsageError: the suffix belongs to no format.
    """
    suffix = PurePath(path).suffix.lower()
    for fmt in FORMATS.values():
        if suffix and fmt.suffix == suffix:
            return fmt.name
    known = " ".join(fmt.suffix for fmt in FORMATS.values() if fmt.suffix)
    raise UsageError(f"{path}: no report format for the suffix '{suffix}'", hint=f"use {known}")


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise UsageError(f"no report format '{name}'", hint=f"use one of {', '.join(FORMATS)}")
    return FORMATS[name]
