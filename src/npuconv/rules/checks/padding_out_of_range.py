"""The convolution pads more than the device does.

What it checks:
    Each of the four pads, the largest of them and the output padding against the
    target's limits.

Why it matters:
    Padding is done by hardware that counts to a fixed number.

How to fix:
    Pad on the host before the convolution, or choose smaller pads.
"""

from __future__ import annotations

from npuconv.rules import conv, limit_rule

LIMITS = (
    "pad_top", "pad_left", "pad_bottom", "pad_right", "pad_max", "output_padding_h",
    "output_padding_w",
)  # fmt: skip


limit_rule(
    __name__,
    "SHP009",
    *LIMITS,
    fires=conv("pads = [2, 2, 2, 2]", w="4,3,5,5"),
    silent=conv("pads = [1, 1, 1, 1]", w="4,3,5,5"),
    device="operators: {Conv: {limits: {pad_top: {max: 1}}}}",
)
