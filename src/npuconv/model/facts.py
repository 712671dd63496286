"""What a target can limit, measured on a node. The names are those of ``npuconv.facts``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.model.conv import Window, window

if TYPE_CHECKING:
    from npuconv.facts import FactValue
    from npuconv.model.types import Node

    Measured = dict[str, FactValue | None]

_AXES = ("h", "w")
_DIMS = ("n", "c", "h", "w")


def measure(node: Node) -> Measured:
    """Facts of a convolution or pool; ``None`` where a dimension is not known.

    Returns:
        An empty dict for nodes that slide no kernel, and for those of unknown rank.
    """
    win = window(node)
    if win is None or win.axes is None:
        return {}
    layout = "nhwc" if node.domain == "com.ms.internal.nhwc" else "nchw"
    return {**of_window(win), "layout": layout, **_types(node)}


def of_window(win: Window) -> Measured:
    """The facts that do not depend on types: also of a convolution that is only considered."""
    return {
        "rank": (win.axes or 0) + 2,
        "mode": win.mode,
        "auto_pad": win.auto_pad,
        "group": win.group,
        "pad_value": 0,
        **_windows(win),
        **_extents(win),
        **_channels(win),
    }


def _types(node: Node) -> Measured:
    bias = query.input_of(node, 2) if node.op in query.CONVOLUTIONS else None
    return {
        "dtype": query.dtype_name(node.inputs[0]) or None,
        "weight_dtype": query.dtype_name(query.input_of(node, 1)) or None,
        "bias": bias is not None,
        "bias_dtype": query.dtype_name(bias) or None,
        "weight_constant": query.constant_input(node, 1) is not None,
    }


def _windows(win: Window) -> Measured:
    """Per-axis numbers; a chip's height and width are the last two axes."""
    facts: Measured = {"pad_max": max((max(p) for p in win.pads), default=0)}
    begin_end = (("pad_top", "pad_bottom"), ("pad_left", "pad_right"))
    for name, (begin, end), axis in zip(_AXES, begin_end, _last_two(win), strict=True):
        known = axis is not None and win.kernel is not None and axis < len(win.kernel)
        if axis is None or not known or win.kernel is None:
            continue
        kernel, dilation = win.kernel[axis], win.dilations[axis]
        facts |= {
            f"kernel_{name}": kernel,
            f"stride_{name}": win.strides[axis],
            f"dilation_{name}": dilation,
            f"dilated_kernel_{name}": (kernel - 1) * dilation + 1,
            f"output_padding_{name}": win.output_padding[axis],
            begin: win.pads[axis][0],
            end: win.pads[axis][1],
        }
    return facts


def _last_two(win: Window) -> tuple[int | None, int | None]:
    axes = win.axes or 0
    return (axes - 2 if axes > 1 else None, axes - 1 if axes > 0 else None)


def _extents(win: Window) -> Measured:
    facts: Measured = {}
    shapes = {"in": win.input, "out": win.output, "weight": win.weight}
    for prefix, dims in shapes.items():
        if dims is not None and len(dims) == len(_DIMS):
            pairs = zip(_DIMS, dims, strict=True)
            facts |= {f"{prefix}_{n}": d if isinstance(d, int) else None for n, d in pairs}
    return facts


def _channels(win: Window) -> Measured:
    facts: Measured = {"in_c": win.in_channels, "out_c": win.out_channels}
    if win.weight is None or win.group < 1:
        return facts
    area = math.prod(win.kernel or (1,))
    per_group = (win.in_channels or 0) // win.group
    facts |= {
        "kernel_area": area,
        "kernel_volume": area * per_group,
        "in_c_per_group": per_group,
        "out_c_per_group": (win.out_channels or 0) // win.group,
    }
    if win.mode == "depthwise":
        facts["channel_multiplier"] = (win.out_channels or 0) // win.group
    return facts
