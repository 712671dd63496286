"""The device's integer convolution, bit by bit.

int8 times int8 is added up in int32, the int32 bias too; what comes out is requantized.
Padding is filled with the stored integer 0 whatever the zero point is: where the zero
point of a padded input is not 0, the device computes something else than ONNX's text says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Requantize = Callable[[NDArray[np.int32]], Array]

# Up to here a float32 or float64 sum of integers is exact in whatever order it is made.
_EXACT32, _EXACT64 = 2**24, 2**53


@dataclass(frozen=True)
class Layer:
    """A convolution as the device holds it.

    Attributes:
        weight: int8 [M, C/group, kernel...].
        bias: int32 [M], or None.
        strides: one for each spatial axis.
        dilations: one for each spatial axis.
        pads: all begins, then all ends, as in ONNX.
        group: 1, or a divisor of the input channels.
    """

    weight: Array
    bias: Array | None
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    group: int = 1


def accumulate(layer: Layer, x: Array, x_zero: int = 0, w_zero: Array | int = 0) -> Array:
    """The int32 accumulators of a layer, bias included.

    Args:
        layer: the convolution.
        x: stored integers [N, C, spatial...].
        x_zero: zero point of ``x``; subtracted from padding as well, which is stored as 0.
        w_zero: zero point of the weights, scalar or [M].
    """
    axes = layer.weight.ndim - 2
    points = np.asarray(w_zero, np.int64).reshape(-1, *[1] * (axes + 1))
    weight = layer.weight.astype(np.int64) - points
    ends = [(layer.pads[k], layer.pads[k + axes]) for k in range(axes)]
    padded = np.pad(x, [(0, 0), (0, 0), *ends]).astype(np.int32) - x_zero
    total = _products(layer, padded.astype(_exact(weight, padded)), weight)
    if layer.bias is not None:
        total += layer.bias.astype(np.int64).reshape(1, -1, *[1] * axes)
    return total.astype(np.int32)  # wraps round, as the register does


def _exact(weight: Array, x: Array) -> type[np.floating[Any]]:
    """The cheapest type that adds up all products of a layer exactly."""
    reach = int(np.abs(weight).reshape(len(weight), -1).sum(1).max(initial=0))
    most = reach * int(np.abs(x).max(initial=0))
    assert most <= _EXACT64
    return np.float32 if most <= _EXACT32 else np.float64


def _products(layer: Layer, x: Array, weight: Array) -> NDArray[np.int64]:
    """Sums of products: one matrix product for each place of the kernel."""
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
        where: tuple[Any, ...] = (..., *_steps(layer, place, sizes))
        seen = x[where]
        columns = np.ascontiguousarray(seen).reshape(count, group, channels // group, -1)
        total += _times(rows[(..., *place)], columns)
    return total.astype(np.int64).reshape(count, outputs, *sizes)


def _times(rows: Array, columns: Array) -> Array:
    """[G, M, C] times [N, G, C, P]; of one channel without a library call for each group."""
    return rows * columns if rows.shape[-1] == 1 else rows @ columns


def _steps(layer: Layer, place: tuple[int, ...], sizes: Sequence[int]) -> list[slice]:
    """Return the slices of the input that one position of the kernel reads."""
    parts = zip(place, layer.dilations, layer.strides, sizes, strict=True)
    return [slice(k * d, k * d + (size - 1) * s + 1, s) for k, d, s, size in parts]


def convolve(
    layer: Layer, x: Array, requantize: Requantize, x_zero: int = 0, w_zero: Array | int = 0
) -> Array:
    """The integer output of a layer.

    Args:
        layer: the convolution.
        x: stored integers [N, C, spatial...].
        requantize: makes output integers of accumulators [N, M, spatial...]; see
            ``npuconv.arithmetic.requantize``.
        x_zero: zero point of ``x``.
        w_zero: zero point of the weights, scalar or [M].
    """
    return requantize(accumulate(layer, x, x_zero, w_zero))
