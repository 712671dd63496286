"""A few large weights leave too few steps for all others of their channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.diagnostics import Severity
from npuconv.model import query
from npuconv.rules import Example, Violation, rule

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext

STEPS = 3  # 99 of 100 weights within -3..3: 7 of 255 levels


@rule(
    "QNT004",
    ops={"Conv"},
    severity=Severity.WARNING,
    message="outliers in {rows} of {channels} channels leave 99 % of their weights "
    "{levels} levels or fewer; the largest is {times} times the rms, and rounding leaves {sqnr} dB",
    example=Example(
        fires="""
            input x: float[1,16,8,8]
            weight w: float[4,16,3,3] = 100, ...
            y = Conv (x, w)
        """,
        silent="""
            input x: float[1,16,8,8]
            weight w: float[4,16,3,3]
            y = Conv (x, w)
        """,
    ),
)
def weights_with_outliers(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """A few large weights leave too few steps for all others of their channel.

    What it checks:
        Whether 99 of 100 weights of an output channel round to -3..3 when the largest
        becomes 127, and whether that leaves the channel less than 36 dB. For the whole
        layer at once where the target has one scale for it.

    Why it matters:
        A scale is made from the largest weight. Beside one that is far larger than the
        rest, the rest is rounded to a handful of numbers, and the channel is noise.

    How to fix:
        Fold batch normalization before export, fine-tune with weight decay, or clip
        the outliers and measure the float model again.
    """
    weight = query.constant_input(node, 1)
    if weight is None or weight.dtype.kind != "f" or not weight.size:
        return
    from npuconv.rules._outliers import find_outliers

    found = find_outliers(weight, STEPS, per_tensor=ctx.target.weights.granularity == "tensor")
    if found is not None:
        values = {
            "rows": found.rows,
            "channels": weight.shape[0],
            "levels": 2 * STEPS + 1,
            "times": f"{found.times:.0f}",
            "sqnr": f"{found.sqnr_db:.1f}",
        }
        limit = f"more than {2 * STEPS + 1} levels"
        yield Violation(values, value=f"{found.rows} channels", limit=limit)
