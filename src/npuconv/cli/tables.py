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
