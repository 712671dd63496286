"""The stride is one the device does not take.

What it checks:
    `strides` against the target's limits.

Why it matters:
    Address generators step by a few fixed distances only.

How to fix:
    Use a smaller stride followed by a pool, or stride 1 and a slice.
"""

from __future__ import annotations

from npuconv.rules import conv, limit_rule

limit_rule(
    __name__,
    "SHP007",
    "stride_h",
    "stride_w",
    fires=conv("strides = [3, 3]"),
    silent=conv("strides = [2, 2]"),
    device="operators: {Conv: {limits: {stride_h: {max: 2}}}}",
)
