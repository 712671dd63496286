"""A tensor of the convolution is larger, or of another multiple, than the device takes.

What it checks:
    Batch, channels, height and width of input, output and weights, and channels per
    group, against the target's limits.

Why it matters:
    Extents are held in registers of fixed width, and channels are processed in blocks.

How to fix:
    Give a smaller input with --input-shape, split the layer, or pad its channels.
"""

from __future__ import annotations

from npuconv.rules import CONV, conv, limit_rule

LIMITS = (
    "in_n", "in_c", "in_h", "in_w", "out_n", "out_c", "out_h", "out_w", "weight_n", "weight_c",
    "weight_h", "weight_w", "in_c_per_group", "out_c_per_group", "C",
)  # fmt: skip


limit_rule(
    __name__,
    "SHP010",
    *LIMITS,
    fires=CONV,
    silent=conv(x="1,4,8,8", w="4,4,3,3"),
    device="operators: {Conv: {limits: {in_c: {multiple_of: 4}}}}",
)
