"""Reasons why nodes run on the host, in a few words for a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from npuconv.amounts import count
from npuconv.model import Node, query
from npuconv.rules.context import RuleContext
from npuconv.target import builtin_names, listed_operators

_SHOWN = 4  # largest number of operators in a message


def reasons(nodes: Iterable[Node], ctx: RuleContext) -> str:
    """Return the operators of nodes of the host: those the target lacks, and limits they break.

    Args:
        nodes: nodes of the host.
        ctx: input of a rule of the stage with a plan.
    """
    assert ctx.plan is not None, "only a planned model has nodes of the host"
    by_operator: dict[str, list[Node]] = {}
    for node in nodes:
        by_operator.setdefault(query.qualified(node), []).append(node)
    largest = sorted(by_operator.items(), key=lambda item: -len(item[1]))[:_SHOWN]
    lacking = [op for op, members in largest if ctx.operator(members[0]) is None]
    amounts = {op: f"{op} ({count(len(members), 'node')})" for op, members in largest}
    parts = []
    if lacking:
        named = ", ".join(amounts[op] for op in lacking)
        parts.append(f"target {ctx.target.name} lacks {named}{_support(lacking, ctx.target.name)}")
    for op, members in largest:
        if op not in lacking:
            counts = Counter(ctx.plan.reason[id(node)].partition("; ")[0] for node in members)
            parts.append(f"{amounts[op]} on the host: {counts.most_common(1)[0][0]}")
    return "; ".join(parts) + (", ..." if len(by_operator) > _SHOWN else "")


def _support(ops: Sequence[str], target: str) -> str:
    """Return the built-in targets that list all operators, or the first; '' if none does."""
    further_targets = [name for name in builtin_names() if name != target]
    for required in (ops, ops[:1]):
        names = [name for name in further_targets if listed_operators(name).issuperset(required)]
        if names:
            subject = required[0] if len(ops) > len(required) else "it" if len(ops) == 1 else "them"
            return f"; {', '.join(names)} support{'s' * (len(names) == 1)} {subject}"
    return ""
