"""Integer semantics of the int8 operators beside the convolution: one function an operator.

A tensor holds int8 ``q``, which stand for ``(q - zero) * scale``; one scale and zero point for a
tensor. Integers are added up exactly; the only rounding is that of the result, once, as the
device requantizes: by float32 factors, or by integer multipliers and one shift. Operators with
one input and no neighbours are tables of 256 entries: ``npuconv.arithmetic.tables``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.device import MAX_SHIFT, saturated, shifts
from npuconv.arithmetic.whole import Rounding, W, WholeArray, shifted_right, window_sums
from npuconv.errors import ModelError

Stored = NDArray[np.int8]
Integers = NDArray[np.int64]
Doubles = NDArray[np.float64]
Term = tuple[ArrayLike, ArrayLike]  # whole numbers, and the factor that they are multiplied by

TABLE_STEPS = 2**24  # of 1, in the exponentials of a Softmax without float
WEIGHT_STEPS = 2**11  # of 1, in the weights of an interpolation without float


@dataclass(frozen=True)
class TensorScale:
    """One scale and zero point: ``x = (q - zero) * scale``."""

    scale: float  # above 0; used as float32
    zero: int = 0  # -128..127

    def centred(self, stored: ArrayLike) -> Integers:
        """Return ``q - zero``, int64."""
        return np.asarray(np.asarray(stored).astype(np.int64) - self.zero)


@dataclass(frozen=True)
class Rescaling:
    """Requantization of the device."""

    # Float multiplies by float32 and rounds half to even; shift multiplies by integers and shifts
    # right.
    kind: Literal["float", "shift"] = "float"
    bits: int = 16  # a multiplier is below ``2**bits``
    max_shift: int = MAX_SHIFT  # the largest shift
    rounding: Rounding = "half_away"  # which way exactly half a step goes after a shift


FLOAT = Rescaling()
Scales = Sequence[TensorScale]  # of what an operator reads, in order, then of its result


def rescale(terms: Sequence[Term], zero: int = 0, how: Rescaling = FLOAT) -> Stored:
    """Return ``saturate(round(sum(whole * factor)) + zero)``.

    Without float the sum is ``shifted``.
    """
    wholes = [np.asarray(whole, np.int64) for whole, _ in terms]
    factors = [np.asarray(factor, np.float32) for _, factor in terms]
    if how.kind == "float":
        parts = [w.astype(np.float32) * f for w, f in zip(wholes, factors, strict=True)]
        return saturated(np.rint(sum(parts[1:], parts[0])), zero)
    total = shifted([(WholeArray(w), f) for w, f in zip(wholes, factors, strict=True)], how)
    return saturated(total.values, zero)


def shifted(terms: Sequence[tuple[W, ArrayLike]], how: Rescaling) -> W:
    """Return ``round(sum(whole * factor))`` by integer multipliers and a shift to the right.

    All terms share one shift, that of the largest factor; the numbers of a single term have a
    shift each. Factors out of reach get the nearest multiplier: with the largest every whole
    number but 0 saturates, as with any beyond it, and with 0 a term counts for nothing.
    """
    factors = [np.minimum(np.asarray(factor, np.float32), 2.0**how.bits - 1) for _, factor in terms]
    places = [places_of(f, how) for f in factors]
    if len(terms) > 1:
        places = [np.asarray(min(int(p.min()) for p in places))] * len(terms)
    multipliers = [
        np.rint(np.ldexp(f.astype(np.float64), p)).astype(np.int64)
        for f, p in zip(factors, places, strict=True)
    ]
    total, *others = (w.times(m) for (w, _), m in zip(terms, multipliers, strict=True))
    for other in others:
        total = total.plus(other)
    return shifted_right(total, places[0], how.rounding)


def places_of(factors: ArrayLike, how: Rescaling) -> Integers:
    """Return how far products with integer multipliers for these factors are shifted right.

    Of factors out of reach it is that of the nearest multiplier: none, or as far as there is.
    """
    near = np.clip(np.asarray(factors, np.float64), 2.0**-how.max_shift, 2.0**how.bits - 1)
    return shifts(near, bits=how.bits, max_shift=how.max_shift).shift


def ratio(*scales: float, over: float) -> np.float32:
    """Return a product of scales over another scale, float32."""
    product = np.float32(1.0)
    for scale in scales:
        product = np.float32(product * np.float32(scale))
    with np.errstate(over="ignore"):
        return np.float32(product / np.float32(over))


def requantize(x: Stored, x_at: TensorScale, y_at: TensorScale, how: Rescaling = FLOAT) -> Stored:
    """Return a tensor under another scale: ``round((x - x_zero) * x_scale / y_scale) + y_zero``."""
    if x_at == y_at:
        return x
    return rescale([(x_at.centred(x), ratio(x_at.scale, over=y_at.scale))], y_at.zero, how)


def add(a: Stored, b: Stored, at: Scales, how: Rescaling = FLOAT) -> Stored:
    """Return ``round((a - za) * sa / sy + (b - zb) * sb / sy) + zy``; shapes broadcast."""
    return _sum(a, b, at, 1, how)


def subtract(a: Stored, b: Stored, at: Scales, how: Rescaling = FLOAT) -> Stored:
    """Return ``round((a - za) * sa / sy - (b - zb) * sb / sy) + zy``; shapes broadcast."""
    return _sum(a, b, at, -1, how)


def _sum(a: Stored, b: Stored, at: Scales, sign: int, how: Rescaling) -> Stored:
    a_at, b_at, y_at = at
    terms = [
        (a_at.centred(a), ratio(a_at.scale, over=y_at.scale)),
        (sign * b_at.centred(b), ratio(b_at.scale, over=y_at.scale)),
    ]
    return rescale(terms, y_at.zero, how)


def multiply(a: Stored, b: Stored, at: Scales, how: Rescaling = FLOAT) -> Stored:
    """Return ``round((a - za) * (b - zb) * sa * sb / sy) + zy``; shapes broadcast."""
    a_at, b_at, y_at = at
    factor = ratio(a_at.scale, b_at.scale, over=y_at.scale)
    return rescale([(a_at.centred(a) * b_at.centred(b), factor)], y_at.zero, how)


def divide(x: Stored, divisor: ArrayLike, at: Scales, how: Rescaling = FLOAT) -> Stored:
    """Return ``round((x - zx) * sx / (divisor * sy)) + zy``: constants are never rounded.

    The divisor broadcasts to ``x``.

    Raises:
        ModelError: a divisor is 0 or not finite.
    """
    (x_at, y_at), by = at, np.asarray(divisor, np.float64)
    if not (np.isfinite(by) & (by != 0)).all():
        raise ModelError("a constant divisor is 0 or not finite")
    factors = float(ratio(x_at.scale, over=y_at.scale)) / np.abs(by)
    signed = x_at.centred(x) * np.sign(by).astype(np.int64)
    return rescale([(signed, factors)], y_at.zero, how)


@dataclass(frozen=True)
class Window:
    """Window of a pool."""

    kernel: Sequence[int]  # height and width
    strides: Sequence[int] = (1, 1)  # of height and width
    pads: Sequence[int] = (0, 0, 0, 0)  # top, left, bottom, right; padded cells are the number 0
    counts_pads: bool = False  # whether the divisor counts padded cells

    def sums(self, values: Integers, fill: int = 0) -> Integers:
        """Return the sum of every window [N, C, H', W']; ``fill`` stands in padded cells."""
        return window_sums(values, self.kernel, self.strides, self.pads, fill)


def average_pool(x: Stored, window: Window, at: Scales, how: Rescaling = FLOAT) -> Stored:
    """Return ``round(sum(x - zx) * sx / (n * sy)) + zy``, n the cells that a window counts.

    ``x`` is [N, C, H, W].
    """
    x_at, y_at = at
    cells = np.ones((1, 1, *x.shape[2:]), np.int64)
    count = np.maximum(window.sums(cells, int(window.counts_pads)), 1)
    factors = ratio(x_at.scale, over=y_at.scale) / count
    return rescale([(window.sums(x_at.centred(x)), factors)], y_at.zero, how)


def reduce_mean(
    x: Stored, axes: Sequence[int], at: Scales, how: Rescaling = FLOAT, *, keepdims: bool = True
) -> Stored:
    """Return ``round(sum(x - zx) * sx / (n * sy)) + zy`` over n values; GlobalAveragePool too."""
    x_at, y_at = at
    count = int(np.prod([x.shape[axis] for axis in axes]))
    sums = x_at.centred(x).sum(axis=tuple(axes), keepdims=keepdims)
    return rescale([(sums, ratio(x_at.scale, over=y_at.scale) / count)], y_at.zero, how)


def concat(parts: Sequence[Stored], axis: int, at: Scales, how: Rescaling = FLOAT) -> Stored:
    """Return the parts behind each other, each requantized; one of the result's scale is exact."""
    *scales, y_at = at
    moved = [requantize(x, x_at, y_at, how) for x, x_at in zip(parts, scales, strict=True)]
    return np.concatenate(moved, axis)


