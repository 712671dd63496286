"""An operator that the device has, beyond its limits.

What it checks:
    Pools, Pad, Add and every other operator that the target lists and that is no
    convolution: its limits and its `require` relations.

Why it matters:
    The device does not run this one, so its tensors travel to the host and back. That
    costs time, not correctness.

How to fix:
    Nothing, if the crossing can be afforded. Otherwise change the named fact: a smaller
    kernel, fewer channels, another mode.
"""

from __future__ import annotations

from npuconv.model import Node
from npuconv.rules import RuleContext, Severity, Violations, rule

LIMITS = (
    "ceil_mode", "count_include_pad", "pad_mode", "pad_outside_hw", "blocksize", "axis",
    "axes", "perm", "all_but_two", "broadcast", "step_max", "resize_mode", "coordinate_mode",
    "constant_operand", "depth", "indices_rank", "alpha", "beta",
)  # fmt: skip


@rule(
    "OPS007",
    severity=Severity.NOTE,
    ops={"*"},
    limits=LIMITS,
    message="{problem}: it runs on the host",
    model="""
        input x: float[1,3,8,8]
        y = MaxPool <kernel_shape = [{}]> (x)
    """,
    fires="3, 3",
    silent="2, 2",
    device="operators: {MaxPool: {limits: {kernel_h: {max: 2}}}}",
)
def operator_beyond_limits(node: Node, ctx: RuleContext) -> Violations:
    if ctx.target.unlisted_operators != "error":  # else no-host-for-operator reports it
        yield from ctx.beyond_listed(node)
