"""Values that a model needs of the limits that a target marks "?"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuconv.facts import DECIDED_LATER, lookup
from npuconv.rules._extents import EXTENTS

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext
    from npuconv.target.limit import Limit

OPEN = "any"  # the value of an extent that the model leaves open
SHOWN = 6  # values named one by one; more become a range


@dataclass(frozen=True)
class Need:
    """One unknown limit, and the values of it that occur."""

    name: str  # operator.fact
    limit: Limit
    values: tuple[Any, ...]  # sorted, without repeats
    nodes: int
    example: Node

    @property
    def text(self) -> str:
        """The values for people; a range where there are many numbers."""
        numbers = [v for v in self.values if isinstance(v, int) and not isinstance(v, bool)]
        if len(numbers) <= SHOWN:
            return ", ".join(map(_written, self.values))
        others = [_written(v) for v in self.values if v not in numbers]
        return ", ".join([f"{numbers[0]}..{numbers[-1]}", *others])


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def needs(model: Model, ctx: RuleContext) -> list[Need]:
    """Every unknown limit that some node has a value for, by name; found once per lint."""
    if ctx.needs is None:
        ctx.needs = _needs(model, ctx)
    return ctx.needs


def _needs(model: Model, ctx: RuleContext) -> list[Need]:
    seen: dict[str, dict[Any, tuple[int, Node]]] = {}
    limits: dict[str, Limit] = {}
    alike: dict[int, list[tuple[str, Limit, Any]]] = {}  # nodes of one sheet need the same
    for node in model.nodes():
        if ctx.operator(node) is None or ctx.keeps(node):
            continue  # nobody limits it
        facts = ctx.facts(node)
        if id(facts) not in alike:
            alike[id(facts)] = list(_unknown(node, ctx))
        for name, limit, value in alike[id(facts)]:
            limits[name] = limit
            count, first = seen.setdefault(name, {}).get(value, (0, node))
            seen[name][value] = (count + 1, first)
    return [_need(name, limits[name], seen[name]) for name in sorted(seen)]


def _unknown(node: Node, ctx: RuleContext) -> Iterator[tuple[str, Limit, Any]]:
    facts = ctx.facts(node)
    for fact, limit in ctx.limits(node).items():
        value = lookup(facts, fact)
        if value is None and fact in facts and fact in EXTENTS:
            value = OPEN
        if not limit.known and value is not None and fact not in DECIDED_LATER:
            yield f"{node.op}.{fact}", limit, value


def _need(name: str, limit: Limit, values: dict[Any, tuple[int, Node]]) -> Need:
    ordered = sorted(values, key=lambda v: (str(type(v)), v))
    nodes = sum(count for count, _ in values.values())
    return Need(name, limit, tuple(ordered), nodes, values[ordered[-1]][1])
