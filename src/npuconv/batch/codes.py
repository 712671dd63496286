"""Codes of rules in a YAML file: one that no rule has would do nothing, and say nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from npuconv import yamlio
from npuconv.config import Options
from npuconv.errors import ConfigError, UsageError
from npuconv.yamlio import KeyPath


def unknown(
    document: yamlio.Document, at: KeyPath, options: Mapping[str, Any]
) -> Iterator[ConfigError]:
    """An error for each code or name that no rule has.

    Args:
        document: where the options come from.
        at: their place in it.
        options: as they stand there, known to be valid but for this.

    Yields:
        Errors that name the code, and those that are near it; with line and column.
    """
    for place, code in _codes(at, options):
        from npuconv.legalize.selection import check_codes  # takes onnx, which few files need

        try:
            check_codes(Options(select=(code,)))
        except UsageError as error:
            line, column = document.mark(place)
            yield ConfigError(
                error.message, file=document.name, line=line, column=column, hint=error.hint
            )


def _codes(at: KeyPath, options: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Every code that is named, and its place."""
    for key in ("select", "ignore"):
        for number, code in enumerate(options.get(key, ())):
            yield (*at, key, number), code
    for code in options.get("severity", {}):
        yield (*at, "severity", code), code
    for pattern, part in options.get("rules", {}).items():
        yield from _codes((*at, "rules", pattern), part)
