"""Codes and names of rules in options; an unknown code would do nothing quietly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from npuconv.config import Options
from npuconv.errors import ConfigError, UsageError, raise_together
from npuconv.rules import RULES
from npuconv.yamlio import Document, KeyPath
from npuconv.yamlio.messages import nearest


def check_codes(options: Options) -> None:
    """Refuse codes and names that no rule has.

    Raises:
        UsageError: names each unknown code, and a similar code.
    """
    codes = _codes((), options.model_dump())
    raise_together(_errors(code for _, code in codes), UsageError)


def unknown_codes(
    document: Document, path: KeyPath = (), options: Mapping[str, Any] | None = None
) -> Iterator[ConfigError]:
    """Yield an error for each code or name of a file that no rule has.

    Args:
        document: the file, which has the form that it should.
        path: keys that lead to the options.
        options: the options; by default the whole file.

    Yields:
        Errors that name the code and a similar code; with line and column.
    """
    for place, code in _codes(path, document.data if options is None else options):
        for error in _errors([code]):
            line, column = document.mark(place)
            yield ConfigError(
                error.message, file=document.name, line=line, column=column, hint=error.hint
            )


def _codes(path: KeyPath, options: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    for key in ("select", "ignore"):
        for number, code in enumerate(options.get(key, ())):
            yield (*path, key, number), code
    for code in options.get("severity", {}):
        yield (*path, "severity", code), code
    for pattern, part in options.get("rules", {}).items():
        yield from _codes((*path, "rules", pattern), part)


def _errors(codes: Iterable[str]) -> Iterator[UsageError]:
    valid, names = sorted(rule.code for rule in RULES), RULES.names()
    families = sorted({code.rstrip("0123456789") for code in valid})
    for code in codes:
        if not code or not (code in names or any(full.startswith(code) for full in valid)):
            near = nearest(code, [*valid, *families]) or nearest(code, names)
            hint = f"did you mean {near}?" if near else "npuconv explain lists them"
            yield UsageError(f"no rule has a code that begins with {code!r}", hint=hint)
