"""Integer semantics of the int8 operators of TFLite beside the convolution: its reference kernels.

They hold where a target says ``requantize: gemmlowp``. Some operators of TFLite have a scale of
their own: LOGISTIC makes multiples of 1/256, a pool keeps the scale that it reads. Where another
is wanted, a QUANTIZE follows, which rounds once more. Source: the kernels of LiteRT 2.3,
``tflite/kernels/internal/reference``; the tests compare them value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.gemmlowp import (
    LARGEST_FACTOR,
    Multipliers,
    divided,
    of_factors,
    scaled,
)
from npuconv.arithmetic.operators import TensorScale
from npuconv.arithmetic.whole import Integers, W, WholeArray, resized, spatial, window_sums

Attributes = Mapping[str, Any]
Scales = Sequence[TensorScale]  # of what is read, then of what is made
Floats = NDArray[np.float32]
Kernel = Callable[[Attributes, Sequence[Any], Scales], Any]  # of any subclass of Whole

LOWEST, HIGHEST = -128, 127
FIXED = {
    "Sigmoid": TensorScale(1 / 256, -128),
    "Softmax": TensorScale(1 / 256, -128),
    "Tanh": TensorScale(1 / 128, 0),
}
KEEPS_SCALE = ("AveragePool", "Resize")  # what they make has the scale that they read
_SUM_BITS = 20  # by which ADD shifts what it adds
_SHARE_BITS = 31  # of an exponential
_RESIZE_BITS = 10  # of a weight of RESIZE_BILINEAR
_LEAST_SLOPE = 1e-6  # of which the scale of slopes that are all 0 is made
_EVERY = np.arange(LOWEST, HIGHEST + 1, dtype=np.int64)


def made_at(op: str, scales: Scales) -> TensorScale:
    """Return the scale of what TFLite's operator makes, whatever is wanted.

    Args:
        op: ONNX's name.
        scales: of what it reads, and of what is wanted.
    """
    return scales[0] if op in KEEPS_SCALE else FIXED.get(op, scales[-1])


def compute(op: str, attributes: Attributes, values: Sequence[W], scales: Scales) -> W:
    """Return int8 values of an operator, and of the QUANTIZE that follows where it must.

    Args:
        op: ONNX's name.
        attributes: of the node; of a Resize with ``sizes`` or ``scales`` of all axes, of
            a PRelu with its slopes as ``alpha``.
        values: int8 values that it reads.
        scales: of these, and of the result.
    """
    *read, wanted = scales
    made = made_at(op, scales)
    found = _RUN[op](attributes, values, [*read, made])
    return requantized(found, made, wanted)


def requantized(x: W, x_at: TensorScale, y_at: TensorScale) -> W:
    """Return values under another scale: QUANTIZE of int8."""
    if x_at == y_at:
        return x
    factor = np.float64(np.float32(x_at.scale)) / np.float64(np.float32(y_at.scale))
    whole = scaled(_centred(x_at), _by(factor))
    return x.looked_up(_stored(whole, y_at).values)


def _centred(at: TensorScale) -> WholeArray:
    """Return what every int8 stands for in steps of its scale."""
    return WholeArray(_EVERY - at.zero)


def _stored(whole: W, at: TensorScale) -> W:
    return whole.plus(at.zero).clipped(LOWEST, HIGHEST)


def _product(*scales: float) -> np.float64:
    """Return the product of float32 numbers, the last of which divides, each step in float32."""
    first, *others, last = (np.float32(scale) for scale in scales)
    for other in others:
        first = np.float32(first * other)
    return np.float64(np.float32(first / last))


def _by(factor: np.float64) -> Multipliers:
    """Return the multiplier of a factor; beyond the largest all but 0 saturates, as with it."""
    return of_factors(np.minimum(np.asarray(factor), LARGEST_FACTOR))


def _add(_: Attributes, values: Sequence[W], scales: Scales, sign: int = 1) -> W:
    """Both to one scale, with 20 bits below its steps; the sum once more."""
    a_at, b_at, y_at = scales
    twice = 2 * np.float64(max(np.float32(a_at.scale), np.float32(b_at.scale)))
    parts = [
        x.looked_up(
            scaled(
                _centred(at).times(1 << _SUM_BITS), _by(np.float64(np.float32(at.scale)) / twice)
            ).values
        )
        for x, at in zip(values, (a_at, b_at), strict=True)
    ]
    total = parts[0].plus(parts[1].times(sign) if sign < 0 else parts[1])
    step = np.float64(np.float32(y_at.scale)) * (1 << _SUM_BITS)
    return _stored(scaled(total, _by(twice / step)), y_at)


def _subtract(attributes: Attributes, values: Sequence[W], scales: Scales) -> W:
    return _add(attributes, values, scales, -1)


def _multiply(_: Attributes, values: Sequence[W], scales: Scales) -> W:
    a_at, b_at, y_at = scales
    product = values[0].plus(-a_at.zero).times(values[1].plus(-b_at.zero))
    return _stored(scaled(product, _by(_product(a_at.scale, b_at.scale, y_at.scale))), y_at)


def _matmul(_: Attributes, values: Sequence[W], scales: Scales) -> W:
    a_at, b_at, y_at = scales
    total = values[0].plus(-a_at.zero).product(values[1].plus(-b_at.zero))
    factor = np.float64(_product(a_at.scale, b_at.scale, 1.0)) / np.float64(np.float32(y_at.scale))
    return _stored(scaled(total, _by(factor)), y_at)


def _average_pool(attributes: Attributes, values: Sequence[W], scales: Scales) -> W:
    """Mean of what is stored, half a step away from zero; padding that counts is the number 0."""
    (x,), zero = values, scales[0].zero
    kernel, strides = attributes["kernel_shape"], attributes.get("strides", (1, 1))
    pads = attributes.get("pads", (0, 0, 0, 0))
    ones = np.ones((1, 1, *spatial(x, "AveragePool")), np.int64)
    counted = int(bool(attributes.get("count_include_pad", 0)))
    cells = window_sums(ones, kernel, strides, pads, counted)
    total = x.plus(-zero).windows(kernel, strides, pads).plus(cells * zero)
    return total.plus(total.sign().times(cells // 2)).over(cells).clipped(LOWEST, HIGHEST)


def _mean(attributes: Attributes, values: Sequence[W], scales: Scales) -> W:
    """Sum of what is stored, by a multiplier that the number of values divides."""
    (x,), (x_at, y_at) = values, scales
    high, wide = spatial(x, "ReduceMean")
    total = x.plus(-x_at.zero).total((2, 3), keep=bool(attributes.get("keepdims", 1)))
    factor = _by(_product(x_at.scale, y_at.scale))
    exponent = int(factor.exponent)
    places = min((high * wide).bit_length() - 1, 32, 31 + exponent)
    multiplier = (int(factor.multiplier) << places) // (high * wide)
    by = Multipliers(np.asarray(multiplier), np.asarray(exponent - places))
    return _stored(scaled(total, by), y_at)


def _concat(attributes: Attributes, values: Sequence[W], scales: Scales) -> W:
    *read, made = scales
    moved = [requantized(x, at, made) for x, at in zip(values, read, strict=True)]
    return moved[0].beside(moved[1:], int(attributes["axis"]))


def _resize(attributes: Attributes, values: Sequence[W], _: Scales) -> W:
    """Weights of 10 bits along both axes, half a step away from zero."""
    (x,) = values
    mode = str(attributes.get("coordinate_transformation_mode", "half_pixel"))
    rows, columns = (
        _weights(before, after, mode)
        for before, after in zip(spatial(x, "Resize"), resized(x, attributes), strict=True)
    )
    return divided(x.between(rows, columns.T), 2 * _RESIZE_BITS).clipped(LOWEST, HIGHEST)


def _weights(before: int, after: int, mode: str) -> Integers:
    """Return the whole weights of each value of the result [after, before]."""
    one = 1 << _RESIZE_BITS
    corners, half = mode == "align_corners", mode in ("half_pixel", "pytorch_half_pixel")
    scale = (one * before + after // 2) // after
    if corners and after > 1:
        scale = (one * (before - 1) + (after - 1) // 2) // (after - 1)
    found = np.zeros((after, before), np.int64)
    for k in range(after):
        place = k * scale + (scale // 2 - one // 2 if half else 0)
        below = min(max(place // one, 0), before - 1)
        above = min((place + one - 1) // one, before - 1)
        found[k, below] += one - (place - one * below)
        found[k, above] += place - one * below
    return found


def _softmax(attributes: Attributes, values: Sequence[W], scales: Scales) -> W:
    """Exponentials from a table, over their sum, half a step upwards.

    The kernel has float32 numbers here. Multiples of ``2**-31`` differ from them only where a
    result lies within their last bits of a tie.
    """
    (x,), axis = values, int(attributes.get("axis", -1))
    scale = np.float32(scales[0].scale)
    exponentials = np.exp(-scale * np.arange(256, dtype=np.float32)).astype(np.float64)
    table = np.rint(np.ldexp(exponentials, _SHARE_BITS)).astype(np.int64)
    shares = x.times(-1).plus(x.largest(axis)).entries(table)
    total = shares.total((axis,))
    steps = shares.times(2 * 256).plus(total).over(total.times(2))
    return steps.plus(LOWEST).clipped(LOWEST, HIGHEST)


def _of_table(function: Callable[[Floats], Floats]) -> Kernel:
    """Return an operator that TFLite computes in float32 for each int8, half away from zero."""

    def run(_: Attributes, values: Sequence[W], scales: Scales) -> W:
        """Look up the integers of the input in a table made for the two scales."""
        x_at, y_at = scales
        real = np.float32(x_at.scale) * _centred(x_at).values.astype(np.float32)
        inverse = np.float32(1) / np.float32(y_at.scale)
        steps = (function(real) * inverse).astype(np.float64)
        whole = WholeArray.of(np.sign(steps) * np.floor(np.abs(steps) + 0.5))
        return values[0].looked_up(_stored(whole, y_at).values)

    return run


def _leaky(attributes: Attributes, values: Sequence[W], scales: Scales) -> W:
    """Two multipliers: one above the zero point, one below, with a slope that is not negative."""
    x_at, y_at = scales
    slope = float(np.asarray(attributes.get("alpha", 0.01)).item())
    above = scaled(_centred(x_at), _by(_product(x_at.scale, y_at.scale))).values
    below = scaled(_centred(x_at), _by(_product(x_at.scale, slope, y_at.scale))).values
    whole = WholeArray(np.where(_centred(x_at).values >= 0, above, below))
    return values[0].looked_up(_stored(whole, y_at).values)


def is_leaky(values: ArrayLike) -> bool:
    """Return whether slopes are one that a LEAKY_RELU has, which is float there."""
    return np.size(values) == 1 and np.min(values) >= 0


def slopes(values: ArrayLike) -> tuple[NDArray[np.int8], np.float32]:
    """Return the slopes of a PRELU as int8, with their scale; the zero point is 0."""
    real = np.asarray(values, np.float32)
    scale = np.float32(max(float(np.abs(real).max(initial=0.0)), _LEAST_SLOPE) / HIGHEST)
    return np.rint(real / scale).astype(np.int8), scale


def _prelu(attributes: Attributes, values: Sequence[W], scales: Scales) -> W:
    """Two multipliers as well; below the zero point of the product with the slope in int8."""
    (x,), (x_at, y_at) = values, scales
    if is_leaky(attributes["alpha"]):
        return _leaky(attributes, values, scales)
    stored, scale = slopes(attributes["alpha"])
    whole = x.plus(-x_at.zero)
    reach = HIGHEST - LOWEST
    above = scaled(whole.clipped(0, reach), _by(_product(x_at.scale, y_at.scale)))
    product = whole.clipped(-reach, 0).times(stored.astype(np.int64))
    below = scaled(product, _by(_product(x_at.scale, float(scale), y_at.scale)))
    return _stored(above.plus(below), y_at)


def _hard_swish(_: Attributes, values: Sequence[W], scales: Scales) -> W:
    """Numbers of 16 bits: the input times 128, and ``min(max(x / 3, -1), 1)``."""
    x_at, y_at = scales
    fine = np.float32(1 / 128) * np.float32(x_at.scale)
    made = _by(np.float64(np.float32(fine / np.float32(y_at.scale))))
    bent = _by(np.float64(np.float32(fine / np.float32(3 / 32768))))
    wide = _centred(x_at).times(128)
    places = int(bent.exponent)
    ramp = wide
    if places > 0:
        ramp = _short(ramp.times(1 << (places - 1)))
    ramp = _short_product(ramp, bent)
    if places > 0:
        ramp = _short(ramp.times(2))
    ramp = divided(ramp, max(-places, 0)).plus(1 << 15).shifted(1)
    product = _short(ramp.times(_short_product(wide, made)).over(1 << 15))
    whole = divided(product, max(-int(made.exponent), 0))
    return values[0].looked_up(_stored(whole, y_at).values)


def _short(whole: W) -> W:
    return whole.clipped(-(2**15), 2**15 - 1)


def _short_product(whole: W, factor: Multipliers) -> W:
    """Return the product with the upper 16 bits of a multiplier, half a step upwards."""
    high = min((int(factor.multiplier) + (1 << 15)) >> 16, 2**15 - 1)
    return whole.times(high).plus(1 << 14).shifted(15)


_RUN: dict[str, Kernel] = {
    "Add": _add,
    "Sub": _subtract,
    "Mul": _multiply,
    "MatMul": _matmul,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _mean,
    "ReduceMean": _mean,
    "Concat": _concat,
    "Resize": _resize,
    "Softmax": _softmax,
    "Sigmoid": _of_table(lambda x: np.float32(1) / (np.float32(1) + np.exp(-x))),
    "Tanh": _of_table(np.tanh),
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "HardSwish": _hard_swish,
}
OPERATORS = frozenset(_RUN)
