"""Text output of ``npuconv inspect --diff``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from npuconv.inspection import Comparison, Inspection, Match

_LABELS = 14  # columns of what stands before the two models, with the gaps
_NARROWEST = 20  # columns of a path


def show(found: Comparison, console: Console) -> None:
    """Print both models side by side: the whole, the operators, the convolutions."""
    from npuconv.cli.tables import put

    heads = zip(_head(found.before), _head(found.after), strict=True)
    rows = [(what, old, new) for (what, old), (_, new) in heads]
    room = max((console.width - _LABELS) // 2, _NARROWEST)
    put(console, _table(("", "before", "after"), rows, room))
    rows_of = [
        (op, str(n.before), str(n.after), f"{n.after - n.before:+d}" if n.after != n.before else "")
        for op, n in found.operators.items()
    ]
    put(console, _table(("operator", "before", "after", "change"), rows_of), "operators")
    different = [one for one in found.convolutions if one.differs]
    if different:
        title = f"convolutions: {len(different)} of {len(found.convolutions)} differ"
        columns = ("name", "what", "before", "after")
        put(console, _table(columns, _convolutions(different)), title)
    elif found.convolutions:
        console.print(f"\nconvolutions: all {len(found.convolutions)} are alike")


def _head(one: Inspection) -> list[tuple[str, str]]:
    return [
        ("model", one.path),
        ("sha256", one.sha256[:12]),
        ("opset", str(one.opset)),
        ("producer", one.producer or "-"),
        ("inputs", "; ".join(one.inputs)),
        ("outputs", "; ".join(one.outputs)),
        ("nodes", str(one.nodes)),
        ("parameters", f"{one.parameters:,}"),
        ("MACs", "unknown" if one.macs is None else f"{one.macs:,}"),
    ]


def _convolutions(different: Iterable[Match]) -> list[tuple[str, ...]]:
    """One row for each difference; matches that differ alike are taken together."""
    alike: dict[tuple[object, ...], list[Match]] = {}
    for one in different:
        alike.setdefault(tuple(one.differs.items()), []).append(one)
    rows: list[tuple[str, ...]] = []
    for members in alike.values():
        others = len(members) - 1
        names = [members[0].name + (f" and {others} more" if others else "")]
        for what, (before, after) in members[0].differs.items():
            rows.append((*names, what, before or "-", after or "-"))
            names = [""]
    return rows


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], room: int = 0) -> Table:
    """A table; with ``room``, the first row has paths that are broken to fit in it."""
    from rich.table import Table
    from rich.text import Text

    from npuconv.cli.tables import fold_path
    from npuconv.report.escape import visible

    table = Table(box=None, pad_edge=False)
    for column in head:
        table.add_column(column, overflow="fold")
    for number, row in enumerate(rows):
        texts = [visible(cell) for cell in row]
        folded = [fold_path(text, room) for text in texts] if room and not number else texts
        table.add_row(*map(Text, folded))
    return table
