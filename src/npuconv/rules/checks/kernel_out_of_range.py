"""The kernel is larger, or of another form, than the device takes.

What it checks:
    Height, width, dilated extent, area and volume of the kernel against the target's
    limits.

Why it matters:
    The multiply-accumulate array and the line buffer have fixed sizes.

How to fix:
    Replace the kernel by two smaller kernels in sequence (two 3x3 cover a 5x5), or
    retrain.
"""

from __future__ import annotations

from npuconv.rules import CONV, conv, limit_rule

LIMITS = (
    "kernel_h", "kernel_w", "dilated_kernel_h", "dilated_kernel_w", "kernel_area",
    "kernel_volume",
)  # fmt: skip


limit_rule(
    __name__,
    "SHP006",
    *LIMITS,
    fires=conv(w="4,3,5,5"),
    silent=CONV,
    device="operators: {Conv: {limits: {kernel_h: {max: 3}}}}",
)
