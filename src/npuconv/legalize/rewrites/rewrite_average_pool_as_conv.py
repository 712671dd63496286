"""Turn average pools into depthwise convolutions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.as_conv import (
    ConvForm,
    channels_second,
    considered,
    convolve,
    obstacle,
)
from npuconv.model import edit, query
from npuconv.model.conv import effective_kernel, window

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.conv import Window
    from npuconv.model.core import Model
    from npuconv.model.types import Node

    Dims = tuple[int | str | None, ...]

GLOBAL = "GlobalAveragePool"


@model_pass(Phase.LEGALIZE, after=("fold-pad", "resolve-auto-pad"), infers=True)
def rewrite_average_pool_as_conv(model: Model, ctx: PassContext) -> int:
    """Turn average pools into depthwise convolutions.

    AveragePool and GlobalAveragePool are a convolution whose weights are all one over the
    number of cells, where the target does not list them and takes that convolution.
    Needed are the number of channels, and for the global one the extents.

    Refuses pads that do not count (``count_include_pad=0``): the number that is divided
    by differs at the border. Refuses a window that is larger than its input. Refuses an
    extent that ``ceil_mode`` rounds up, or may round up: its last cell averages what hangs
    over the edge. ``--no-offload`` leaves all alone.
    """
    return sum(_rewrite(model, ctx, node) for node in model.nodes("AveragePool", GLOBAL))


def _rewrite(model: Model, ctx: PassContext, node: Node) -> int:
    if not ctx.offloads(node) or query.is_constant(node.inputs[0]):
        return 0
    found = _convolution(model, ctx, node)
    if isinstance(found, str):
        ctx.refuse(model, node, found)
        return 0
    # The global one holds for its extents only.
    modulus = None if node.op == GLOBAL else math.lcm(*found.win.strides)
    with ctx.rewrite(model, [node], node.op, found.text(), modulus=modulus):
        edit.hand_over(convolve(model, node, found), node.outputs[0])
        edit.disconnect(node)
    return 1


def _convolution(model: Model, ctx: PassContext, node: Node) -> ConvForm | str:
    import numpy as np

    dims, dtype = query.shape(node.inputs[0]), query.dtype_name(node.inputs[0])
    layout = channels_second(len(dims)) if dims is not None and len(dims) > 2 else None
    if dims is None or layout is None:
        return "its rank is not known" if dims is None else f"its input has rank {len(dims)}"
    if dtype != "float32":
        return f"it computes in {dtype}" if dtype else "its type is not known"
    seen = layout.seen(dims)
    win = _of_whole(dims, seen) if node.op == GLOBAL else _of_kernel(node, dims, seen)
    if isinstance(win, str):
        return win
    reason = obstacle(model, ctx, layout, win)
    if reason:
        return reason
    assert win.weight is not None
    share = np.float32(1.0 / math.prod(win.weight[2:]))
    return ConvForm(node.inputs[0], layout, win, np.full(win.weight, share))


def _of_whole(dims: Dims, seen: Dims) -> Window | str:
    """The convolution whose kernel is as large as its input."""
    kernel = tuple(d for d in seen[2:] if isinstance(d, int))
    if len(kernel) < len(seen[2:]):
        axis = next(i for i, d in enumerate(dims[2:]) if not isinstance(d, int))
        return f"the extent of spatial axis {axis} is not known"
    channels = _channels(dims)
    if isinstance(channels, str):
        return channels
    return considered((channels, 1, *kernel), seen, group=channels)


def _of_kernel(node: Node, dims: Dims, seen: Dims) -> Window | str:
    """The convolution that slides as the pool does; one spatial axis is the width."""
    pool, channels = window(node), _channels(dims)
    if pool is None or pool.kernel is None or len(pool.kernel) != len(dims) - 2:
        return "its kernel does not fit its input"
    reason = channels if isinstance(channels, str) else _obstacle(node, pool)
    if reason or isinstance(channels, str):
        return reason
    missing = len(seen) - len(dims)
    ones = (1,) * missing
    return considered(
        (channels, 1, *ones, *pool.kernel),
        seen,
        group=channels,
        strides=(*ones, *pool.strides),
        dilations=(*ones, *pool.dilations),
        pads=((0, 0),) * missing + pool.pads,
    )


def _channels(dims: Dims) -> int | str:
    return dims[1] if isinstance(dims[1], int) else "the number of its channels is not known"


def _obstacle(node: Node, pool: Window) -> str:
    """Return why the pool is not an average of equally many cells everywhere, or ''."""
    if pool.auto_pad != "NOTSET":
        return f"it still has auto_pad={pool.auto_pad}"
    padded = any(pair != (0, 0) for pair in pool.pads)
    if padded and not query.attribute(node, "count_include_pad", 0):
        return "padded cells do not count, so it divides by another number at the border"
    if any(_overhangs(pool, axis) for axis in range(len(pool.strides))):
        return "its window is larger than its input, of which runtimes average what is there"
    if query.attribute(node, "ceil_mode", 0):
        return next(filter(None, (_rounding(pool, axis) for axis in range(len(pool.strides)))), "")
    return ""


def _overhangs(pool: Window, axis: int) -> bool:
    assert pool.kernel is not None
    extent = pool.extent(axis)
    reach = effective_kernel(pool.kernel[axis], pool.dilations[axis])
    return extent is not None and extent + sum(pool.pads[axis]) < reach


def _rounding(pool: Window, axis: int) -> str:
    """Return why ``ceil_mode`` matters on this axis, or ''."""
    assert pool.kernel is not None
    stride, extent = pool.strides[axis], pool.extent(axis)
    if stride == 1:
        return ""
    if extent is None:
        return f"it rounds up, and the extent of spatial axis {axis} is not known"
    reach = effective_kernel(pool.kernel[axis], pool.dilations[axis])
    if (extent + sum(pool.pads[axis]) - reach) % stride:
        return f"it rounds the extent of spatial axis {axis} up"
    return ""
