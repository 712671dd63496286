"""Turn average pools into depthwise convolutions.

AveragePool and GlobalAveragePool are a convolution whose weights are all one over the
number of cells, if the target does not take the pools, and takes that convolution.
Needed are the number of channels, and for the global one the extents.

Refuses pads that do not count (``count_include_pad=0``): the number that is divided
by differs at the border. Refuses a window that is larger than its input. Refuses an
extent that ``ceil_mode`` rounds up, or may round up: the window of its last cell
exceeds the input. ``--no-offload`` leaves all alone.
"""

from __future__ import annotations

import math

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.conv_forms import (
    CHANNELS_SECOND,
    ConvForm,
    considered,
    obstacle,
    replace_by_conv,
)
from npuconv.model import Model, Node, Window, query, window
from npuconv.model.conv import Dims, effective_kernel

GLOBAL = "GlobalAveragePool"
_UNKNOWN_CHANNELS = "the number of its channels is not known"


@register_pass(
    Phase.LEGALIZE, "AveragePool", GLOBAL, after=("fold-pad", "resolve-auto-pad"), infers=True
)
def rewrite_average_pool_as_conv(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    if not device.offloads(node) or query.is_constant(node.inputs[0]):
        return 0
    form = _convolution(model, device, node)
    return replace_by_conv(model, log, [node], form, is_whole=node.op == GLOBAL)


def _convolution(model: Model, device: TargetDevice, node: Node) -> ConvForm | str:
    dims, dtype = query.shape(node.inputs[0]), query.dtype_name(node.inputs[0])
    layout = CHANNELS_SECOND.get(len(dims)) if dims is not None and len(dims) > 2 else None
    if dims is None or layout is None:
        return "its rank is not known" if dims is None else f"its input has rank {len(dims)}"
    if dtype != "float32":
        return f"it computes in {dtype}" if dtype else "its type is not known"
    dims_2d = layout.apply(dims)
    win = _of_whole(dims, dims_2d) if node.op == GLOBAL else _of_kernel(node, dims, dims_2d)
    if isinstance(win, str):
        return win
    reason = obstacle(model, device, layout, win, fits=True)
    if reason:
        return reason
    assert win.weight is not None
    share = np.float32(1.0 / math.prod(win.weight[2:]))
    return ConvForm(node.inputs[0], layout, win, np.full(win.weight, share))


def _of_whole(dims: Dims, dims_2d: Dims) -> Window | str:
    """Return the convolution whose kernel is as large as its input."""
    kernel = tuple(d for d in dims_2d[2:] if isinstance(d, int))
    if len(kernel) < len(dims_2d[2:]):
        axis = next(i for i, d in enumerate(dims[2:]) if not isinstance(d, int))
        return f"the extent of spatial axis {axis} is not known"
    if not isinstance(dims[1], int):
        return _UNKNOWN_CHANNELS
    return considered((dims[1], 1, *kernel), dims_2d, group=dims[1])


def _of_kernel(node: Node, dims: Dims, dims_2d: Dims) -> Window | str:
    """Return the convolution with the windows of the pool; one spatial axis is the width."""
    pool, channels = window(node), dims[1]
    if pool is None or pool.kernel is None or len(pool.kernel) != len(dims) - 2:
        return "its kernel does not fit its input"
    if not isinstance(channels, int):
        return _UNKNOWN_CHANNELS
    if reason := _obstacle(node, pool):
        return reason
    missing = len(dims_2d) - len(dims)
    ones = (1,) * missing
    return considered(
        (channels, 1, *ones, *pool.kernel),
        dims_2d,
        group=channels,
        strides=(*ones, *pool.strides),
        dilations=(*ones, *pool.dilations),
        pads=((0, 0),) * missing + pool.pads,
    )


def _obstacle(node: Node, pool: Window) -> str:
    """Return why the pool is not an average of equally many cells everywhere, or ''."""
    if pool.auto_pad != "NOTSET":
        return f"it still has auto_pad={pool.auto_pad}"
    padded = any(pair != (0, 0) for pair in pool.pads)
    if padded and not query.attribute(node, "count_include_pad", 0):
        return "padded cells do not count, so it divides by another number at the border"
    assert pool.kernel is not None
    # Cells of each axis behind the first window.
    reaches = map(effective_kernel, pool.kernel, pool.dilations)
    remainders = [
        None if (extent := pool.extent(axis)) is None else extent + sum(pads) - reach
        for axis, (pads, reach) in enumerate(zip(pool.pads, reaches, strict=True))
    ]
    if any(cells is not None and cells < 0 for cells in remainders):
        return "its window is larger than its input, of which runtimes average what is there"
    for axis, (cells, stride) in enumerate(zip(remainders, pool.strides, strict=True)):
        if stride == 1 or not query.attribute(node, "ceil_mode", 0):
            continue
        if cells is None:
            return f"it rounds up, and the extent of spatial axis {axis} is not known"
        if cells % stride:
            return f"it rounds the extent of spatial axis {axis} up"
    return ""