def resize_linear(
    x: Stored, rows: ArrayLike, columns: ArrayLike, at: Scales, how: Rescaling = FLOAT
) -> Stored:
    """Return ``round(rows @ (x - zx) @ columns.T * sx / sy) + zy``.

    ``x`` is [N, C, H, W]; ``interpolation`` makes the weights of rows [H', H] and of columns
    [W', W], which are multiples of ``2**-11`` without float.
    """
    x_at, y_at = at
    high, wide = np.asarray(rows, np.float64), np.asarray(columns, np.float64)
    factor = float(ratio(x_at.scale, over=y_at.scale))
    if how.kind == "float":
        mixed = high @ x_at.centred(x).astype(np.float64) @ wide.T
        return saturated(np.rint(mixed * factor), y_at.zero)
    whole = [np.rint(weights * WEIGHT_STEPS).astype(np.int64) for weights in (high, wide)]
    # Twice the weights' 11 bits and 8 of the values leave 2**32 for a factor below 2**31.
    sums = whole[0] @ x_at.centred(x) @ whole[1].T
    return rescale([(sums, factor / WEIGHT_STEPS**2)], y_at.zero, how)


def interpolation(
    length: int,
    wanted: int,
    mode: str = "half_pixel",
    scale: float = 0,
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> Doubles:
    """Return the weights of a Resize along one axis [wanted, length].

    Args:
        length: values that there are.
        wanted: values to make of them.
        mode: ONNX's coordinate_transformation_mode.
        scale: of the axis; 0: that of the extents.
        attributes: of the node, as far as it is not plainly linear.

    Raises:
        ModelError: the mode needs a region.
    """
    places = coordinates(length, wanted, mode, scale)[:, None]
    cubic, a = attributes.get("mode") == "cubic", attributes.get("cubic_coeff_a", -0.75)
    stretch = max(1 / (scale or wanted / length), 1) if attributes.get("antialias", 0) else 1
    reach = int(np.ceil((2 if cubic else 1) * stretch))
    taps = np.floor(places).astype(np.int64) + np.arange(1 - reach, 1 + reach)
    x = np.abs(taps - places) / stretch
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, a * (((x - 5) * x + 8) * x - 4)
    shares = np.where(x <= 1, near, np.where(x < 2, far, 0)) if cubic else np.maximum(1 - x, 0)
    if attributes.get("exclude_outside", 0):
        shares = np.where((taps >= 0) & (taps < length), shares, 0)
    weights, rows = np.zeros((wanted, length)), np.arange(wanted)[:, None] + 0 * taps
    shares = shares / shares.sum(axis=1, keepdims=True)
    np.add.at(weights, (rows, np.clip(taps, 0, length - 1)), shares)
    return weights


def coordinates(length: int, wanted: int, mode: str, scale: float = 0) -> Doubles:
    """Return the places that the values of a Resize come from [wanted].

    Args: as for ``interpolation``.

    Raises:
        ModelError: the mode needs a region.
    """
    at = np.arange(wanted, dtype=np.float64)
    if mode == "align_corners":
        return at * (length - 1) / max(wanted - 1, 1)
    if mode == "pytorch_half_pixel" and wanted == 1:
        return np.zeros(1)
    half = 0 if mode == "asymmetric" else 0.5
    places = (at + half) / scale - half if scale else (at + half) * length / wanted - half
    if mode == "half_pixel_symmetric" and scale:
        places += (length - wanted / scale) / 2
    elif mode not in ("asymmetric", "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        raise ModelError(f"there is no arithmetic of a Resize with {mode!r}")
    return places


def matmul(a: Stored, b: Stored, at: Scales, how: Rescaling = FLOAT) -> Stored:
    """Return ``round((a - za) @ (b - zb) * sa * sb / sy) + zy`` of two activations."""
    a_at, b_at, y_at = at
    factor = ratio(a_at.scale, b_at.scale, over=y_at.scale)
    return rescale([(a_at.centred(a) @ b_at.centred(b), factor)], y_at.zero, how)


def softmax(x: Stored, axis: int, at: Scales, how: Rescaling = FLOAT) -> Stored:
    """Return ``round(e / sum(e) / sy) + zy`` with ``e = exp(sx * (x - max(x)))``.

    The differences are 0..-255, so e is a table of 256 entries; without float its entries are
    multiples of ``2**-24``, and ``1 / sy`` one of ``2**-8``.
    """
    (x_at, y_at), values = at, np.asarray(x, np.int64)
    behind = values.max(axis, keepdims=True) - values
    table = np.exp(-np.arange(256) * float(np.float32(x_at.scale)))
    inverse = 1 / float(np.float32(y_at.scale))
    if how.kind == "float":
        shares = table[behind] / table[behind].sum(axis, keepdims=True)
        return saturated(np.rint(shares * inverse), y_at.zero)
    steps = np.rint(table * TABLE_STEPS).astype(np.int64)[behind]
    whole = steps.sum(axis, keepdims=True) << 8
    product = steps * round(inverse * 256)
    return saturated((2 * product + whole) // (2 * whole), y_at.zero)
