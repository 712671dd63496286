"""What a target's limits say against operators other than convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.facts import DECIDED_LATER, lookup
from npuconv.rules import is_convolution

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext


@dataclass(frozen=True)
class Beyond:
    """One limit or relation that a listed operator is beyond."""

    problem: str
    value: str
    limit: str
    source: str


def beyond(node: Node, ctx: RuleContext) -> Iterator[Beyond]:
    """Everything that keeps a listed operator off the device, convolutions left out."""
    from npuconv.target import shown

    operator = None if is_convolution(node) else ctx.operator(node)
    facts = ctx.facts(node) if operator else {}
    for name, limit in ctx.limits(node).items() if facts else ():
        value = lookup(facts, name)
        if name in DECIDED_LATER or limit.allows(value, facts) is not False:
            continue
        text, seen = limit.text(facts), shown(value)
        problem = f"{name} is {seen}; the device takes {text}"
        yield Beyond(problem, f"{name}={seen}", text, limit.cite())
    for relation in operator.require if operator and facts else ():
        if relation.holds(facts) is False:
            problem = f"{relation.text(facts)} does not hold"
            yield Beyond(problem, "", relation.text(), relation.cite())
