"""Limits of the target that operators other than convolutions break."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuconv.facts import DECIDED_LATER, lookup
from npuconv.rules import is_convolution

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext
    from npuconv.target import Operator
    from npuconv.target.limit import Limit


@dataclass(frozen=True)
class Beyond:
    """One limit or relation that a listed operator is beyond."""

    problem: str
    value: str
    limit: str
    source: str


def beyond(node: Node, ctx: RuleContext) -> Iterator[Beyond]:
    """Yield each limit and relation that a listed operator breaks; none for convolutions."""
    operator = None if is_convolution(node) else ctx.operator(node)
    if operator is not None and (facts := ctx.facts(node)):
        yield from _beyond_limits(ctx.limits(node), facts)
        yield from _beyond_relations(operator, facts)


def _beyond_limits(limits: Mapping[str, Limit], facts: Mapping[str, Any]) -> Iterator[Beyond]:
    from npuconv.target import shown

    for name, limit in limits.items():
        value = lookup(facts, name)
        if name in DECIDED_LATER or limit.allows(value, facts) is not False:
            continue
        text, seen = limit.text(facts), shown(value)
        problem = f"{name} is {seen}; the device takes {text}"
        yield Beyond(problem, f"{name}={seen}", text, limit.cite())


def _beyond_relations(operator: Operator, facts: Mapping[str, Any]) -> Iterator[Beyond]:
    for relation in operator.require:
        if relation.holds(facts) is False:
            problem = f"{relation.text(facts)} does not hold"
            yield Beyond(problem, "", relation.text(), relation.cite())
