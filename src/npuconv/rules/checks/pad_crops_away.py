"""A Pad with negative amounts leaves nothing of an axis.

What it checks:
    The constant amounts of every Pad against the extents of its input, where those
    are known.

Why it matters:
    An empty axis has no values to calibrate, and onnxruntime ends the whole process on
    an axis of negative extent.

How to fix:
    Repair the amounts, or give the input's real shape with --input-shape.
"""

from __future__ import annotations

from npuconv.model import Node, query
from npuconv.rules import RuleContext, Violation, Violations, rule


@rule(
    "SHP015",
    ops={"Pad"},
    malformed=True,
    message="axis {axis} has {extent} cells and is cropped by {cropped}",
    model="""
        input x: float[1,3,8,8]
        weight p: int64[8] = 0, 0, {}, 0, 0, 0, 0, 0
        weight w: float[4,3,3,3]
        a = Pad (x, p)
        y = Conv (a, w)
    """,
    fires="-8",
    silent="-5",
)
def pad_crops_away(node: Node, _ctx: RuleContext) -> Violations:
    amounts, dims = query.pad_amounts(node), query.shape(node.inputs[0])
    for axis, (pair, extent) in enumerate(zip(amounts or (), dims or (), strict=False)):
        if isinstance(extent, int) and extent + sum(pair) <= 0:
            values = {"axis": axis, "extent": extent, "cropped": -sum(pair)}
            yield Violation(values, value=str(list(pair)), limit=f"less than {extent} cells")
