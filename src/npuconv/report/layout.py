"""Lines that fit a terminal: wrapping, eliding in the middle, tables, colour."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_GAP = "  "
_MINIMUM = 6  # no column gets narrower: "a...b" and a space
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}


@dataclass(frozen=True)
class Paint:
    """Adds ANSI styles, or does not."""

    color: bool

    def __call__(self, text: str, *styles: str) -> str:
        """The text in the styles; unchanged without colour."""
        if not self.color or not text:
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"


def cells(text: str) -> int:
    """Return the number of terminal columns that the text takes; never too few."""
    if text.isascii():
        return len(text)
    return sum(map(_cell, text))


def elide(text: str, width: int) -> str:
    """The text with its middle left out, so that it fits; both ends of a name tell most."""
    if cells(text) <= width:
        return text
    keep = max(width - 3, 2)
    tail = _take(text[::-1], keep - keep // 3)[::-1]
    return f"{_take(text, keep - cells(tail))}...{tail}"


def wrap(text: str, width: int) -> list[str]:
    """The words in lines of at most ``width`` columns; longer words are elided."""
    lines: list[str] = []
    for word in (elide(word, width) for word in text.split()):
        if lines and cells(lines[-1]) + 1 + cells(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def hang(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """The words wrapped behind ``first``, and on later lines behind ``rest``."""
    lines = wrap(text, width - max(cells(first), cells(rest)))
    return [(rest if at else first) + line for at, line in enumerate(lines)]


def pad(text: str, width: int, *, right: bool = False) -> str:
    """The text filled up with blanks to ``width`` columns."""
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int,
    *,
    right: Iterable[int] = (),
    whole: Iterable[int] = (),
) -> list[str]:
    """A table under its head, indented by two; what is too long wraps inside its column.

    Args:
        head: the column titles.
        rows: as many texts each as there are titles.
        width: columns of the terminal.
        right: columns that are flush right.
        whole: columns whose words stay whole, as long as the others can give way.

    Returns:
        Lines of at most ``width`` columns, without trailing blanks.
    """
    body = [tuple(head), *(tuple(row) for row in rows)]
    widths = _widths(body, width - 2, frozenset(whole))
    flush = frozenset(right)
    return [line for row in body for line in _row(row, widths, flush)]


def _row(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> list[str]:
    columns = [wrap(text, width) for text, width in zip(row, widths, strict=True)]
    lines = []
    for at in range(max(len(column) for column in columns)):
        texts = [
            pad(column[at] if at < len(column) else "", width, right=place in right)
            for place, (column, width) in enumerate(zip(columns, widths, strict=True))
        ]
        lines.append(("  " + _GAP.join(texts)).rstrip())
    return lines


def _widths(body: Sequence[Sequence[str]], room: int, whole: frozenset[int]) -> list[int]:
    """Return the column widths that fit: titles wrap first, then the widest columns shrink."""
    columns = list(zip(*body, strict=True))
    room -= len(_GAP) * (len(columns) - 1)
    full = [max(map(cells, column)) for column in columns]
    if sum(full) <= room:
        return full
    widths = [max(map(cells, [*title.split(), *texts])) for title, *texts in columns]
    return _fit(_fit(widths, room, set(range(len(widths))) - whole), room, set(whole))


def _fit(widths: list[int], room: int, giving: set[int]) -> list[int]:
    """Takes from the widest of the columns that give way until all fit."""
    while sum(widths) > room:
        widest = max(giving, key=lambda at: (widths[at], -at), default=None)
        if widest is None or widths[widest] <= _MINIMUM:
            break
        widths[widest] -= 1
    return widths


def _cell(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _take(text: str, width: int) -> str:
    """Return the longest beginning of the text that fits the width."""
    used = 0
    for at, char in enumerate(text):
        used += _cell(char)
        if used > width:
            return text[:at]
    return text
