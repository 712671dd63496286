"""Integer semantics of the int8 operators of a device that multiplies by integers and shifts.

They are those of ``npuconv.arithmetic.operators`` with ``requantize: shift``, written for whole
numbers of any kind, so that the simulator has them as a graph. Tables are the same on all devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from npuconv.arithmetic.normalization import Normalization, by_shift
from npuconv.arithmetic.operators import (
    TABLE_STEPS,
    WEIGHT_STEPS,
    Rescaling,
    TensorScale,
    interpolation,
    ratio,
    shifted,
)
from npuconv.arithmetic.whole import W, resized, spatial, window_sums

Attributes = Mapping[str, Any]
Scales = Sequence[TensorScale]  # of what is read, then of what is made
Kernel = Callable[[Attributes, Sequence[Any], Scales, Rescaling], Any]  # of any subclass of Whole
LOWEST, HIGHEST = -128, 127


def compute(
    op: str, attributes: Attributes, values: Sequence[W], scales: Scales, how: Rescaling
) -> W:
    """Return int8 values of an operator.

    Args:
        op: ONNX's name, one of ``OPERATORS``.
        attributes: of the node; of a Resize with ``sizes`` or ``scales`` of all axes, of a Div
            with its ``divisor``, none of whose values is 0, of a LayerNormalization with its
            ``scale`` and, if it has one, its ``bias``.
        values: int8 values that it reads.
        scales: of these, and of the result.
        how: the requantization of the device; factors out of reach get the nearest multiplier.
    """
    found: W = _RUN[op](attributes, values, scales, how)
    return found.plus(scales[-1].zero).clipped(LOWEST, HIGHEST)


def _centred(values: Sequence[W], scales: Scales) -> list[W]:
    return [x.plus(-at.zero) for x, at in zip(values, scales, strict=False)]


def _add(_: Attributes, values: Sequence[W], scales: Scales, how: Rescaling, sign: int = 1) -> W:
    a, b = _centred(values, scales)
    by = [ratio(at.scale, over=scales[-1].scale) for at in scales[:-1]]
    return shifted([(a, by[0]), (b.times(sign), by[1])], how)


def _subtract(attributes: Attributes, values: Sequence[W], scales: Scales, how: Rescaling) -> W:
    return _add(attributes, values, scales, how, -1)


def _multiply(_: Attributes, values: Sequence[W], scales: Scales, how: Rescaling) -> W:
    a, b = _centred(values, scales)
    return shifted([(a.times(b), _product(scales))], how)


def _divide(attributes: Attributes, values: Sequence[W], scales: Scales, how: Rescaling) -> W:
    (x,), by = _centred(values, scales), np.asarray(attributes["divisor"], np.float64)
    signs = np.sign(by).astype(np.int64)
    return shifted([(x.times(signs), float(_over(scales)) / np.abs(by))], how)


def _matmul(_: Attributes, values: Sequence[W], scales: Scales, how: Rescaling) -> W:
    a, b = _centred(values, scales)
    return shifted([(a.product(b), _product(scales))], how)


def _product(scales: Scales) -> np.float32:
    a_at, b_at, y_at = scales
    return ratio(a_at.scale, b_at.scale, over=y_at.scale)


def _average_pool(attributes: Attributes, values: Sequence[W], scales: Scales, how: Rescaling) -> W:
    (x,) = _centred(values, scales)
    window = attributes["kernel_shape"], attributes.get("strides", (1, 1))
    pads = attributes.get("pads", (0, 0, 0, 0))
    ones = np.ones((1, 1, *spatial(values[0], "AveragePool")), np.int64)
    cells = window_sums(ones, *window, pads, int(bool(attributes.get("count_include_pad", 0))))
    return shifted([(x.windows(*window, pads), _over(scales) / np.maximum(cells, 1))], how)


def _mean(attributes: Attributes, values: Sequence[W], scales: Scales, how: Rescaling) -> W:
    (x,) = _centred(values, scales)
    high, wide = spatial(values[0], "ReduceMean")
    total = x.total((2, 3), keep=bool(attributes.get("keepdims", 1)))
    return shifted([(total, _over(scales) / (high * wide))], how)


def _over(scales: Scales) -> np.float32:
    return ratio(scales[0].scale, over=scales[-1].scale)


def _concat(attributes: Attributes, values: Sequence[W], scales: Scales, how: Rescaling) -> W:
    made = scales[-1]
    first, *others = (
        x if at == made else shifted([(x, ratio(at.scale, over=made.scale))], how)
        for x, at in zip(_centred(values, scales), scales, strict=False)
    )
    return first.beside(others, int(attributes["axis"]))


def _resize(attributes: Attributes, values: Sequence[W], scales: Scales, how: Rescaling) -> W:
    (x,) = _centred(values, scales)
    mode = str(attributes.get("coordinate_transformation_mode", "half_pixel"))
    ends = zip(spatial(values[0], "Resize"), resized(values[0], attributes), strict=True)
    rows, columns = (
        np.rint(interpolation(n, size, mode) * WEIGHT_STEPS).astype(np.int64) for n, size in ends
    )
    return shifted([(x.between(rows, columns.T), float(_over(scales)) / WEIGHT_STEPS**2)], how)


def _softmax(attributes: Attributes, values: Sequence[W], scales: Scales, _: Rescaling) -> W:
    (x,), (x_at, y_at) = values, scales
    axis = int(attributes.get("axis", -1))
    real = np.exp(-np.arange(256) * float(np.float32(x_at.scale)))
    steps = x.times(-1).plus(x.largest(axis)).entries(np.rint(real * TABLE_STEPS).astype(np.int64))
    whole = steps.total((axis,)).times(256)
    product = steps.times(round(1 / float(np.float32(y_at.scale)) * 256))
    return product.times(2).plus(whole).over(whole.times(2))


def _normalize(attributes: Attributes, values: Sequence[W], scales: Scales, how: Rescaling) -> W:
    return by_shift(values[0], Normalization.of(attributes), scales, how)


_RUN: dict[str, Kernel] = {
    "Add": _add,
    "AveragePool": _average_pool,
    "Concat": _concat,
    "Div": _divide,
    "GlobalAveragePool": _mean,
    "LayerNormalization": _normalize,
    "MatMul": _matmul,
    "Mul": _multiply,
    "ReduceMean": _mean,
    "Resize": _resize,
    "Softmax": _softmax,
    "Sub": _subtract,
}
OPERATORS = frozenset(_RUN)
