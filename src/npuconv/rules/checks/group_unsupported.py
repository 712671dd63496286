"""The convolution is split into groups in a way the device does not take.

What it checks:
    `group`, the mode it implies (plain, grouped, depthwise, transposed) and the channel
    multiplier of a depthwise convolution.

Why it matters:
    Hardware has a path for plain convolutions and a path for depthwise convolutions; a
    grouped convolution, 1 < group < C, fits neither.

How to fix:
    Train with group 1 or group = input channels. Or write the convolution with zeros
    between the groups, or as one convolution per group over slices of the channels.
"""

from __future__ import annotations

from npuconv.rules import conv, limit_rule

limit_rule(
    __name__,
    "SHP002",
    "group",
    "mode",
    "channel_multiplier",
    fires=conv("group = 2", x="1,8,9,9", w="8,4,3,3"),
    silent=conv("group = 8", x="1,8,9,9", w="8,1,3,3"),
)
