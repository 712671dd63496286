"""Scales, zero points, and the integers they stand for.

The arithmetic is that of ONNX QuantizeLinear and DequantizeLinear, in float32:
``q = saturate(round_half_even(x / scale) + zero_point)`` and
``x = (q - zero_point) * scale``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.errors import CalibrationError, ModelError

Floats = NDArray[np.float32]
_FLOAT = np.finfo(np.float32)
# A denormal scale is flushed to 0 by some hardware, and x / 0 follows.
_TINY = float(_FLOAT.tiny)
# Three roundings to float32 lie between a wanted scale and the product made from it.
_MARGIN = 1 + 2.0**-20


@dataclass(frozen=True)
class QuantizedLayer:
    """Weights and bias of a convolution as the device takes them.

    Attributes:
        weight: int8, -127..127, shape of the float weights.
        weight_scales: float32 [M], one per output channel.
        bias: int32 [M] with the scale ``bias_scales(input_scale, weight_scales)``, or None.
        raised: output channels with a larger scale than their weights alone ask for,
            because the int32 accumulator would have overflowed.
    """

    weight: NDArray[np.int8]
    weight_scales: Floats
    bias: NDArray[np.int32] | None
    raised: tuple[int, ...]


def symmetric_scale(absmax: float, qmax: int = 127) -> np.float32:
    """Scale that maps -absmax..absmax to -qmax..qmax with zero point 0.

    Never 0 and never denormal. An absmax of 0 gives 1.0: every scale represents a tensor
    of only zeros exactly, and 1.0 disturbs no product of scales.

    Raises:
        CalibrationError: absmax is negative, NaN, or beyond float32.
    """
    return np.float32(_symmetric(np.asarray(absmax), qmax))


def quantize(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike = 0,
    axis: int | None = None,
    *,
    lowest: int = -128,
) -> NDArray[np.int8]:
    """Integers for real numbers, rounding half to even, saturating to lowest..127.

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
        steps = np.rint(values / _along(np.asarray(scale, np.float32), axis, values.ndim))
    steps = steps + _along(np.asarray(zero_point, np.float32), axis, values.ndim)
    return np.asarray(np.clip(steps, lowest, 127), np.int8)


def dequantize(
    q: ArrayLike, scale: ArrayLike, zero_point: ArrayLike = 0, axis: int | None = None
) -> Floats:
    """Real numbers (float32) for integers; arguments as for :func:`quantize`.

    Integers may come as floats. What is between two of them, as a mean is, stays there.
    """
    values = np.asarray(q)
    zero = _along(np.asarray(zero_point, np.int32), axis, values.ndim)
    wide = values if values.dtype.kind == "f" else values.astype(np.int32)
    steps = (wide - zero).astype(np.float32)
    return np.asarray(steps * _along(np.asarray(scale, np.float32), axis, values.ndim))


def quantize_weights(
    weight: ArrayLike, axis: int | None = 0, absmax: ArrayLike | None = None
) -> tuple[NDArray[np.int8], Floats]:
    """Symmetric int8 weights, one scale per output channel.

    Args:
        weight: finite real numbers, any shape.
        axis: axis of the output channels; None for one scale of shape ().
        absmax: magnitudes to clip at, scalar or [M]; default is the largest present.

    Returns:
        int8 weights in -127..127 (-128 has no negative), and float32 scales.

    Raises:
        ModelError: a weight is not finite.
    """
    values = _finite(weight, "weights")
    scales = _weight_scales(values, axis, absmax)
    return quantize(values, scales, axis=axis, lowest=-127), scales


def bias_scales(input_scale: ArrayLike, weight_scales: ArrayLike) -> Floats:
    """Scale of the int32 accumulator, float32 [M]: the float32 product, as onnxruntime takes it."""
    with np.errstate(over="ignore"):
        product = np.asarray(input_scale, np.float32) * np.asarray(weight_scales, np.float32)
    return np.asarray(product, np.float32)


def quantize_bias(
    bias: ArrayLike,
    input_scale: float | np.float32,
    weight_scales: ArrayLike,
    headroom: ArrayLike = 0,
) -> tuple[NDArray[np.int32], Floats, tuple[int, ...]]:
    """Bias as int32, with weight scales raised where it would overflow.

    Args:
        bias: real numbers [M].
        input_scale: scale of the layer's input.
        weight_scales: float32 [M].
        headroom: what the products alone reach, integer scalar or [M], below 2**31 - 1;
            ``|bias| + headroom`` stays within int32.

    Returns:
        int32 bias [M], float32 weight scales [M], and the channels that were raised, whose
        weights must be quantized again; :func:`quantize_layer` does.

    Raises:
        ModelError: a bias that is not finite, or that no float32 scale can represent.
    """
    values = _finite(bias, "bias").astype(np.float64)
    scales = np.array(np.broadcast_to(np.asarray(weight_scales, np.float32), values.shape))
    smallest = np.maximum(np.abs(values) / (2**31 - 1 - np.asarray(headroom, np.int64)), _TINY)
    raised = bias_scales(input_scale, scales) < smallest
    wanted = smallest[raised] * _MARGIN / float(input_scale)
    if np.any(wanted > float(_FLOAT.max)):
        raise ModelError("a bias is too large for the scale of the layer's input")
    scales[raised] = wanted.astype(np.float32)
    steps = np.rint(values / bias_scales(input_scale, scales).astype(np.float64))
    return steps.astype(np.int32), scales, tuple(np.flatnonzero(raised).tolist())


