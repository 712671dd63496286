"""Encodings: scale and zero point of every channel of a tensor, and the integers they give.

The arithmetic follows ONNX QuantizeLinear and DequantizeLinear, in float32:
``q = saturate(round_half_even(x / scale) + zero_point)`` and
``x = (q - zero_point) * scale``.

The device multiplies integers of one scale and of one zero point, mostly 0. Channel c of a
tensor may still be ``scales[c] * (q - zeros[c])``: the consumers of the tensor have the scale in
their weights and the zero point in their bias; the producer has the scale in the factor of its
output channel and the zero point in its bias. The device works with ``nominal``, one number for
all channels, of which only ratios matter. An operator other than a convolution gets ``nominal``
and a single zero point for all channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.errors import ModelError
from npuconv.records import dataclass

Floats = NDArray[np.float32]
LOWEST, HIGHEST = -128, 127
# A denormal scale is flushed to 0 by some hardware, and x / 0 follows.
SMALLEST_SCALE = float(np.finfo(np.float32).tiny)


def quantize(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike = 0,
    axis: int | None = None,
    *,
    lowest: int = -128,
) -> NDArray[np.int8]:
    """Return integers for real numbers, rounding half to even, saturating to lowest..127.

    Args:
        x: real numbers without NaN, any shape; computed in float32.
        scale: scalar, or [C] with C the length of ``axis``.
        zero_point: integer scalar, or [C].
        axis: axis of ``x`` that the scales run along; None for one scale.
        lowest: smallest integer used; -127 for weights.
    """
    values = np.asarray(x, np.float32)
    # A quotient beyond float32 becomes infinite and saturates like any large value.
    with np.errstate(over="ignore"):
        steps = np.asarray(values / _expand(np.asarray(scale, np.float32), axis, values.ndim))
    np.rint(steps, out=steps)
    steps += _expand(np.asarray(zero_point, np.float32), axis, values.ndim)
    return np.clip(steps, lowest, 127, out=steps).astype(np.int8)


def dequantize(
    q: ArrayLike, scale: ArrayLike, zero_point: ArrayLike = 0, axis: int | None = None
) -> Floats:
    """Return real numbers (float32) for integers; arguments as for :func:`quantize`.

    Integers may come as floats; fractions, as of a mean, are not rounded.
    """
    values = np.asarray(q)
    zero = _expand(np.asarray(zero_point, np.int32), axis, values.ndim)
    wide = values if values.dtype.kind == "f" else values.astype(np.int32)
    steps = (wide - zero).astype(np.float32)
    return np.asarray(steps * _expand(np.asarray(scale, np.float32), axis, values.ndim))


def decimals(values: ArrayLike) -> Any:
    """Return a number, or a list [C], of float32 the shortest decimals that round to them."""
    array = np.asarray(values)
    if array.dtype.kind != "f":
        return array.tolist()
    listed = [float(str(number)) for number in array.ravel()]
    return listed if array.ndim else listed[0]


def quantize_weights(weight: ArrayLike) -> tuple[NDArray[np.int8], Floats]:
    """Round weights to symmetric int8 with one scale per output channel.

    Args:
        weight: finite real numbers [M,...].

    Returns:
        int8 weights in -127..127 (-128 has no negative), and float32 scales [M].

    Raises:
        ModelError: a weight is not finite.
    """
    values = finite(weight, "weights")
    scales = weight_scales(np.abs(values).reshape(len(values), -1).max(axis=1, initial=0.0))
    return quantize(values, scales, axis=0, lowest=-127), scales


def weight_scales(limits: ArrayLike) -> Floats:
    """Return scales that map -limits..limits to -127..127, float32.

    Never 0 and never denormal; 1.0 where the limit is 0: every scale represents zeros exactly,
    and 1.0 disturbs no product of scales.
    """
    largest = np.asarray(limits).astype(np.float64)
    scales = np.maximum(largest / HIGHEST, SMALLEST_SCALE)
    return np.asarray(np.where(largest == 0, 1.0, scales), np.float32)


def finite(values: ArrayLike, name: str) -> Floats:
    """Return values as float32.

    Raises:
        ModelError: a value is not finite; ``name`` is the subject of the message.
    """
    with np.errstate(over="ignore"):
        result = np.asarray(values).astype(np.float32)
    if not np.isfinite(result).all():
        raise ModelError(f"{name} hold values that are not finite in float32")
    return result


def _expand(values: NDArray[Any], axis: int | None, rank: int) -> NDArray[Any]:
    if axis is None or values.ndim == 0:
        return values
    return values.reshape([-1 if k == axis % rank else 1 for k in range(rank)])


@dataclass(frozen=True)
class Encoding:
    """Int8 encoding of one tensor."""

    scales: Floats  # float32 [C], above 0; C is 1 where all channels are alike
    zeros: NDArray[np.int32]  # int32 [C], -128..127
    nominal: np.float32  # scale of the tensor in the file
    axis: int | None = None  # axis of the channels; None where C is 1
    nominal_zero: int = 0  # zero point of the tensor in the file; 0 if the file has none

    @classmethod
    def plain(cls, scale: float | np.float32) -> Encoding:
        """Return an encoding of one scale and zero point 0."""
        value = np.float32(scale)
        return cls(np.full(1, value), np.zeros(1, np.int32), value)

    @property
    def is_plain(self) -> bool:
        """True if all channels have the nominal scale and zero point."""
        alike = np.all(self.scales == self.nominal) and np.all(self.zeros == self.nominal_zero)
        return bool(alike)

    def equals(self, encoding: Encoding) -> bool:
        """Return whether scales, zero points and nominal scale are equal."""
        pairs = ((self.scales, encoding.scales), (self.zeros, encoding.zeros))
        return self.nominal == encoding.nominal and all(np.array_equal(a, b) for a, b in pairs)

    @property
    def stored(self) -> Encoding:
        """Return the encoding of the tensor in the file: one scale, one zero point."""
        zeros = np.full(1, self.nominal_zero, np.int32)
        return Encoding(np.full(1, self.nominal), zeros, self.nominal, None, self.nominal_zero)

    @property
    def to_stored(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Factors and offsets [C] from values of the model to values of the ``stored`` encoding.

        ``s (q - z) = x`` and ``n (q - Z) = y``, so ``y = x n / s + n (z - Z)``.
        """
        nominal = float(self.nominal)
        offsets = nominal * (self.zeros - self.nominal_zero)
        return nominal / self.scales.astype(np.float64), offsets.astype(np.float64)

    @property
    def from_stored(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Factors and offsets [C] from values of the ``stored`` encoding to values of the model."""
        scales = self.scales.astype(np.float64)
        return scales / float(self.nominal), scales * (self.nominal_zero - self.zeros)

    def quantize(self, values: ArrayLike) -> NDArray[np.int8]:
        """Return the integers of a tensor."""
        return quantize(values, *self._arguments())

    def dequantize(self, stored: ArrayLike) -> Floats:
        """Return the real values of stored integers."""
        return dequantize(stored, *self._arguments())

    def _arguments(self) -> tuple[Floats, NDArray[np.int32], int | None]:
        if self.axis is None:
            return self.scales[0], self.zeros[0], None
        return self.scales, self.zeros, self.axis


def scales_for(
    lows: ArrayLike, highs: ArrayLike, fixed: ArrayLike, zero: ArrayLike = 0
) -> tuple[Floats, NDArray[np.int32]]:
    """Return scales and zero points under which lows..highs, and 0, are not clipped.

    Args:
        lows: smallest values [C].
        highs: largest values [C].
        fixed: whether the zero point must be ``zero`` [C].
        zero: integer -128..127, or [C].

    Returns:
        float32 scales [C], never 0 or denormal (a channel of zeros gets the smallest scale of the
        others), and int32 zeros [C].
    """
    low = np.minimum(np.asarray(lows, np.float64), 0)
    high = np.maximum(np.asarray(highs, np.float64), 0)
    fixed, zero = np.asarray(fixed, bool), np.asarray(zero, np.int64)
    # If there are no levels on one side of 0, a value there takes a scale beyond all use.
    above, below = np.maximum(HIGHEST - zero, 1e-9), np.minimum(LOWEST - zero, -1e-9)
    spread = np.where(fixed, np.maximum(high / above, low / below), (high - low) / 255)
    # A channel without values must not coarsen the weights of the others.
    smallest = spread[spread > 0].min(initial=np.inf)
    unused = smallest if np.isfinite(smallest) else 1.0
    scales = np.maximum(np.where(spread > 0, spread, unused), SMALLEST_SCALE).astype(np.float32)
    offsets = np.clip(np.rint(LOWEST - low / scales), LOWEST, HIGHEST)
    zeros = np.where(fixed, zero, offsets)
    return scales, zeros.astype(np.int32)


def common_zero(lows: ArrayLike, highs: ArrayLike) -> int:
    """Return the zero point under which the scales of all channels are smallest.

    Each scale counts as its square, relative to the scale with the best zero point of its channel.

    Args:
        lows: smallest values [C], at most 0.
        highs: largest values [C], at least 0.
    """
    zeros = np.arange(LOWEST, HIGHEST + 1)
    smallest, _ = scales_for(lows, highs, False)
    scales, _ = scales_for(lows, highs, True, zeros[:, None])
    live = (np.asarray(lows) < 0) | (np.asarray(highs) > 0)
    ratios = scales[:, live] / smallest[live].astype(np.float64)
    return int(zeros[np.square(ratios).sum(axis=1).argmin()])


_WIDER = np.linspace(1.0, 1.1, 401)  # factors of a scale; value 255 moves by 0.06 of a step
_VALUES = 4096  # number of values on which steps are compared


def scale_of_constant(values: ArrayLike, *, centred: bool) -> tuple[np.float32, np.int32]:
    """Return the scale and zero point that represent a constant with the least squared error.

    Scales up to a tenth larger than the range of the constant and 0 needs are tried: positions of
    anchors and the like are on a grid, and then have no error.

    Args:
        values: array of any shape.
        centred: whether the zero point must be 0.
    """
    flat = np.sort(np.asarray(values, np.float32), axis=None)
    (scale,), (zero,) = scales_for([flat.min(initial=0.0)], [flat.max(initial=0.0)], [centred])
    x = flat[np.linspace(0, len(flat) - 1, min(len(flat), _VALUES)).astype(np.intp)]
    candidates = (scale * _WIDER).astype(np.float32)
    errors = [np.square(dequantize(quantize(x, s, zero), s, zero) - x).sum() for s in candidates]
    return candidates[int(np.argmin(errors))], zero
