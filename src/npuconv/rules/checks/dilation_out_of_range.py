"""The dilation is one the device does not take.

What it checks:
    `dilations` against the target's limits.

Why it matters:
    A dilated kernel reads lines that lie further apart than the line buffer may hold.

How to fix:
    Retrain with another dilation, or write the kernel out with zeros between its cells.
"""

from __future__ import annotations

from npuconv.rules import Example, limit_rule

limit_rule(
    __name__,
    "SHP008",
    "dilation_h",
    "dilation_w",
    example=Example(
        fires="""
            input x: float[1,3,12,12]
            weight w: float[4,3,3,3]
            y = Conv <dilations = [3, 1]> (x, w)
        """,
        silent="""
            input x: float[1,3,12,12]
            weight w: float[4,3,3,3]
            y = Conv <dilations = [2, 1]> (x, w)
        """,
        device="operators: {Conv: {limits: {dilation_h: {max: 2}}}}",
    ),
)
