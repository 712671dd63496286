"""Layers whose scales lead to factors that a device without float can apply.

A factor is ``x_scale * w_scale / y_scale``. A file holds scales and no factors, so it is the weight
scales that move.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.device import shiftable_scales
from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import EncodedLayer, RoundedWeights, encode_layer
from npuconv.records import replace

_LARGEST = float(np.finfo(np.float32).max)


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
    real_bias = np.asarray(np.zeros(len(steps)) if bias is None else bias, np.float32)
    steps_of_bias = np.where(
        beyond, layer.bias, _bias(shiftable, weight, real_bias, source, result, group)
    )
    return replace(shiftable, bias=steps_of_bias.astype(np.int32))


def _bias(
    layer: EncodedLayer,
    weight: ArrayLike,
    bias: NDArray[np.float32],
    source: Encoding,
    result: Encoding,
    group: int,
) -> NDArray[np.float64]:
    """Return the bias in steps of the scales that have moved, [M]."""
    gain = float(result.nominal) / result.scales.astype(np.float64)
    scales = np.asarray(layer.weight_scales / gain, np.float32)
    rounded = RoundedWeights(layer.weight, scales, bias)
    exact = encode_layer(weight, bias, source, result, group, rounded=rounded)
    assert exact.bias is not None
    # A channel whose weights are now all 0 steps got a scale for its bias alone.
    alone = ~layer.weight.reshape(len(layer.weight), -1).any(axis=1)
    return np.rint(exact.bias * np.where(alone, exact.weight_scales / layer.weight_scales, 1.0))
