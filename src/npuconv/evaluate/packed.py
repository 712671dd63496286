"""Integers of all layers in one file, and as rows of the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.device import shifts
from npuconv.ops.qlinear_conv import IntegerConv
from npuconv.schemas.split import LayerEntry, Packed
from npuconv.target.description import Requantize

ALIGNMENT = 16  # bytes; each array begins at a multiple, for vector loads
_FLOAT_BITS = 31  # bits of the multipliers that represent float factors
Array = NDArray[Any]


def pack(
    layers: Sequence[IntegerConv], owner: Mapping[str, str], how: Requantize
) -> tuple[list[LayerEntry], bytes]:
    """Pack weights, biases, factors, multipliers and shifts of all layers.

    Returns:
        A row for each layer, and the content of the file.

    Raises:
        ModelError: a factor that the shifts of the device cannot express.
    """
    data, rows = bytearray(), []
    for layer in layers:
        places = {}
        for name, array in arrays(layer, how).items():
            data += bytes(-len(data) % ALIGNMENT)
            places[name] = Packed(
                dtype=array.dtype.name, shape=array.shape, offset=len(data), bytes=array.nbytes
            )
            data += array.astype(array.dtype.newbyteorder("<")).tobytes()
        row = LayerEntry(
            name=layer.name,
            part=owner[layer.result],
            input=layer.source,
            output=layer.result,
            group=layer.group,
            kernel_shape=layer.weight.shape[2:],
            strides=tuple(layer.strides),
            dilations=tuple(layer.dilations),
            pads=tuple(layer.pads),
            layout="nhwc" if layer.channels_last else "nchw",
            input_scale=decimals(layer.x_scale),
            input_zero_point=decimals(layer.x_zero),
            output_scale=decimals(layer.y_scale),
            output_zero_point=decimals(layer.y_zero),
            arrays=places,
        )
        rows.append(row)
    return rows, bytes(data)


def arrays(layer: IntegerConv, how: Requantize) -> dict[str, Array]:
    """Return the integers of a layer: weight [M, C/group, kernel], the others [M].

    ``factor`` is the float32 multiplier of the accumulator; ``multiplier / 2**shift`` is the same
    in integers: the integers of the device if it multiplies by integers, else the nearest of 31
    bits. For a device that multiplies in float, a factor that is not positive has multiplier 0.
    """
    weight, factors, bias = layer.weight, layer.factors, layer.bias
    zero = layer.w_zero
    if how.kind == "gemmlowp":
        pair = gemmlowp.multipliers(layer.x_scale, layer.w_scale, layer.y_scale)
        multiplier, shift = pair.multiplier, gemmlowp.MULTIPLIER_BITS - pair.exponent
    else:
        bits = how.multiplier_bits if how.kind == "shift" else _FLOAT_BITS
        usable = factors > 0 if how.kind == "float" else np.ones(len(factors), bool)
        rounded = shifts(np.where(usable, factors, 1), bits=bits, max_shift=how.max_shift)
        multiplier, shift = np.where(usable, rounded.multiplier, 0), rounded.shift
    return {
        "weight": weight,
        "weight_zero_point": np.array(np.broadcast_to(zero.reshape(-1), len(weight))),
        "bias": np.zeros(len(weight), np.int32) if bias is None else bias.astype(np.int32),
        "factor": factors,
        "multiplier": np.array(np.broadcast_to(multiplier, len(weight))).astype(np.int32),
        "shift": np.array(np.broadcast_to(shift, len(weight))).astype(np.int32),
    }


def decimals(values: Array) -> Any:
    """Return decimals that round to the same float32, or integers; a number for a single value."""
    is_float = values.dtype.kind == "f"
    plain = [float(str(v)) if is_float else int(v) for v in values.reshape(-1)]
    return plain[0] if values.size == 1 else tuple(plain)
