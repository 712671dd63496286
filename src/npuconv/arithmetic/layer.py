"""Integer weights, biases and scales of a convolution between two encodings.

For every output channel ``reach * sum(|weight|) + |bias| < 2**31`` holds in integers, so that no
input overflows the accumulator. A file holds scales and no factors, so for a device without float
it is the weight scales that move to those whose factors it can apply.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.device import shiftable_scales
from npuconv.arithmetic.encoding import SMALLEST_SCALE, Encoding, finite, quantize, weight_scales
from npuconv.errors import ModelError
from npuconv.records import dataclass, replace

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
_LARGEST = float(np.finfo(np.float32).max)
# Factor of a scale that allows for the three float32 roundings up to the product with it.
_MARGIN = 1 + 2.0**-20


@dataclass(frozen=True)
class RoundedWeights:
    """Integer weights from GPTQ-style rounding, and the bias that was corrected for them."""

    weight: NDArray[np.int8]  # int8, -127..127, shape of the float weights
    scales: Floats  # float32 [M]; ``weight * scales`` are the *folded* weights
    bias: Floats  # float32 [M], in the units of the model


@dataclass(frozen=True)
class EncodedLayer:
    """Integer weights and bias of a convolution, as stored in the model."""

    weight: NDArray[np.int8]  # int8 [M,C/g,kH,kW]
    # float32 [M], all equal if the target has one scale for a layer; the scale of each output
    # channel is a factor of it.
    weight_scales: Floats
    bias: NDArray[np.int32] | None  # int32 [M] of scale ``nominal input * weight_scales``, or None
    # Channels whose scale was raised because the accumulator would overflow.
    raised: tuple[int, ...]


def per_weight(values: ArrayLike, shape: tuple[int, ...], group: int) -> Doubles:
    """Return numbers of the input channels, [C] or [1], in the layout of weights [M,C/g,...].

    Returns:
        float64 [M or 1, C/g, 1, ...].
    """
    numbers = np.asarray(values, np.float64)
    if numbers.size == 1:
        return numbers.reshape((1,) * len(shape))
    rows = numbers.reshape(group, shape[1])
    if group == 1:
        return rows.reshape(1, shape[1], *[1] * (len(shape) - 2))
    return np.repeat(rows, shape[0] // group, axis=0).reshape(*shape[:2], *[1] * (len(shape) - 2))


def input_ratios(source: Encoding, shape: tuple[int, ...], group: int) -> Doubles:
    """Return the scales of the input over its nominal scale, in the layout of weights."""
    return per_weight(source.scales.astype(np.float64) / float(source.nominal), shape, group)


def folded(weight: ArrayLike, source: Encoding, group: int) -> Floats:
    """Return weights for the integers of the input, divided by its nominal scale."""
    values = np.asarray(weight, np.float64)
    return np.asarray(values * input_ratios(source, values.shape, group), np.float32)


def unfolded(weight: ArrayLike, source: Encoding, group: int) -> Floats:
    """Return the inverse of :func:`folded`."""
    values = np.asarray(weight, np.float64)
    return np.asarray(values / input_ratios(source, values.shape, group), np.float32)


def encode_layer(  # noqa: PLR0913 - a layer has that many parts
    weight: ArrayLike,
    bias: ArrayLike | None,
    source: Encoding,
    result: Encoding,
    group: int = 1,
    *,
    rounded: RoundedWeights | None = None,
    per_tensor: bool = False,
    largest_bias: int = 0,
) -> EncodedLayer:
    """Return the integer layer that maps integers of ``source`` to integers of ``result``.

    No input overflows the accumulator. A channel of only zeros gets a scale that suits its bias,
    unless ``per_tensor``.

    With x = s (q - z) and y = t (p - u) per channel, ``p = sum(W s q) / t + b / t + u -
    sum(W s z) / t``: s goes into the weights, 1/t into their scale, the rest into the bias.

    Args:
        weight: float [M,C/g,kH,kW].
        bias: float [M] or None.
        source: encoding of the input.
        result: encoding of the output; without channels, all have the same scale.
        group: number of groups of the convolution.
        rounded: weights and bias to use instead of rounding to nearest.
        per_tensor: one weight scale for all channels.
        largest_bias: largest integer that the device can add; 0: any int32.

    Raises:
        ModelError: a weight or bias that is not finite or cannot be represented.
    """
    gain = float(result.nominal) / result.scales.astype(np.float64)
    # A single weight scale cannot hold the output scales of channels: the weights do.
    row_gain = gain if per_tensor else np.ones(1)
    if rounded is None:
        values, limits, real_bias = folded(weight, source, group), None, bias
        values = np.asarray(values * row_gain.reshape(-1, *[1] * (values.ndim - 1)), np.float32)
    else:
        scales = rounded.scales.reshape(-1, *[1] * (rounded.weight.ndim - 1))
        values, real_bias = np.asarray(rounded.weight * scales, np.float32), rounded.bias
        limits = rounded.scales.astype(np.float64) * 127  # magnitudes to clip at
    rows = finite(values, "weights").reshape(len(values), -1)
    shifted_bias, offsets = _bias(len(rows), real_bias, result, row_gain), np.zeros(len(rows))
    if shifted_bias is not None:
        offsets = finite(shifted_bias, "bias").astype(np.float64)
    if limits is None:
        limits = np.abs(rows).max(axis=None if per_tensor else 1, initial=0.0)
    first = np.broadcast_to(weight_scales(limits), len(rows))
    if not per_tensor:  # the bias of a channel of zeros gets 2**15 steps
        bias_steps = np.clip(np.abs(offsets / source.nominal) * 2.0**-15, SMALLEST_SCALE, _LARGEST)
        unused = ~rows.any(axis=1) & (offsets != 0)
        first = np.where(unused, bias_steps, first).astype(np.float32)
    unraised = first
    if largest_bias:
        least = np.abs(offsets) / float(source.nominal) / largest_bias * _MARGIN
        first = np.maximum(first, least).astype(np.float32)
    fitted, integers, load = _fit_products(rows, first, int(128 + np.abs(source.zeros).max()))
    steps, scales = quantize_bias(offsets, source.nominal, fitted, load)
    raised = tuple(np.flatnonzero(scales > unraised).tolist())
    if per_tensor:
        # Larger scales only make |weight| and |bias| smaller: nothing is raised a second time.
        scales = np.full(len(rows), scales.max())
        steps, scales = quantize_bias(offsets, source.nominal, scales, load)
    if not np.array_equal(scales, fitted):
        integers = quantize(rows, scales, axis=0, lowest=-127)
    integers = integers.reshape(values.shape)
    if not per_tensor:
        scales = np.asarray(scales.astype(np.float64) * gain, np.float32)
    # Sums that the zero points of the input add to the accumulator.
    points, sums = source.zeros - source.nominal_zero, np.zeros(len(rows), np.int64)
    if points.any():
        spread = per_weight(points, integers.shape, group).astype(np.int64)
        sums = (integers * spread).reshape(len(rows), -1).sum(axis=1)
    if shifted_bias is None and not sums.any():
        return EncodedLayer(integers, scales, None, raised)
    total = (0 if shifted_bias is None else steps.astype(np.int64)) - sums
    return EncodedLayer(integers, scales, np.asarray(total, np.int32), raised)


def fits_accumulator(
    rounded: RoundedWeights, source: Encoding, result: Encoding, *, per_tensor: bool = False
) -> bool:
    """Return whether ``encode_layer`` raises no scale, judged by the largest sum of any weights.

    False where only the weights themselves decide, as of a channel of zeros with a bias.
    """
    load = int(128 + np.abs(source.zeros).max()) * 127 * rounded.weight[0].size
    gain = float(result.nominal) / result.scales.astype(np.float64) if per_tensor else np.ones(1)
    bias = _bias(len(rounded.weight), rounded.bias, result, gain)
    steps = rounded.scales.astype(np.float64) * float(source.nominal)
    smallest = SMALLEST_SCALE if bias is None else np.abs(bias) / (2**31 - 1 - 2**30)
    is_used = rounded.weight.any(axis=tuple(range(1, rounded.weight.ndim)))
    fits = steps > np.maximum(smallest, SMALLEST_SCALE) * _MARGIN
    return load <= 2**30 and bool((fits & (is_used | (bias == 0))).all())


def _bias(rows: int, bias: ArrayLike | None, result: Encoding, gain: Doubles) -> Doubles | None:
    """Return the bias with the zero point of the output, times gain."""
    offsets = result.scales.astype(np.float64) * (result.zeros - result.nominal_zero)
    if bias is None and not offsets.any():
        return None
    unshifted = np.zeros(rows) if bias is None else np.asarray(bias, np.float64)
    return (unshifted + offsets) * gain


def bias_scales(input_scale: ArrayLike, weight_scales: ArrayLike) -> Floats:
    """Return the scale of the int32 accumulator, float32 [M]: the float32 product.

    onnxruntime computes it so as well.
    """
    with np.errstate(over="ignore"):
        product = np.asarray(input_scale, np.float32) * np.asarray(weight_scales, np.float32)
    return np.asarray(product, np.float32)


def quantize_bias(
    bias: ArrayLike,
    input_scale: float | np.float32,
    weight_scales: ArrayLike,
    headroom: ArrayLike = 0,
) -> tuple[NDArray[np.int32], Floats]:
    """Round a bias to int32, with weight scales raised where it would overflow.

    Args:
        bias: real numbers [M].
        input_scale: scale of the layer's input.
        weight_scales: float32 [M].
        headroom: largest sum of the products alone, integer scalar or [M], below 2**31 - 1;
            ``|bias| + headroom`` stays within int32.

    Returns:
        int32 bias [M] and float32 weight scales [M]; weights of raised channels must be quantized
        again.

    Raises:
        ModelError: a bias that is not finite, or that no float32 scale can represent.
    """
    values = finite(bias, "bias").astype(np.float64)
    scales = np.array(np.broadcast_to(np.asarray(weight_scales, np.float32), values.shape))
    smallest = np.maximum(
        np.abs(values) / (2**31 - 1 - np.asarray(headroom, np.int64)), SMALLEST_SCALE
    )
    raised = bias_scales(input_scale, scales) < smallest
    raised_scales = smallest[raised] * _MARGIN / float(input_scale)
    if np.any(raised_scales > _LARGEST):
        raise ModelError("a bias is too large for the scale of the layer's input")
    scales[raised] = raised_scales.astype(np.float32)
    steps = np.rint(values / bias_scales(input_scale, scales).astype(np.float64))
    return steps.astype(np.int32), scales


def _fit_products(
    rows: Floats, scales: Floats, reach: int
) -> tuple[Floats, NDArray[np.int8], NDArray[np.int64]]:
    """Return scales that limit ``reach * sum(|weight|)`` to half of int32, the weights, the sum."""
    scales = scales.copy()
    while True:
        integers = quantize(rows, scales, axis=0, lowest=-127)
        load = reach * np.abs(integers).sum(axis=1, dtype=np.int64)
        over = load > 2**30
        if not over.any():
            return scales, integers, load
        # Rounding does not shrink in proportion; the extra 5 % make every turn count.
        scales[over] *= (1.05 * load[over] / 2**30).astype(np.float32)


def gemmlowp_layer(layer: EncodedLayer, source: Encoding, result: Encoding) -> EncodedLayer:
    """Return the layer for the kernels of TFLite, whose factors are below ``2**30``.

    Beyond them every sum but 0 saturates, as it does right below.
    """
    largest = gemmlowp.LARGEST_FACTOR * float(result.nominal) / float(source.nominal)
    near = np.minimum(layer.weight_scales, np.float32(min(largest, _LARGEST)))
    return replace(layer, weight_scales=near)


def shiftable_layer(  # noqa: PLR0913 - parameters of encode_layer
    layer: EncodedLayer,
    weight: ArrayLike,
    bias: ArrayLike | None,
    source: Encoding,
    result: Encoding,
    group: int = 1,
    *,
    bits: int = 16,
    max_shift: int = 62,
) -> EncodedLayer:
    """Return the layer for a device that multiplies by an integer and shifts.

    Its weight scales lead to factors that such a device can apply. A scale changes by at most
    ``2**-bits``, except where its factor is below the smallest or above the largest that there
    is; from 8 bits on that moves no weight to another integer, but it moves a bias, which has
    many more steps.

    Args:
        layer: result of ``encode_layer`` for the other arguments.
        weight: float [M,C/g,kH,kW].
        bias: float [M] or None; the bias of ``RoundedWeights``, if the layer has them.
        source: encoding of the input.
        result: encoding of the output.
        group: number of groups of the convolution.
        bits: a multiplier is below ``2**bits``.
        max_shift: the largest shift of the device.

    Raises:
        ModelError: a factor is not finite.
    """
    unit = float(result.nominal) / float(source.nominal)
    unused = ~layer.weight.reshape(len(layer.weight), -1).any(axis=1)
    if layer.bias is not None:
        unused &= layer.bias == 0
    # Scales of channels of zeros may be out of reach.
    scales_in_use = np.where(unused, np.float32(unit), layer.weight_scales).astype(np.float32)
    # Beyond the largest factor every sum but 0 saturates, under the largest as well.
    largest = np.float32((2.0**bits - 1) * unit)
    beyond, scales_in_use = scales_in_use > largest, np.minimum(scales_in_use, largest)
    # Below the smallest, weights count larger steps, half of which is shifted out of sight.
    near = np.maximum(scales_in_use, np.float32(2.0**-max_shift * unit))
    scales = shiftable_scales(source.nominal, near, result.nominal, bits=bits, max_shift=max_shift)
    ratios = (scales_in_use / scales.astype(np.float64)).reshape(-1, *[1] * (layer.weight.ndim - 1))
    steps = np.clip(np.rint(layer.weight * ratios), -127, 127).astype(np.int8)
    shiftable = replace(layer, weight=steps, weight_scales=scales)
    if layer.bias is None:
        return shiftable
    # The bias in steps of the scales that have moved.
    gain = float(result.nominal) / result.scales.astype(np.float64)
    real_bias = np.asarray(np.zeros(len(steps)) if bias is None else bias, np.float32)
    rounded = RoundedWeights(steps, np.asarray(scales / gain, np.float32), real_bias)
    exact = encode_layer(weight, real_bias, source, result, group, rounded=rounded)
    assert exact.bias is not None
    # A channel whose weights are now all 0 steps got a scale for its bias alone.
    alone = ~steps.reshape(len(steps), -1).any(axis=1)
    steps_of_bias = np.rint(exact.bias * np.where(alone, exact.weight_scales / scales, 1.0))
    return replace(shiftable, bias=np.where(beyond, layer.bias, steps_of_bias).astype(np.int32))
