"""AveragePool over height and width."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from npuconv.arithmetic.rescaling import HIGHEST, LOWEST, ratio
from npuconv.arithmetic.whole import Integers, Whole, spatial, window_sums
from npuconv.model import Node, query
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import Arguments, Attributes, W, register
from npuconv.ops.tape import Gradients, Tape, Visit, cells_behind
from npuconv.tflite.draft import CHANNELS_LAST, Draft
from npuconv.tflite.windows import named_padding, padded, pads_of, pool_options


def _is_defined(node: Node) -> bool:
    """Return whether a pool has two axes, and its extents are rounded down."""
    return query.rank(node.inputs[0]) == 4 and not query.attribute(node, "ceil_mode", 0)


def _in_tflite(node: Node) -> bool:
    """Return whether a pool has no padding, or counts it in the average."""
    return bool(query.attribute(node, "count_include_pad", 0)) or not any(
        query.attribute(node, "pads", ()) or ()
    )


def _window(attributes: Attributes) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    strides, pads = attributes.get("strides", (1, 1)), attributes.get("pads", (0, 0, 0, 0))
    return attributes["kernel_shape"], strides, pads


def _cells(x: Whole, attributes: Attributes) -> Integers:
    """Return the number of cells that each window counts [1, 1, H', W']."""
    ones = np.ones((1, 1, *spatial(x, "AveragePool")), np.int64)
    fill = int(bool(attributes.get("count_include_pad", 0)))
    return window_sums(ones, *_window(attributes), fill)


def _kernel(call: Arguments[W]) -> W:
    """Return ``round(sum(x - zx) * sx / (n * sy)) + zy``, n the cells that a window counts."""
    (x,), (x_at, y_at) = call.values, call.scales
    factors = ratio(x_at.scale, over=y_at.scale) / np.maximum(_cells(x, call.attributes), 1)
    sums = x_at.centred(x).windows(*_window(call.attributes))
    return y_at.stored(call.rescaling.rescaled((sums, factors)))


def _tflite_kernel(call: Arguments[W]) -> W:
    """Return the mean of the stored values, half a step away from zero; pads count as 0."""
    (x,), x_at = call.values, call.scales[0]
    cells = _cells(x, call.attributes)
    total = x_at.centred(x).windows(*_window(call.attributes)).plus(cells * x_at.zero)
    return total.plus(total.sign().times(cells // 2)).over(cells).clipped(LOWEST, HIGHEST)


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    """Spread each value over its window; pads count as in ``count_include_pad``."""
    shape, kernel = visit.shape(), visit.attributes["kernel_shape"]
    strides = visit.attributes.get("strides", [1] * len(kernel))
    pads = visit.attributes.get("pads", [0, 0] * len(kernel))
    share = np.full((shape[1], 1, *kernel), 1 / math.prod(kernel))
    padding = cells_behind(visit, strides, kernel, pads)
    if min(padding) < 0:
        return {}
    attributes = {"strides": strides, "pads": pads, "group": shape[1], "output_padding": padding}
    return {0: tape.add("ConvTranspose", visit.dy, tape.constant(share), **attributes)}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append an AVERAGE_POOL_2D, which never counts its padding.

    Padding that TFLite has no name for is padded before with 0 and counted; where ONNX does not
    count it, a MUL makes up for it.
    """
    attrs = attributes_of(node)
    source = draft.read(node.input[0], CHANNELS_LAST)
    kernel, strides = attrs["kernel_shape"], attrs.get("strides", (1, 1))
    pads, counted = pads_of(attrs), bool(attrs.get("count_include_pad", 0))
    stored = draft.graph.tensors[source]
    named = named_padding(stored.shape[1:3], kernel, strides, pads)
    # TFLite must not know that counted cells are padding.
    explicit = counted and any(pads)
    source, padding = padded(draft, source, kernel, strides, pads, explicit=explicit)
    options = pool_options(kernel, strides, padding)
    output = draft.store(node.output[0], CHANNELS_LAST)
    if named or counted:
        draft.emit("AVERAGE_POOL_2D", [source], [output], "Pool2DOptions", **options)
        return
    pooled = draft.step("AVERAGE_POOL_2D", [source], output, table="Pool2DOptions", **options)
    ones = np.ones((1, 1, *stored.shape[1:3]), np.int64)
    counts = window_sums(ones, kernel, strides, pads)  # values of each window that are no padding
    shares = (math.prod(kernel) / counts).astype(np.float32).transpose(0, 2, 3, 1)
    number = draft.number(f"{node.name}/shares", shares)
    draft.emit("MUL", [pooled, number], [output], "MulOptions")


register(
    "AveragePool",
    is_defined=_is_defined,
    kernel=_kernel,
    adjoint=_adjoint,
    integer_form="QLinearAveragePool",
    in_tflite=_in_tflite,
    tflite_kernel=_tflite_kernel,
    tflite_scale="input",
    to_tflite=_to_tflite,
)
