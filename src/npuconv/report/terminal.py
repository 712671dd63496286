"""Sections as lines for a terminal, a log or a text file; tables are aligned by rich.

Widths are columns of the terminal. All texts are escaped here. Both ends of the name of a node
matter, so a name that is too long loses its middle.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len

from npuconv.records import dataclass
from npuconv.report.escape import elide, plain
from npuconv.report.sections import Item, Note, Section, Table

if TYPE_CHECKING:  # imported where there is a table: it takes 20 ms
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.measure import Measurement
    from rich.text import Text

NARROWEST = 60  # columns; tables of several models need them
_NARROWEST_CELL = 14  # columns of a long name or text in a table
_LABEL_STYLE = {
    "error": "red", "warning": "yellow", "note": "blue", "undocumented": "blue",
    "rewritten": "green", "not judged": "yellow",
}  # fmt: skip
_ANSI = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}


def render(sections: Iterable[Section], *, color: bool = False, width: int = 80) -> str:
    """Lay out sections with a blank line between them.

    Args:
        sections: in the order in which they are shown; empty sections are left out.
        color: with ANSI styles.
        width: columns of the terminal; at least 60 are used.

    Returns:
        Lines without trailing blanks, each with its newline.
    """
    width, blocks = max(width, NARROWEST), []
    for section in sections:
        lines: list[str] = []
        for part in _lines(section, width, color):
            lines += _table(part, width, color) if isinstance(part, Table) else [part]
        if lines:
            blocks.append("".join(f"{line.rstrip()}\n" for line in lines))
    return "\n".join(blocks)


def hang(text: str, width: int, *, first: str = "", indent: str = "") -> list[str]:
    """Escape a text and wrap it behind ``first``, and on later lines behind ``indent``."""
    room = width - max(cell_len(first), cell_len(indent))
    lines: list[str] = []
    for word in (elide(word, room) for word in plain(text).split()):
        if lines and cell_len(longer := f"{lines[-1]} {word}") <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return [(indent if number else first) + line for number, line in enumerate(lines)]


def _lines(section: Section, width: int, color: bool) -> Iterator[str | Table]:
    for line in hang(section.title, width, indent="  " if section.label or section.style else ""):
        if section.label:
            yield _labelled(line, section.label, color)
        else:
            yield _styled(line, f"bold {section.style}", color)
    labels = [part.label for part in section.parts if isinstance(part, Note)]
    column = max((len(label) + (not label.endswith(":")) for label in labels), default=0)
    for part in section.parts:
        if isinstance(part, Table):
            yield part
        elif isinstance(part, Item):
            yield from _item(part, width)
        elif isinstance(part, Note):
            first = f"  {part.label:{column}} "
            indent = " " * len(first)
            for number, text in enumerate(part.texts):
                for line in hang(text, width, first=indent if number else first, indent=indent):
                    yield _labelled(line, part.label.rstrip(":"), color)
        else:
            yield from hang(part, width, first="  ", indent="    ")


def _labelled(line: str, label: str, color: bool) -> str:
    """Return a line whose label has its colour, if it begins with the label."""
    if label not in _LABEL_STYLE or not line.lstrip().startswith(label):
        return line
    before, _, after = line.partition(label)
    return before + _styled(label, f"bold {_LABEL_STYLE[label]}", color) + after


def _styled(text: str, style: str, color: bool) -> str:
    codes = ";".join(_ANSI[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if color else text


def _item(item: Item, width: int) -> Iterator[str]:
    """Yield one text behind its node, several below it; the names of several nodes last."""
    if len(item.names) > 1:
        number = item.modules or f"x {len(item.names)}"
        text = f"{item.op or 'model'}: {'; '.join(item.texts)} ({number})"
        yield from hang(text, width, first="  ", indent="    ")
        names = (", ".join(filter(None, pair)) for pair in zip_longest(item.names, item.places))
        yield from (f"    {elide(plain(name), width - 4)}" for name in names)
        return
    node, notes = item.names[0] or "the model", ", ".join(filter(None, (item.op, *item.places)))
    node += f" ({notes})" if notes and item.names[0] else ""
    if len(item.texts) == 1:
        yield from hang(f"{node}: {item.texts[0]}", width, first="  ", indent="    ")
        return
    yield from hang(f"{node}:", width, first="  ", indent="    ")
    for text in item.texts:
        yield from hang(text, width, first="    ", indent="      ")


def _table(table: Table, width: int, color: bool) -> list[str]:
    from rich import table as rich_table
    from rich.console import Console
    from rich.text import Text

    console = Console(
        file=io.StringIO(), width=width, height=25, force_terminal=color, no_color=not color,
        color_system="standard" if color else None, legacy_windows=False, highlight=False,
        markup=False, emoji=False,
    )  # fmt: skip
    grid = rich_table.Table(box=None, padding=(0, 0, 0, 2), header_style="")
    for number, title in enumerate(table.head):
        is_number = number in table.numbers
        justify: Literal["left", "right"] = "right" if is_number else "left"
        whole = (
            is_number
            and max((len(row[number]) for row in table.rows), default=0) <= _NARROWEST_CELL
        )
        grid.add_column(Text.assemble((title, "dim")), justify=justify, no_wrap=whole)
    for row in table.rows:
        cells: list[RenderableType] = []
        for number, text in enumerate(row):
            style = table.styles.get(text.partition(" ")[0], "")
            if number in table.numbers or style:
                cells.append(Text.assemble((plain(text), style)))
            else:
                cells.append(_CellText(text, is_name=number in table.names))
        grid.add_row(*cells)
    with console.capture() as capture:
        console.print(grid)
    return capture.get().split("\n")[:-1]


@dataclass(frozen=True)
class _CellText:
    """A text that is wrapped, or a name that loses its middle, where the column is too narrow."""

    text: str
    is_name: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        width = max(options.max_width, 5)
        lines = [elide(plain(self.text), width)] if self.is_name else hang(self.text, width)
        yield Text("\n".join(lines))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        width = cell_len(plain(self.text))
        return Measurement(min(_NARROWEST_CELL, width), width)
