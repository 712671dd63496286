"""Most nodes of the model run on the host.

What it checks:
    The share of nodes that run on the device: less than a quarter, and twenty at least on the
    host.

Why it matters:
    The convolutions may be most of the multiplications, and the host still takes longer for
    all that is between them, in float.

How to fix:
    List operators that the chip has in the target file; they then run on the device in
    int8. Otherwise train a model of operators that it has.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import CONV, RuleContext, Severity, Violation, Violations, rule
from npuconv.rules.host_nodes import reasons

_SHARE = 0.25  # least share of nodes on the device
_FEWEST_NODES = 20  # fewer cost little beside the convolutions


@rule(
    "OPS011",
    severity=Severity.WARNING,
    stage="planned",
    message="{amount} run on the device: {reasons}",
    fires="""
        input x: float[1,3,8,8]
        weight w: float[3,3,1,1]
        a = Conv (x, w)
        b = Sin (a) c = Sin (b) d = Sin (c) e = Sin (d) f = Sin (e)
        g = Sin (f) h = Sin (g) i = Sin (h) j = Sin (i) k = Sin (j)
        l = Sin (k) m = Sin (l) n = Sin (m) o = Sin (n) p = Sin (o)
        q = Sin (p) r = Sin (q) s = Sin (r) t = Sin (s)
        y = Sin (t)
    """,
    silent=CONV,
)
def host_dominates(model: Model, ctx: RuleContext) -> Violations:
    if ctx.plan is None or not ctx.plan.convolutions:
        return
    nodes = model.nodes()
    host = [node for node in nodes if ctx.plan.placement[id(node)] != "device"]
    number = len(nodes) - len(host)
    if len(host) >= _FEWEST_NODES and number < _SHARE * len(nodes):
        amount = f"{number} of {len(nodes)} nodes"
        values = {"amount": amount, "reasons": reasons(host, ctx)}
        yield Violation(values, value=amount)
