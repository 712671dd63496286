"""Lines that fit a terminal: wrapping, eliding in the middle, tables, colour.

Widths are columns of the terminal. The tables are not those of rich, which cut a long name at
its end: both ends of a name of a node tell most, so it is elided in the middle.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from npuconv.report.escape import plain

Block = list[str]
LABEL_STYLE = {
    "error": "red", "warning": "yellow", "note": "blue", "undocumented": "blue",
    "rewritten": "green",
}  # fmt: skip
_GAP = "  "  # between two columns of a table
_NARROWEST_COLUMN = 6  # "a...b" and a space
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}


@dataclass(frozen=True)
class View:
    """Colour and width of the text output.

    All texts that it lays out are escaped here.
    """

    color: bool
    width: int

    def paint(self, text: str, *styles: str) -> str:
        """Return the text in ANSI styles; unchanged without colour."""
        if not self.color or not text:
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"

    def safe(self, text: str) -> str:
        """Return an untrusted text with hidden characters and CI commands escaped."""
        return plain(text)

    def hang(self, text: str, first: str = "  ", rest: str = "    ") -> Block:
        """Wrap the text behind ``first``, and on later lines behind ``rest``."""
        return hang(self.safe(text), self.width, first=first, rest=rest)

    def title(self, text: str) -> Block:
        """Return the heading of a section."""
        return [self.paint(line, "bold") for line in self.hang(text, "", "")]

    def accent(self, line: str, word: str, *styles: str) -> str:
        """Return the line with its first word painted, if it begins with that word."""
        if not line.startswith(word):
            return line
        return self.paint(word, "bold", *styles) + line[len(word) :]

    def table(
        self,
        head: Sequence[str],
        rows: Iterable[Sequence[str]],
        right: Iterable[int] = (),
        whole: Iterable[int] = (),
    ) -> Block:
        """Lay out a table under its dimmed head, indented by two; long texts wrap inside columns.

        Args:
            head: the column titles.
            rows: as many texts each as there are titles.
            right: columns that are flush right.
            whole: columns whose words stay whole, as long as others can shrink.

        Returns:
            Lines that fit the width, without trailing blanks.
        """
        body = [tuple(head), *(tuple(map(self.safe, row)) for row in rows)]
        widths = _widths(body, self.width - 2, frozenset(whole))
        flush = frozenset(right)
        lines = [line for row in body for line in _row(row, widths, flush)]
        return [self.paint(lines[0], "dim"), *lines[1:]]


def cells(text: str) -> int:
    """Return an upper bound of the number of columns that the text takes."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def elide(text: str, width: int) -> str:
    """Return the text with its middle left out if it does not fit; at least 5 columns."""
    if cells(text) <= width:
        return text
    room = max(width - 3, 2)
    tail = _take(text[::-1], room - room // 3)[::-1]
    return f"{_take(text, room - cells(tail))}...{tail}"


def wrap(text: str, width: int) -> list[str]:
    """Return the words in lines of at most ``width`` columns; longer words are elided."""
    lines: list[str] = []
    for word in (elide(word, width) for word in text.split()):
        if lines and cells(lines[-1]) + 1 + cells(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def hang(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Wrap the words behind ``first``, and on later lines behind ``rest``."""
    lines = wrap(text, width - max(cells(first), cells(rest)))
    return [(rest if at else first) + line for at, line in enumerate(lines)]


def _row(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> list[str]:
    columns = [wrap(text, width) for text, width in zip(row, widths, strict=True)]
    lines = []
    for at in range(max(len(column) for column in columns)):
        texts = []
        for place, (column, width) in enumerate(zip(columns, widths, strict=True)):
            text = column[at] if at < len(column) else ""
            blanks = " " * (width - cells(text))
            texts.append(blanks + text if place in right else text + blanks)
        lines.append(("  " + _GAP.join(texts)).rstrip())
    return lines


def _widths(body: Sequence[Sequence[str]], width: int, whole: frozenset[int]) -> list[int]:
    """Return column widths that fit: titles wrap first, then the widest columns shrink."""
    columns = list(zip(*body, strict=True))
    width -= len(_GAP) * (len(columns) - 1)
    full = [max(map(cells, column)) for column in columns]
    if sum(full) <= width:
        return full
    widths = [max(map(cells, [*title.split(), *texts])) for title, *texts in columns]
    return _shrink(_shrink(widths, width, {*range(len(widths))} - whole), width, set(whole))


def _shrink(widths: list[int], width: int, shrinking: set[int]) -> list[int]:
    """Return the widths with the widest of some columns reduced until all fit."""
    while sum(widths) > width:
        widest = max(shrinking, key=lambda at: (widths[at], -at), default=None)
        if widest is None or widths[widest] <= _NARROWEST_COLUMN:
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
