"""The dilation is one the device does not take.

What it checks:
    `dilations` against the target's limits.

Why it matters:
    A dilated kernel reads lines that lie further apart than the line buffer may hold.

How to fix:
    Retrain with another dilation, or write the kernel out with zeros between its cells.
"""

from __future__ import annotations

from npuconv.rules import conv, limit_rule

limit_rule(
    __name__,
    "SHP008",
    "dilation_h",
    "dilation_w",
    fires=conv("dilations = [3, 1]", x="1,3,12,12"),
    silent=conv("dilations = [2, 1]", x="1,3,12,12"),
    device="operators: {Conv: {limits: {dilation_h: {max: 2}}}}",
)
