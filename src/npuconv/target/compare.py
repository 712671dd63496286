"""Two targets side by side: what differs, by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.facts import FACTS
from npuconv.target.costs import WEIGHTS
from npuconv.target.view import block_rows, with_assumed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npuconv.target import Operator, Target
    from npuconv.target.description import Demands

    Rows = dict[str, str]  # what it is -> its value, for people

_NOTHING = "-"
_ORDER = {name: place for place, name in enumerate(FACTS)}


def differences(old: Target, new: Target) -> list[str]:
    """A line for each limit, format or relation that is not the same in both, by operator."""
    before, after = dict(_groups(old)), dict(_groups(new))
    relations = {name: _relations(old, new, name) for name in (*before, *after)}
    lines: list[str] = []
    for title in dict.fromkeys([*before, *after]):
        rows = _changed(before.get(title, {}), after.get(title, {}))
        indent = "  " if title else ""
        found = _aligned(rows, indent) + [indent + line for line in relations[title]]
        lines += ["", *([title] if title else []), *found] if found else []
    return lines[1:]


def _changed(before: Rows, after: Rows) -> list[tuple[str, str, str]]:
    names = dict.fromkeys([*before, *after])
    rows = [(name, before.get(name, _NOTHING), after.get(name, _NOTHING)) for name in names]
    changed = [row for row in rows if row[1] != row[2]]
    return sorted(changed, key=lambda row: _ORDER.get(row[0].partition(" ")[0], -1))


def _aligned(rows: list[tuple[str, str, str]], indent: str) -> list[str]:
    if not rows:
        return []
    name_width, old_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{indent}{n:<{name_width}}  {o:<{old_width}} -> {v}" for n, o, v in rows]


def _relations(old: Target, new: Target, title: str) -> list[str]:
    """Return the removed and added relations, compared by text, not by position."""
    before, after = (_required(target, title) for target in (old, new))
    gone = [f"- require {text}" for text in before if text not in after]
    return gone + [f"+ require {text}" for text in after if text not in before]


def _required(target: Target, title: str) -> list[str]:
    part = target.all_operators if title == _ALL else target.operators.get(title)
    return [relation.text() for relation in part.require] if part else []


_ALL = "all operators"


def _groups(target: Target) -> Iterator[tuple[str, Rows]]:
    yield "", _general(target)
    for name, block in target.blocks():
        yield name, {key: value for key, value, _ in block_rows(block)}
    yield "costs", {name: f"{getattr(target.costs, name):g}" for name in WEIGHTS}
    yield _ALL, _limits(target.all_operators)
    for name, operator in target.operators.items():
        yield name, _operator(operator)


def _general(target: Target) -> Rows:
    return {
        "version": target.version or _NOTHING,
        "unlisted_operators": target.unlisted_operators,
        "fused_activations": with_assumed(target.fused_activations),
    }


def _operator(operator: Operator) -> Rows:
    rows = {"operator": "listed", **({"domain": operator.domain} if operator.domain else {})}
    rows |= _limits(operator)
    for mode, limits in operator.modes.items():
        rows |= {f"{name} ({mode})": with_assumed(limit) for name, limit in limits.items()}
    return rows


def _limits(part: Demands) -> Rows:
    return {name: with_assumed(limit) for name, limit in part.limits.items()}
