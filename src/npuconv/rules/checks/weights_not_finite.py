"""The weights of the convolution hold NaN or an infinity.

What it checks:
    Every number of the weights, where they are constant.

Why it matters:
    A scale is made from the largest weight of a channel. One that is not a
    number makes the whole channel useless.

How to fix:
    Look for the training step that diverged, and export an earlier
    checkpoint.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.model import Node, query
from npuconv.rules import CONV, RuleContext, Violation, Violations, conv, rule


@rule(
    "DTY003",
    ops={"Conv", "ConvTranspose"},
    message="{count} of {size} weights are NaN or infinite",
    fires=conv(weights="nan, ..."),
    silent=CONV,
)
def weights_not_finite(node: Node, _ctx: RuleContext) -> Violations:
    weight = query.constant_input(node, 1)
    if weight is None or weight.dtype.kind != "f" or np.isfinite(weight).all():
        return
    count = int(np.sum(~np.isfinite(weight)))
    yield Violation({"count": count, "size": weight.size}, value=str(count), limit="0")