def quantize_layer(
    weight: ArrayLike,
    bias: ArrayLike | None,
    input_scale: float | np.float32,
    axis: int = 0,
    *,
    absmax: ArrayLike | None = None,
    per_tensor: bool = False,
    reach: int = 128,
) -> QuantizedLayer:
    """Weights and bias of one layer, such that no int8 input overflows the accumulator.

    For every output channel ``reach * sum(|weight|) + |bias| < 2**31`` holds in integers.
    A channel of only zeros gets a scale that suits its bias, unless ``per_tensor``.

    Args:
        weight: real numbers, output channels along ``axis``.
        bias: real numbers [M], or None.
        input_scale: scale of the layer's input.
        axis: axis of the output channels.
        absmax: magnitudes to clip the weights at, scalar or [M].
        per_tensor: give all channels the same scale.
        reach: largest magnitude of an input, counted from its zero point.

    Raises:
        ModelError: a weight or bias that is not finite or cannot be represented.
    """
    values = _finite(weight, "weights")
    channels = values.shape[axis]
    offsets = np.zeros(channels) if bias is None else _finite(bias, "bias").astype(np.float64)
    first = _weight_scales(values, None if per_tensor else axis, absmax)
    rows = np.moveaxis(values, axis, 0).reshape(channels, -1)
    first = np.broadcast_to(first, channels)
    if not per_tensor:
        first = _free_scales(rows, offsets / input_scale, first)
    scales, load = _fit_products(rows, first, reach)
    _, scales, _ = quantize_bias(offsets, input_scale, scales, load)
    raised = tuple(np.flatnonzero(scales > first).tolist())
    if per_tensor:
        scales = np.full(channels, scales.max())
    # Larger scales only make |weight| and |bias| smaller: nothing is raised a second time.
    steps, scales, _ = quantize_bias(offsets, input_scale, scales, load)
    quantized = quantize(values, scales, axis=axis, lowest=-127)
    return QuantizedLayer(quantized, scales, None if bias is None else steps, raised)


def _symmetric(absmax: NDArray[Any], qmax: int) -> Floats:
    limits = absmax.astype(np.float64)
    if not np.all((limits >= 0) & (limits <= float(_FLOAT.max))):
        raise CalibrationError("a range must be finite and not negative")
    scales = np.maximum(limits / qmax, _TINY)
    return np.asarray(np.where(limits == 0, 1.0, scales), np.float32)


def _weight_scales(values: Floats, axis: int | None, absmax: ArrayLike | None) -> Floats:
    others = tuple(k for k in range(values.ndim) if axis is None or k != axis % values.ndim)
    limits = np.asarray(np.max(np.abs(values), axis=others, initial=0.0))
    return _symmetric(limits if absmax is None else np.broadcast_to(absmax, limits.shape), 127)


def _free_scales(rows: Floats, bias: NDArray[np.float64], scales: Floats) -> Floats:
    """Scales under which the bias (over input scale) of an all-zero channel has 2**15 steps."""
    free = ~rows.any(axis=1) & (bias != 0)
    wanted = np.clip(np.abs(bias) * 2.0**-15, _TINY, float(_FLOAT.max))
    return np.where(free, wanted, scales).astype(np.float32)


def _fit_products(rows: Floats, scales: Floats, reach: int) -> tuple[Floats, NDArray[np.int64]]:
    """Scales under which ``reach * sum(|weight|)`` takes at most half of int32, and that sum."""
    scales = scales.copy()
    while True:
        steps = np.abs(quantize(rows, scales, axis=0, lowest=-127).astype(np.int16))
        load = reach * steps.sum(axis=1, dtype=np.int64)
        over = load > 2**30
        if not over.any():
            return scales, load
        # Rounding does not shrink in proportion; the extra 5 % make every turn count.
        scales[over] *= (1.05 * load[over] / 2**30).astype(np.float32)


def _along(values: NDArray[Any], axis: int | None, rank: int) -> NDArray[Any]:
    if axis is None or values.ndim == 0:
        return values
    return values.reshape([-1 if k == axis % rank else 1 for k in range(rank)])


def _finite(values: ArrayLike, what: str) -> Floats:
    with np.errstate(over="ignore"):
        result = np.asarray(values).astype(np.float32)
    if not np.isfinite(result).all():
        raise ModelError(f"{what} hold values that are not finite in float32")
    return result
