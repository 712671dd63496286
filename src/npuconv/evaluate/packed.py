"""Integers of all layers in one file, and the rows of the manifest that say where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.device import shifts
from npuconv.evaluate.vectors import DeviceLayer
from npuconv.schemas.split import LayerEntry, Packed
from npuconv.target.description import Requantize

ALIGNMENT = 16  # bytes: each array begins at a multiple, as vector loads want
_FLOAT_BITS = 31  # of the multipliers that stand for float factors
Array = NDArray[Any]


def pack(
    layers: Sequence[DeviceLayer], owner: Mapping[str, str], how: Requantize
) -> tuple[list[LayerEntry], bytes]:
    """Pack weights, biases, factors, multipliers and shifts of all layers.

    Args:
        layers: in the order of the model.
        owner: file of the part that makes a tensor.
        how: requantization of the device.

    Returns:
        A row for each layer, and the content of the file.

    Raises:
        ModelError: a factor that the shifts of the device cannot express.
    """
    data, rows = bytearray(), []
    for layer in layers:
        places = {name: _append(data, array) for name, array in arrays(layer, how).items()}
        rows.append(_row(layer, owner[layer.result], places))
    return rows, bytes(data)


def arrays(layer: DeviceLayer, how: Requantize) -> dict[str, Array]:
    """Return the integers of a layer: weight [M, C/group, kernel], the others [M].

    ``factor`` is what an accumulator is multiplied by, float32; ``multiplier / 2**shift`` is
    the same in integers: exactly what the device does where it shifts, and the nearest of 31
    bits where it multiplies in float. A factor that is not positive has multiplier 0.
    """
    weight, factors = layer.layer.weight, layer.factors
    bits = how.multiplier_bits if how.kind == "shift" else _FLOAT_BITS
    usable = factors > 0 if how.kind == "float" else np.ones(len(factors), bool)
    found = shifts(np.where(usable, factors, 1), bits=bits, max_shift=how.max_shift)
    bias = layer.layer.bias
    zero = layer.zeros["w_zero_point"]
    return {
        "weight": weight,
        "weight_zero_point": np.array(np.broadcast_to(zero.reshape(-1), len(weight))),
        "bias": np.zeros(len(weight), np.int32) if bias is None else bias.astype(np.int32),
        "factor": factors,
        "multiplier": np.where(usable, found.multiplier, 0).astype(np.int32),
        "shift": found.shift.astype(np.int32),
    }


def decimals(values: Array) -> Any:
    """Return decimals that stand for the same float32, or integers; one for a scalar."""
    listed = values.reshape(-1)
    plain = [float(str(v)) if values.dtype.kind == "f" else int(v) for v in listed]
    return plain[0] if values.size == 1 else tuple(plain)


def _append(data: bytearray, array: Array) -> Packed:
    data += bytes(-len(data) % ALIGNMENT)
    start = len(data)
    data += array.astype(array.dtype.newbyteorder("<")).tobytes()
    return Packed(
        dtype=array.dtype.name,
        shape=array.shape,
        offset=start,
        bytes=array.nbytes,
    )


def _row(layer: DeviceLayer, part: str, places: dict[str, Packed]) -> LayerEntry:
    one = layer.layer
    scales, zeros = layer.scales, layer.zeros
    return LayerEntry(
        name=layer.name,
        part=part,
        input=layer.source,
        output=layer.result,
        group=one.group,
        kernel_shape=one.weight.shape[2:],
        strides=tuple(one.strides),
        dilations=tuple(one.dilations),
        pads=tuple(one.pads),
        layout="nhwc" if layer.channels_last else "nchw",
        input_scale=decimals(scales["x_scale"]),
        input_zero_point=decimals(zeros["x_zero_point"]),
        output_scale=decimals(scales["y_scale"]),
        output_zero_point=decimals(zeros["y_zero_point"]),
        arrays=places,
    )
