"""AveragePool over height and width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from npuconv.arithmetic.rescaling import HIGHEST, LOWEST, Rescaling, TensorScale, ratio
from npuconv.arithmetic.whole import Integers, W, Whole, spatial, window_sums
from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.operator import Attributes, Operator, register
from npuconv.ops.tape import Gradients, Tape, Visit, cells_behind


def _is_defined(node: Node) -> bool:
    """Return whether a pool has two axes, and its extents are rounded down."""
    return query.rank(node.inputs[0]) == 4 and not query.attribute(node, "ceil_mode", 0)


def _in_tflite(node: Node) -> bool:
    """Return whether a pool pads nothing, or counts what it pads."""
    return bool(query.attribute(node, "count_include_pad", 0)) or not any(
        query.attribute(node, "pads", ()) or ()
    )


def _window(attributes: Attributes) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    strides, pads = attributes.get("strides", (1, 1)), attributes.get("pads", (0, 0, 0, 0))
    return attributes["kernel_shape"], strides, pads


def _cells(x: Whole, attributes: Attributes) -> Integers:
    """Return how many cells each window counts [1, 1, H', W']."""
    ones = np.ones((1, 1, *spatial(x, "AveragePool")), np.int64)
    return window_sums(
        ones, *_window(attributes), int(bool(attributes.get("count_include_pad", 0)))
    )


def _kernel(
    attributes: Attributes, values: Sequence[W], scales: Sequence[TensorScale], how: Rescaling
) -> W:
    """Return ``round(sum(x - zx) * sx / (n * sy)) + zy``, n the cells that a window counts."""
    (x,), (x_at, y_at) = values, scales
    factors = ratio(x_at.scale, over=y_at.scale) / np.maximum(_cells(x, attributes), 1)
    sums = x_at.centred(x).windows(*_window(attributes))
    return y_at.stored(how.rescaled((sums, factors)))


def _tflite_kernel(
    attributes: Attributes, values: Sequence[W], scales: Sequence[TensorScale], _: Any
) -> W:
    """Mean of the stored values, half a step away from zero; padding counts as the number 0."""
    (x,), x_at = values, scales[0]
    cells = _cells(x, attributes)
    total = x_at.centred(x).windows(*_window(attributes)).plus(cells * x_at.zero)
    return total.plus(total.sign().times(cells // 2)).over(cells).clipped(LOWEST, HIGHEST)


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    """Spread each value over its window; pads count as in ``count_include_pad``."""
    shape, kernel = at.shape(), at.attributes["kernel_shape"]
    strides = at.attributes.get("strides", [1] * len(kernel))
    pads = at.attributes.get("pads", [0, 0] * len(kernel))
    share = np.full((shape[1], 1, *kernel), 1 / math.prod(kernel))
    padding = cells_behind(at, strides, kernel, pads)
    if min(padding) < 0:
        return {}
    attributes = {"strides": strides, "pads": pads, "group": shape[1], "output_padding": padding}
    return {0: tape.add("ConvTranspose", at.dy, tape.constant(share), **attributes)}


register(
    Operator(
        name="AveragePool",
        adjoint=_adjoint,
        is_defined=_is_defined,
        kernel=_kernel,
        integer_form="QLinearAveragePool",
        in_tflite=_in_tflite,
        tflite_kernel=_tflite_kernel,
        tflite_scale="input",
    )
)
