"""Most bytes that cross between device and host do so in the middle of the model.

What it checks:
    The tensors that cross because operators of the host are between operators of the
    device: ten at least, and more than half of all bytes that cross.

Why it matters:
    For each of them the device stops, hands over, and is started again. That can take
    longer than the convolutions between them.

How to fix:
    List operators that the chip has in the target file; they then run on the device in
    int8. Otherwise train the model with others, such as Relu instead of HardSwish.
"""

from __future__ import annotations

from npuconv.amounts import size
from npuconv.model import Model
from npuconv.partition.crossings import crossings, detours
from npuconv.rules import CONV, RuleContext, Severity, Violation, Violations, rule
from npuconv.rules.host_nodes import reasons

_FEWEST_TENSORS = 10  # fewer cost little beside the convolutions
_SHARE = 0.5  # share of the bytes that cross, or of tensors if bytes are not known


@rule(
    "OPS009",
    severity=Severity.WARNING,
    stage="planned",
    message="{amount} are between layers of the device: {reasons}{size}",
    fires="""
        input x: float[1,3,8,8]
        weight w: float[3,3,1,1]
        a = Conv (x, w)
        b, c, d, e = Split <axis = 2> (a)
        f = Conv (b, w)
        g = Conv (c, w)
        h = Conv (d, w)
        i = Conv (e, w)
        j = Concat <axis = 2> (f, g, h, i)
        k = Conv (j, w)
    """,
    silent=CONV,
)
def crossings_dominate(model: Model, ctx: RuleContext) -> Violations:
    if ctx.plan is None:
        return
    trips, ports = detours(model, ctx.plan), crossings(model, ctx.plan).ports
    sizes = [port.bytes for port in ports if port.bytes is not None]
    sized = len(sizes) == len(ports) and trips.bytes is not None
    share = (trips.bytes or 0) / max(sum(sizes), 1) if sized else trips.tensors / max(len(ports), 1)
    if trips.tensors < _FEWEST_TENSORS or share <= _SHARE:
        return
    size_text = f"; {size(trips.bytes or 0)} per inference" if sized else ""
    amount = f"{trips.tensors} of {len(ports)} crossings"
    values = {"amount": amount, "reasons": reasons(trips.causes, ctx), "size": size_text}
    yield Violation(values, value=amount)
