"""Integers of all layers in one file, as rows of the manifest and as a C header for a driver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.device import shifts
from npuconv.errors import ModelError
from npuconv.ops.qlinear_conv import IntegerConv
from npuconv.schemas.split import LayerEntry, Manifest, Packed
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


MAX_AXES = 3  # spatial axes of a convolution, at most: a volume
_PER_LINE = 8
_UNSAFE = re.compile(rb"[^A-Za-z0-9_./: -]")

_TYPES = """\
typedef struct {
  const char *name;            /* of the node, UTF-8 */
  const char *part;            /* file of the model that it is in */
  int32_t inputs, outputs;     /* channels */
  int32_t group, axes;         /* spatial axes; entries of the arrays below */
  int32_t input_size[3], output_size[3]; /* 0 where an extent is not known */
  int32_t kernel[3], strides[3], dilations[3], pad_begin[3], pad_end[3];
  int32_t input_zero_point, output_zero_point;
  int32_t channels_last;       /* 1: NHWC, 0: NCHW; weights are OIHW in both */
  uint32_t weight_offset;      /* bytes into weights.bin: int8 [outputs][inputs / group][kernel] */
  uint32_t bias_offset;        /* int32 [outputs] */
  const float *factor;         /* [outputs]: accumulators are multiplied by it */
  const int32_t *multiplier;   /* [outputs]: or by this integer, ... */
  const uint8_t *shift;        /* [outputs]: ... and shifted right by so many bits */
} npuconv_layer;
"""


def c_header(
    manifest: Manifest,
    layers: Sequence[IntegerConv],
    types: Mapping[str, onnx.TypeProto.Tensor],
    how: Requantize,
) -> str:
    """Return the header.

    Raises:
        ModelError: a convolution of more than three axes, or weights that have zero points.
    """
    for layer in layers:
        if layer.weight.ndim - 2 > MAX_AXES:
            raise ModelError(f"layer {layer.name!r} has more than {MAX_AXES} spatial axes")
        if np.any(layer.w_zero) or layer.weight.dtype != np.int8:
            raise ModelError(
                f"layer {layer.name!r}: its weights are not symmetric int8, "
                "which the header assumes",
                hint="convert the model with npuconv, or leave --emit c out",
            )
    head = (
        f"/* Made by npuconv {manifest.tool.version} from a model of sha256\n"
        f"   {manifest.model.sha256}.\n"
        f"   Requantization of the device: {how}. Padding: {manifest.padding}. */\n"
        "#ifndef NPUCONV_WEIGHTS_H\n#define NPUCONV_WEIGHTS_H\n\n#include <stdint.h>\n\n"
        f"#define NPUCONV_LAYERS {len(layers)}\n"
        f"#define NPUCONV_WEIGHTS_BYTES {manifest.weights.bytes}u\n\n"
    )
    tables, rows = [], []
    for number, (layer, entry) in enumerate(zip(layers, manifest.layers, strict=True)):
        integers = arrays(layer, how)
        factors = [f"{float(value).hex()}f" for value in integers["factor"]]
        tables += [
            _array("float", f"npuconv_factor_{number}", factors),
            _array("int32_t", f"npuconv_multiplier_{number}", integers["multiplier"].tolist()),
            _array("uint8_t", f"npuconv_shift_{number}", integers["shift"].tolist()),
        ]
        rows.append(_row(number, layer, entry, types))
    body = ",\n".join(rows)
    return (
        f"{head}{_TYPES}\n{''.join(tables)}"
        f"static const npuconv_layer npuconv_layers[NPUCONV_LAYERS] = {{\n{body}\n}};\n\n"
        "#endif /* NPUCONV_WEIGHTS_H */\n"
    )


def _array(kind: str, name: str, values: Sequence[object]) -> str:
    texts = [str(value) for value in values]
    lines = [", ".join(texts[k : k + _PER_LINE]) for k in range(0, len(texts), _PER_LINE)]
    inside = ",\n  ".join(lines)
    return f"static const {kind} {name}[{len(texts)}] = {{\n  {inside}\n}};\n"


def _row(
    number: int,
    layer: IntegerConv,
    entry: LayerEntry,
    types: Mapping[str, onnx.TypeProto.Tensor],
) -> str:
    places = entry.arrays
    axes = layer.weight.ndim - 2

    def sizes(tensor: str) -> list[int]:
        """Return the spatial extents of a tensor; 0 where unknown."""
        if tensor not in types or len(types[tensor].shape.dim) != axes + 2:
            return [0] * axes
        dims = [max(int(d.dim_value), 0) for d in types[tensor].shape.dim]
        return dims[1:-1] if layer.channels_last else dims[2:]

    return (
        f'  {{"{_text(layer.name)}", "{_text(entry.part)}",\n'
        f"   {layer.weight.shape[1] * layer.group}, {len(layer.weight)}, {layer.group}, {axes},\n"
        f"   {_list(sizes(layer.source))}, {_list(sizes(layer.result))},\n"
        f"   {_list(layer.weight.shape[2:])}, {_list(layer.strides)}, {_list(layer.dilations)}, "
        f"{_list(layer.pads[:axes])}, {_list(layer.pads[axes:])},\n"
        f"   {entry.input_zero_point}, {entry.output_zero_point}, {int(layer.channels_last)}, "
        f"{places['weight'].offset}u, {places['bias'].offset}u,\n"
        f"   npuconv_factor_{number}, npuconv_multiplier_{number}, npuconv_shift_{number}}}"
    )


def _list(values: Sequence[int]) -> str:
    padded = [*values, *[0] * (MAX_AXES - len(values))]
    return "{" + ", ".join(map(str, padded)) + "}"


def _text(name: str) -> str:
    """Return the inside of a C string, with all other characters in octal."""
    return _UNSAFE.sub(lambda match: f"\\{match[0][0]:03o}".encode(), name.encode()).decode()
