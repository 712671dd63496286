"""Integer convolution of the device by its definition, to compare the simulator with.

Padding is the stored integer 0 for any zero point: if the zero point of a padded input is not
0, the result differs from the definition of ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.gemmlowp import Multipliers, scaled
from npuconv.arithmetic.whole import Rounding, WholeArray, shifted_right

Array = NDArray[Any]
Requantize = Callable[[NDArray[np.int32]], Array]

# Magnitude up to which a float32 or float64 sum of integers is exact in any order.
_EXACT32, _EXACT64 = 2**24, 2**53


@dataclass(frozen=True)
class IntegerConv:
    """A convolution in the integers of the device."""

    weight: Array  # int8 [M, C/group, kernel...]
    bias: Array | None  # int32 [M], or None
    strides: Sequence[int]  # one for each spatial axis
    dilations: Sequence[int]  # one for each spatial axis
    pads: Sequence[int]  # all begins, then all ends, as in ONNX
    group: int = 1  # 1, or a divisor of the input channels


def accumulate(layer: IntegerConv, x: Array, x_zero: int = 0, w_zero: Array | int = 0) -> Array:
    """Return the int32 accumulators of a layer, bias included.

    Args:
        layer: the convolution.
        x: stored integers [N, C, spatial...].
        x_zero: zero point of ``x``; subtracted from padding as well, which is stored as 0.
        w_zero: zero point of the weights, scalar or [M].
    """
    axes = layer.weight.ndim - 2
    points = np.asarray(w_zero, np.int64).reshape(-1, *[1] * (axes + 1))
    weight = layer.weight.astype(np.int64) - points
    sides = [(layer.pads[k], layer.pads[k + axes]) for k in range(axes)]
    padded = np.pad(x, [(0, 0), (0, 0), *sides]).astype(np.int32) - x_zero
    total = _products(layer, padded.astype(_exact(weight, padded)), weight)
    if layer.bias is not None:
        total += layer.bias.astype(np.int64).reshape(1, -1, *[1] * axes)
    return total.astype(np.int32)  # wraps round, as the register does


def _exact(weight: Array, x: Array) -> type[np.floating[Any]]:
    """Return the cheapest type that adds up all products of a layer exactly."""
    sums = int(np.abs(weight).reshape(len(weight), -1).sum(1).max(initial=0))
    largest = sums * int(np.abs(x).max(initial=0))
    assert largest <= _EXACT64
    return np.float32 if largest <= _EXACT32 else np.float64


def _products(layer: IntegerConv, x: Array, weight: Array) -> NDArray[np.int64]:
    """Return sums of products: one matrix product for each position of the kernel."""
    count, channels, *extents = x.shape
    outputs, kernel = weight.shape[0], weight.shape[2:]
    sizes = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(extents, kernel, layer.dilations, layer.strides, strict=True)
    ]
    group = layer.group
    rows = weight.astype(x.dtype).reshape(group, outputs // group, -1, *kernel)
    total = np.zeros((count, group, outputs // group, int(np.prod(sizes))), x.dtype)
    for place in np.ndindex(*kernel):
        axes = zip(place, layer.dilations, layer.strides, sizes, strict=True)
        slices = [slice(k * d, k * d + (size - 1) * s + 1, s) for k, d, s, size in axes]
        window: tuple[Any, ...] = (..., *slices)
        columns = np.ascontiguousarray(x[window])
        columns = columns.reshape(count, group, channels // group, -1)
        factors = rows[(..., *place)]  # [G, M, C]; of one channel without a library call for each
        total += factors * columns if factors.shape[-1] == 1 else factors @ columns
    return total.astype(np.int64).reshape(count, outputs, *sizes)


def convolve(
    layer: IntegerConv, x: Array, requantize: Requantize, x_zero: int = 0, w_zero: Array | int = 0
) -> Array:
    """Return the integer output of a layer.

    Args:
        layer: the convolution.
        x: stored integers [N, C, spatial...].
        requantize: makes output integers of accumulators [N, M, spatial...], as ``by_float``
            and ``by_shift`` do.
        x_zero: zero point of ``x``.
        w_zero: zero point of the weights, scalar or [M].
    """
    return requantize(accumulate(layer, x, x_zero, w_zero))


def by_float(total: ArrayLike, factors: ArrayLike, zero: ArrayLike = 0) -> NDArray[Any]:
    """Requantize accumulators by float32 factors, rounded half to even, saturated.

    Args:
        total: int32 [N, M, spatial...].
        factors: float32, scalar or [M].
        zero: zero point of the result, whose type the result has; int8 for a plain number.
    """
    sums = np.asarray(total)
    scaled = sums.astype(np.float32) * column(np.asarray(factors, np.float32), sums.ndim)
    return saturated(np.rint(scaled), zero)


def by_shift(
    total: ArrayLike,
    multiplier: ArrayLike,
    shift: ArrayLike,
    zero: ArrayLike = 0,
    rounding: Rounding = "half_away",
) -> NDArray[Any]:
    """Requantize accumulators by integers, shifted right with rounding, saturated.

    Args:
        total: int32 [N, M, spatial...].
        multiplier: scalar or [M], below 2**31.
        shift: scalar or [M], 0..62.
        zero: zero point of the result, whose type the result has; int8 for a plain number.
        rounding: direction in which half a step is rounded.
    """
    sums = np.asarray(total).astype(np.int64)
    product = sums * column(np.asarray(multiplier, np.int64), sums.ndim)
    places = column(np.asarray(shift, np.int64), sums.ndim)
    return saturated(shifted_right(WholeArray(product), places, rounding).values, zero)


def by_gemmlowp(total: ArrayLike, factors: Multipliers, zero: ArrayLike = 0) -> NDArray[Any]:
    """Requantize accumulators with two roundings, saturated.

    Args:
        total: int32 [N, M, spatial...].
        factors: one, or [M].
        zero: zero point of the result, whose type the result has; int8 for a plain number.
    """
    sums = WholeArray.from_array(total)
    parts = (factors.multiplier, factors.exponent)
    columns = Multipliers(*(column(part, sums.values.ndim) for part in parts))
    return saturated(scaled(sums, columns).values, zero)


def saturated(whole: NDArray[Any], zero: ArrayLike) -> NDArray[Any]:
    """Return whole numbers moved by a zero point, within 8 bits of its type; int8 if plain."""
    point = np.asarray(zero)
    dtype = point.dtype if point.dtype.itemsize == 1 else np.dtype(np.int8)
    limits = np.iinfo(dtype)
    moved = whole + point.astype(whole.dtype)
    return np.asarray(np.clip(moved, limits.min, limits.max)).astype(dtype)


def column(values: NDArray[Any], rank: int) -> NDArray[Any]:
    """Return numbers of channels in the layout of accumulators [N, M, spatial...]."""
    return values.reshape(-1, *[1] * (rank - 2)) if values.ndim else values
