"""A convolution between two encodings: what the device multiplies, adds and scales by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.qparams import bias_scales, quantize_layer

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Rounded:
    """Weights that were rounded with their data in view.

    Attributes:
        weight: int8, -127..127, shape of the float weights.
        scales: float32 [M]; ``weight * scales`` stands for the *folded* weights.
        bias: float32 [M], in the model's own numbers.
    """

    weight: NDArray[np.int8]
    scales: Floats
    bias: Floats


@dataclass(frozen=True)
class DeviceLayer:
    """Weights and bias as they are written.

    Attributes:
        weight: int8 [M,C/g,kH,kW].
        weight_scales: float32 [M], all alike where the target wants one; the output's scale
            of each channel is in it.
        bias: int32 [M] of scale ``nominal input * weight_scales``, or None.
        raised: channels whose scale was raised because the accumulator would overflow.
    """

    weight: NDArray[np.int8]
    weight_scales: Floats
    bias: NDArray[np.int32] | None
    raised: tuple[int, ...]


def per_weight(values: ArrayLike, shape: tuple[int, ...], group: int) -> NDArray[np.float64]:
    """Numbers of the input channels, [C] or [1], laid out to meet weights [M,C/g,...].

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


def folded(weight: ArrayLike, source: Encoding, group: int) -> Floats:
    """Weights for the integers of the input instead of its numbers, over the nominal scale."""
    values = np.asarray(weight, np.float64)
    if values.ndim < 2:
        return np.asarray(values, np.float32)
    ratios = source.scales.astype(np.float64) / float(source.nominal)
    return np.asarray(values * per_weight(ratios, values.shape, group), np.float32)


def unfolded(weight: ArrayLike, source: Encoding, group: int) -> Floats:
    """The inverse of :func:`folded`."""
    values = np.asarray(weight, np.float64)
    ratios = source.scales.astype(np.float64) / float(source.nominal)
    return np.asarray(values / per_weight(ratios, values.shape, group), np.float32)


def encode_layer(
    weight: ArrayLike,
    bias: ArrayLike | None,
    source: Encoding,
    result: Encoding,
    group: int = 1,
    *,
    rounded: Rounded | None = None,
    per_tensor: bool = False,
) -> DeviceLayer:
    """Return the device layer that maps integers of ``source`` to integers of ``result``.

    With x = s (q - z) and y = t (p - u) per channel, ``p = sum(W s q) / t + b / t + u -
    sum(W s z) / t``: s goes into the weights, 1/t into their scale, the rest into the bias.

    Args:
        weight: float [M,C/g,kH,kW].
        bias: float [M] or None.
        source: of the input.
        result: of the output; one without channels has the same scale for all.
        group: of the convolution.
        rounded: weights and bias to use instead of the nearest ones.
        per_tensor: one weight scale for all channels.

    Raises:
        ModelError: a weight or bias that is not finite or cannot be represented.
    """
    gain = float(result.nominal) / result.scales.astype(np.float64)
    own = gain if per_tensor else np.ones(1)  # one scale for all cannot hold those of the output
    values, limits = _weights(folded(weight, source, group), own, rounded)
    wanted = _bias(len(values), bias if rounded is None else rounded.bias, result, own)
    reach = int(128 + np.abs(source.zeros).max())
    first = quantize_layer(
        values, wanted, source.nominal, absmax=limits, per_tensor=per_tensor, reach=reach
    )
    out = first.weight_scales if per_tensor else _over(first.weight_scales, gain)
    sums = None if first.bias is None else first.bias.astype(np.int64)
    moved = _moved(first.weight, source, group)
    if sums is None and not moved.any():
        return DeviceLayer(first.weight, out, None, first.raised)
    total = (0 if sums is None else sums) - moved
    return DeviceLayer(first.weight, out, np.asarray(total, np.int32), first.raised)


def _weights(
    values: Floats, gain: NDArray[np.float64], rounded: Rounded | None
) -> tuple[Floats, NDArray[np.float64] | None]:
    """The weights to store, and how far each channel reaches where that is settled."""
    along = (-1, *[1] * (values.ndim - 1))
    if rounded is None:
        return np.asarray(values * gain.reshape(along), np.float32), None
    made = np.asarray(rounded.weight * rounded.scales.reshape(along), np.float32)
    return made, rounded.scales.astype(np.float64) * 127


def _over(scales: Floats, gain: NDArray[np.float64]) -> Floats:
    return np.asarray(scales.astype(np.float64) * gain, np.float32)


def _bias(
    rows: int, bias: ArrayLike | None, result: Encoding, gain: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """The bias with the zero point of the output, in the output's numbers (times gain)."""
    offsets = result.scales.astype(np.float64) * result.zeros
    if bias is None and not offsets.any():
        return None
    own = np.zeros(rows) if bias is None else np.asarray(bias, np.float64)
    return (own + offsets) * gain


def _moved(weight: NDArray[np.int8], source: Encoding, group: int) -> NDArray[np.int64]:
    """Return what the zero points of the input add to the accumulator, int64 [M]."""
    steps = weight.astype(np.int64) * per_weight(source.zeros, weight.shape, group).astype(np.int64)
    total: NDArray[np.int64] = steps.reshape(len(weight), -1).sum(axis=1)
    return total


def accumulator_scales(layer: DeviceLayer, source: Encoding) -> Floats:
    """Scale of the int32 bias, float32 [M], as the written model must name it."""
    return bias_scales(source.nominal, layer.weight_scales)
