"""A known limit is about an extent that the model leaves open.

What it checks:
    Batch, height and width of every convolution that the target limits, where the
    dimension is symbolic. One finding for each limit, with the first such node.

Why it matters:
    The limit can be neither met nor broken as long as the extent is not a number. The
    device has to be given numbers in the end, and may then refuse them.

How to fix:
    Give the extents the model will run with, with --input-shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.amounts import count
from npuconv.model import Model, Node, query
from npuconv.rules import CONV, RuleContext, Severity, Violation, Violations, conv, rule
from npuconv.rules.target_limits import EXTENTS, advice_on_shape
from npuconv.target.facts import lookup

if TYPE_CHECKING:
    from npuconv.target.limit import Limit


@rule(
    "SHP017",
    severity=Severity.WARNING,
    message="the device takes {limit} for {fact}, but the model leaves that open ({nodes})",
    fires=conv(x="1,3,H,8"),
    silent=CONV,
    device="operators: {Conv: {limits: {in_h: {max: 100}}}}",
)
def extent_not_judged(model: Model, ctx: RuleContext) -> Violations:
    open_limits: dict[str, tuple[Limit, list[Node]]] = {}  # limit and nodes by fact
    for node in model.nodes(*query.CONVOLUTIONS):
        facts, limits = ctx.facts(node), ctx.limits(node)
        for name in EXTENTS if facts else ():
            limit = limits.get(name)
            if limit is not None and limit.is_documented and lookup(facts, name) is None:
                open_limits.setdefault(name, (limit, []))[1].append(node)
    for name, (limit, nodes) in open_limits.items():
        yield Violation(
            {"limit": limit.text(), "fact": name, "nodes": count(len(nodes), "node")},
            value=name,
            limit=limit.text(),
            source=limit.cite(),
            fix=advice_on_shape(model, nodes[0]),
            node=nodes[0],
        )
