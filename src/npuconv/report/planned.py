"""The plan as people read it: nodes that are told alike taken together, costs added up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from npuconv.report.words import UNKNOWN_MACS, change, quantity, size
from npuconv.schemas.report import Alternative, Choice, Planned, Report


@dataclass(frozen=True)
class PlanGroup:
    """Nodes of which the same is said."""

    rows: tuple[Planned, ...]

    @property
    def first(self) -> Planned:
        """The node that speaks for all."""
        return self.rows[0]

    @property
    def text(self) -> str:
        """The nodes before and after all rewrites."""
        return f"{self.first.was} -> {self.first.becomes}"

    @property
    def macs(self) -> str:
        """MACs of all of them, before and after."""
        before = _sum(one.macs_before for one in self.rows)
        after = _sum(one.macs_after for one in self.rows)
        return change(_macs(before), _macs(after))

    @property
    def weights(self) -> str:
        """Bytes of the weights of all of them, before and after."""
        before = sum(one.weight_bytes_before for one in self.rows)
        after = sum(one.weight_bytes_after for one in self.rows)
        return change(size(before), size(after))

    @property
    def works(self) -> bool:
        """False where nothing is multiplied, so that there is no cost to tell."""
        costs = {c for one in self.rows for c in (one.macs_before, one.macs_after)}
        weights = sum(one.weight_bytes_before + one.weight_bytes_after for one in self.rows)
        return costs != {0} or weights != 0

    @property
    def choices(self) -> tuple[tuple[str, ...], ...]:
        """The forms that were considered: ``split (chosen): 1.2 M MACs, 4.6 KiB``, ..."""
        alike: dict[tuple[object, ...], list[Choice]] = {}
        for one in (choice for row in self.rows for choice in row.choices):
            if len(one.alternatives) > 1:
                forms = tuple((a.form, a.chosen, a.obstacle) for a in one.alternatives)
                alike.setdefault((one.pass_name, *forms), []).append(one)
        return tuple(_forms(together) for together in alike.values())


def plan(report: Report, *, each: bool = False) -> tuple[PlanGroup, ...]:
    """The plan, nodes that say the same taken together.

    Args:
        report: whose plan.
        each: every node for itself.
    """
    if each:
        return tuple(PlanGroup((one,)) for one in report.plan)
    alike: dict[tuple[str, str], list[Planned]] = {}
    for one in report.plan:
        alike.setdefault((one.was, one.becomes), []).append(one)
    return tuple(PlanGroup(tuple(members)) for members in alike.values())


def _forms(choices: list[Choice]) -> tuple[str, ...]:
    return tuple(map(_form, zip(*(one.alternatives for one in choices), strict=True)))


def _form(same: tuple[Alternative, ...]) -> str:
    macs = _sum(one.macs for one in same)
    count = "MACs unknown" if macs is None else f"{quantity(macs)} MACs"
    parts = [count, size(sum(one.weight_bytes for one in same))]
    moved = sum(one.moved_bytes for one in same)
    parts += [f"{size(moved)} moved"] if moved else []
    first = same[0]
    name = f"{first.form} (chosen)" if first.chosen else first.form
    why = f"; not possible: {first.obstacle}" if first.obstacle else ""
    return f"{name}: {', '.join(parts)}{why}"


def _sum(numbers: Iterable[int | None]) -> int | None:
    listed = list(numbers)
    return None if None in listed else sum(number or 0 for number in listed)


def _macs(number: int | None) -> str:
    return UNKNOWN_MACS if number is None else quantity(number)
