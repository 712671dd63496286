"""Resize: movement of the nearest values, or interpolation of height and width."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv.arithmetic.rescaling import HIGHEST, LOWEST, ratio
from npuconv.arithmetic.whole import Integers, Whole, resized, shifted_right, spatial
from npuconv.errors import ModelError
from npuconv.model import Node, query
from npuconv.model.proto import attributes_of
from npuconv.ops import channels
from npuconv.ops.operator import Arguments, Attributes, W, register
from npuconv.ops.tape import Gradients, Tape, Visit
from npuconv.tflite.draft import CHANNELS_LAST, Draft, onnx_order
from npuconv.tflite.flatbuffer import Array

Doubles = NDArray[np.float64]
_WEIGHT_STEPS = 2**11  # steps from 0 to 1 in the weights of a device that shifts
_WEIGHT_BITS = 10  # bits of a weight of RESIZE_BILINEAR
_HALF_PIXEL = ("half_pixel", "pytorch_half_pixel")
_BILINEAR = (*_HALF_PIXEL, "asymmetric", "align_corners")


def _passes(node: Node) -> bool:
    """Return whether nearest values are taken, and ``axes`` is not set.

    onnxruntime moves a Transpose through a Resize of int8 without permuting its ``axes``.
    """
    nearest = str(query.attribute(node, "mode", "nearest")) == "nearest"
    mode = str(query.attribute(node, "coordinate_transformation_mode", ""))
    return nearest and mode != "tf_crop_and_resize" and not query.attribute(node, "axes")


def _takes(attributes: Attributes) -> bool:
    """Return whether a Resize is linear along all axes, with either scales or sizes."""
    is_linear = attributes.get("mode") == "linear" and "axes" not in attributes
    return is_linear and ("scales" in attributes) != ("sizes" in attributes)


def _is_defined(node: Node) -> bool:
    return query.rank(node.inputs[0]) == 4 and query.attribute(node, "mode", "") == "linear"


def _in_tflite(node: Node) -> bool:
    """Return whether a Resize changes height and width only, in a mode that TFLite has."""
    before, after = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    mode = str(query.attribute(node, "coordinate_transformation_mode", "half_pixel"))
    if before is None or after is None or not len(before) == len(after) == 4:
        return False
    return before[:2] == after[:2] and mode in _BILINEAR


def coordinates(length: int, count: int, mode: str, scale: float = 0) -> Doubles:
    """Return the positions in the input of the values of a Resize [count].

    Args: as for ``interpolation``.

    Raises:
        ModelError: the mode is tf_crop_and_resize, which needs a region.
    """
    numbers = np.arange(count, dtype=np.float64)
    if mode == "align_corners":
        return numbers * (length - 1) / max(count - 1, 1)
    if mode == "pytorch_half_pixel" and count == 1:
        return np.zeros(1)
    half = 0 if mode == "asymmetric" else 0.5
    places = (numbers + half) / scale - half if scale else (numbers + half) * length / count - half
    if mode == "half_pixel_symmetric" and scale:
        places += (length - count / scale) / 2
    elif mode not in ("asymmetric", "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        raise ModelError(f"there is no arithmetic of a Resize with {mode!r}")
    return places


def nearest(length: int, count: int, mode: str, scale: float, rounding: str) -> Array:
    """Return the indices of the nearest values in the input, int64 [count].

    Args:
        length: number of values before.
        count: number of values after.
        mode: ONNX's coordinate_transformation_mode.
        scale: scale of the axis; 0: the ratio of the extents.
        rounding: ONNX's nearest_mode.

    Raises:
        ModelError: the mode is tf_crop_and_resize, which needs a region.
    """
    places = coordinates(length, count, mode, scale)
    rounded = {
        "round_prefer_floor": np.ceil(places - 0.5),
        "round_prefer_ceil": np.floor(places + 0.5),
        "floor": np.floor(places),
        "ceil": np.ceil(places),
    }[rounding]
    return np.clip(rounded, 0, length - 1).astype(np.int64)


def interpolation(
    length: int,
    count: int,
    mode: str = "half_pixel",
    scale: float = 0,
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> Doubles:
    """Return the weights of a Resize along one axis [count, length].

    Args:
        length: number of values before.
        count: number of values after.
        mode: ONNX's coordinate_transformation_mode.
        scale: scale of the axis; 0: the ratio of the extents.
        attributes: attributes of the node, for cubic, antialias or exclude_outside.

    Raises:
        ModelError: the mode is tf_crop_and_resize, which needs a region.
    """
    places = coordinates(length, count, mode, scale)[:, None]
    cubic, a = attributes.get("mode") == "cubic", attributes.get("cubic_coeff_a", -0.75)
    stretch = max(1 / (scale or count / length), 1) if attributes.get("antialias", 0) else 1
    radius = int(np.ceil((2 if cubic else 1) * stretch))
    columns = np.floor(places).astype(np.int64) + np.arange(1 - radius, 1 + radius)
    x = np.abs(columns - places) / stretch
    factors = np.maximum(1 - x, 0)
    if cubic:  # R. Keys, "Cubic convolution interpolation", 1981
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, a * (((x - 5) * x + 8) * x - 4)
        factors = np.where(x <= 1, near, np.where(x < 2, far, 0))
    if attributes.get("exclude_outside", 0):
        factors = np.where((columns >= 0) & (columns < length), factors, 0)
    weights, rows = np.zeros((count, length)), np.arange(count)[:, None]
    factors = factors / factors.sum(axis=1, keepdims=True)
    np.add.at(weights, (rows, np.clip(columns, 0, length - 1)), factors)
    return weights


def _sides(x: Whole, attributes: Attributes) -> list[tuple[int, int, str]]:
    """Return length before and after of height and width, and the mode."""
    mode = str(attributes.get("coordinate_transformation_mode", "half_pixel"))
    extents = zip(spatial(x, "Resize"), resized(x, attributes), strict=True)
    return [(before, after, mode) for before, after in extents]


def _kernel(call: Arguments[W]) -> W:
    """Return ``round(rows @ (x - zx) @ columns.T * sx / sy) + zy``.

    A device that shifts has weights in multiples of ``2**-11``: products of two weights and a
    value of 8 bits have 30 bits, so that int64 holds their products with 31 bits more.
    """
    (x,), (x_at, y_at) = call.values, call.scales
    rows, columns = (interpolation(*side) for side in _sides(x, call.attributes))
    factor = float(ratio(x_at.scale, over=y_at.scale))
    centred = x_at.centred(x)
    if call.rescaling.kind == "float":
        return y_at.rounded(x, rows @ centred.array().astype(np.float64) @ columns.T * factor)
    int_rows, int_columns = (np.rint(w * _WEIGHT_STEPS).astype(np.int64) for w in (rows, columns))
    products = centred.between(int_rows, int_columns.T)
    return y_at.stored(call.rescaling.rescaled((products, factor / _WEIGHT_STEPS**2)))


def _tflite_kernel(call: Arguments[W]) -> W:
    """Return the result of RESIZE_BILINEAR: weights of 10 bits, half a step away from zero."""
    (x,) = call.values
    rows, columns = (_tflite_weights(*side) for side in _sides(x, call.attributes))
    mixed = x.between(rows, columns.T)
    return shifted_right(mixed, 2 * _WEIGHT_BITS, "half_away").clipped(LOWEST, HIGHEST)


def _tflite_weights(before: int, after: int, mode: str) -> Integers:
    """Return the integer weights of each value of the result [after, before]."""
    unit = 1 << _WEIGHT_BITS
    corners, half = mode == "align_corners", mode in _HALF_PIXEL
    scale = (unit * before + after // 2) // after
    if corners and after > 1:
        scale = (unit * (before - 1) + (after - 1) // 2) // (after - 1)
    weights = np.zeros((after, before), np.int64)
    for k in range(after):
        place = k * scale + (scale // 2 - unit // 2 if half else 0)
        below = min(max(place // unit, 0), before - 1)
        above = min((place + unit - 1) // unit, before - 1)
        weights[k, below] += unit - (place - unit * below)
        weights[k, above] += place - unit * below
    return weights


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    """Sum the copies of an enlargement by whole factors; approximate for linear interpolation."""
    small, large = visit.shape(), visit.output_shape
    if len(small) != 4 or small[:2] != large[:2] or 0 in (*small, *large):
        return {}
    if any(b % a for a, b in zip(small, large, strict=True)):
        return {}
    factors = [b // a for a, b in zip(small[2:], large[2:], strict=True)]
    mean = tape.add("AveragePool", visit.dy, kernel_shape=factors, strides=factors)
    return {0: tape.add("Mul", mean, tape.constant(float(math.prod(factors))))}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append the operator of TFLite; if it has none, a GATHER or a product for each axis.

    Raises:
        ModelError: other axes than height and width, or tf_crop_and_resize.
    """
    attrs = attributes_of(node)
    before, after = draft.shape(node.input[0]), draft.shape(node.output[0])
    if len(before) != 4 or before[:2] != after[:2]:
        raise ModelError("TFLite resizes height and width only")
    if attrs.get("mode", "nearest") != "nearest":
        _interpolate(draft, node)
        return
    source = draft.read(node.input[0], CHANNELS_LAST)
    output = draft.store(node.output[0], CHANNELS_LAST, draft.quantization(source))
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    rounding = attrs.get("nearest_mode") or "round_prefer_floor"
    sides = list(zip(before[2:], after[2:], _factors(draft, node), strict=True))
    places = [nearest(n, m, mode, factor, rounding) for n, m, factor in sides]
    plain = [np.arange(m) * n // m for n, m, _ in sides]
    if all(np.array_equal(a, b) for a, b in zip(places, plain, strict=True)):
        _to_size(draft, "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", source, output)
        return
    stored = draft.graph.tensors[source]
    shape = (stored.shape[0], after[2], *stored.shape[2:])
    rows = draft.add(f"{stored.name}/rows", shape, stored.dtype, None, stored.quantization)
    draft.take(source, rows, 1, places[0])
    draft.take(rows, output, 2, places[1])


def _to_size(
    draft: Draft, code: str, table: str, source: int, output: int, **options: bool
) -> None:
    size = draft.number("size", np.asarray(draft.graph.tensors[output].shape[1:3], np.int32))
    draft.emit(code, [source, size], [output], table, **options)


def _interpolate(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a RESIZE_BILINEAR, or products with the weights of rows and of columns.

    RESIZE_BILINEAR takes the scale from the extents, and has neither cubic nor antialias. An int8
    Resize always becomes RESIZE_BILINEAR, which its kernel computes.
    """
    name, result, attrs = node.input[0], node.output[0], attributes_of(node)
    before, after = draft.shape(name), draft.shape(result)
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    sides = list(zip(before[2:], after[2:], _factors(draft, node), strict=True))
    rows, columns = (interpolation(n, m, mode, factor, attrs) for n, m, factor in sides)
    plain = [interpolation(n, m, mode) for n, m, _ in sides]
    bilinear = all(map(np.allclose, (rows, columns), plain)) or draft.dtype(name) == np.int8
    if bilinear and mode in _BILINEAR:
        source = draft.read(name, CHANNELS_LAST)
        output = draft.store(result, CHANNELS_LAST, draft.quantization(source))
        options = {"AlignCorners": mode == "align_corners", "HalfPixelCenters": mode in _HALF_PIXEL}
        _to_size(draft, "RESIZE_BILINEAR", "ResizeBilinearOptions", source, output, **options)
        return
    row_weights, right = (draft.number(f"{name}/weights", w[None, None]) for w in (rows, columns.T))
    part = draft.add(f"{name}/rows", (*before[:2], after[2], before[3]), draft.dtype(name))
    output, options = draft.store(result, onnx_order(4)), {"AdjX": False, "AdjY": False}
    for factors, product in (
        ((row_weights, draft.read(name, onnx_order(4))), part),
        ((part, right), output),
    ):
        draft.emit("BATCH_MATMUL", factors, [product], "BatchMatMulOptions", **options)


def _factors(draft: Draft, node: onnx.NodeProto) -> list[float]:
    """Return the factors of height and width: scales of the node, or ratios of the extents."""
    scales = draft.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if scales is None or not scales.size:
        before, after = draft.shape(node.input[0]), draft.shape(node.output[0])
        return [after[axis] / before[axis] for axis in (2, 3)]
    listed = list(attributes_of(node).get("axes", range(4)))
    return [float(scales[listed.index(axis)]) if axis in listed else 1.0 for axis in (2, 3)]


register(
    "Resize",
    is_defined=_is_defined,
    parameters={2: "scales", 3: "sizes"},
    passes=_passes,
    follow=channels.resized,
    takes=_takes,
    kernel=_kernel,
    adjoint=_adjoint,
    in_tflite=_in_tflite,
    tflite_kernel=_tflite_kernel,
    tflite_scale="input",
    to_tflite=_to_tflite,
)
