"""A layer whose factors are those of a device that multiplies by an integer and shifts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import DeviceLayer, Rounded, encode_layer
from npuconv.arithmetic.requantize import shiftable_scales


def shiftable_layer(  # noqa: PLR0913 - those of encode_layer
    layer: DeviceLayer,
    weight: ArrayLike,
    bias: ArrayLike | None,
    source: Encoding,
    result: Encoding,
    group: int = 1,
    *,
    bits: int = 16,
    max_shift: int = 62,
) -> DeviceLayer:
    """The same weights with scales that such a device can apply, and a bias to match.

    A scale changes by at most ``2**-bits``; from 8 bits on that moves no weight to another
    integer, but it moves a bias, which has many more steps.

    Args:
        layer: what ``encode_layer`` made of the rest.
        weight: float [M,C/g,kH,kW].
        bias: float [M] or None, as it was rounded: that of ``Rounded``, if there is one.
        source: of the input.
        result: of the output.
        group: of the convolution.
        bits: a multiplier is below ``2**bits``.
        max_shift: the largest shift of the device.

    Raises:
        ModelError: a factor is too large or too small for such a multiplier.
    """
    used = _used(layer, source, result)
    scales = shiftable_scales(source.nominal, used, result.nominal, bits=bits, max_shift=max_shift)
    ratios = (used / scales.astype(np.float64)).reshape(-1, *[1] * (layer.weight.ndim - 1))
    steps = np.clip(np.rint(layer.weight * ratios), -127, 127).astype(np.int8)
    if layer.bias is None:
        return replace(layer, weight=steps, weight_scales=scales)
    gain = float(result.nominal) / result.scales.astype(np.float64)
    own = np.asarray(np.zeros(len(steps)) if bias is None else bias, np.float32)
    again = encode_layer(
        weight,
        bias,
        source,
        result,
        group,
        rounded=Rounded(steps, np.asarray(scales / gain, np.float32), own),
    )
    return replace(layer, weight=steps, weight_scales=scales, bias=again.bias)


def _used(layer: DeviceLayer, source: Encoding, result: Encoding) -> NDArray[np.float32]:
    """Weight scales; where a channel is all zeros any will do, and its own may be out of reach."""
    idle = ~layer.weight.reshape(len(layer.weight), -1).any(axis=1)
    if layer.bias is not None:
        idle &= layer.bias == 0
    neutral = float(result.nominal) / float(source.nominal)
    return np.where(idle, np.float32(neutral), layer.weight_scales).astype(np.float32)
