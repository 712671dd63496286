"""Tables on the screen: titles that are not squeezed, no blanks at the ends of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def put(console: Console, table: Table, title: str = "") -> None:
    """Print a table under its title, which may be wider than the table is."""
    if title:
        console.print(f"\n{title}")
    with console.capture() as caught:
        console.print(table)
    for line in caught.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def fold_path(path: str, width: int) -> str:
    """The path in lines of at most ``width`` characters, broken behind slashes if possible."""
    lines = [""]
    for part in path.replace("/", "/\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    pieces = [line[at : at + width] for line in lines for at in range(0, len(line), width)]
    return "\n".join(pieces)
