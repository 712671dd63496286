"""The stride is one the device does not take.

What it checks:
    `strides` against the target's limits.

Why it matters:
    Address generators step by a few fixed distances only.

How to fix:
    Use a smaller stride followed by a pool, or stride 1 and a slice.
"""

from __future__ import annotations

from npuconv.rules import Example, limit_rule

limit_rule(
    __name__,
    "SHP007",
    "stride_h",
    "stride_w",
    example=Example(
        fires="""
            input x: float[1,3,8,8]
            weight w: float[4,3,3,3]
            y = Conv <strides = [3, 3]> (x, w)
        """,
        silent="""
            input x: float[1,3,8,8]
            weight w: float[4,3,3,3]
            y = Conv <strides = [2, 2]> (x, w)
        """,
        device="operators: {Conv: {limits: {stride_h: {max: 2}}}}",
    ),
)
