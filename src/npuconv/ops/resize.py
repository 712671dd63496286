"""Resize: movement of the nearest values, or interpolation of height and width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.rescaling import HIGHEST, LOWEST, Rescaling, TensorScale, ratio
from npuconv.arithmetic.whole import Integers, W, Whole, resized, spatial
from npuconv.errors import ModelError
from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops import channels
from npuconv.ops.operator import Attributes, Operator, register
from npuconv.ops.tape import Gradients, Tape, Visit

if TYPE_CHECKING:
    import onnx

Doubles = NDArray[np.float64]
_WEIGHT_STEPS = 2**11  # of 1, in the weights of a device that shifts
_WEIGHT_BITS = 10  # of a weight of RESIZE_BILINEAR
_BILINEAR = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
_LARGEST = 2.0**30  # float results beyond it saturate whatever the zero point is


def _passes(node: Node) -> bool:
    """Return whether nearest values are taken.

    onnxruntime moves a Transpose through a Resize of int8 without turning its ``axes``.
    """
    nearest = str(query.attribute(node, "mode", "nearest")) == "nearest"
    mode = str(query.attribute(node, "coordinate_transformation_mode", ""))
    return nearest and mode != "tf_crop_and_resize" and not query.attribute(node, "axes")


def _moves(node: onnx.NodeProto) -> bool:
    return all(a.s == b"nearest" for a in node.attribute if a.name == "mode")


def _takes(attributes: Attributes) -> bool:
    """Return whether a written Resize is linear along all axes, by scales or by sizes."""
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


def interpolation(
    length: int,
    wanted: int,
    mode: str = "half_pixel",
    scale: float = 0,
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> Doubles:
    """Return the weights of a Resize along one axis [wanted, length].

    Args:
        length: number of values before.
        wanted: number of values after.
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


def _sides(x: Whole, attributes: Attributes) -> list[tuple[int, int, str]]:
    """Return length before and after of height and width, and the mode."""
    mode = str(attributes.get("coordinate_transformation_mode", "half_pixel"))
    extents = zip(spatial(x, "Resize"), resized(x, attributes), strict=True)
    return [(before, after, mode) for before, after in extents]


def _kernel(
    attributes: Attributes, values: Sequence[W], scales: Sequence[TensorScale], how: Rescaling
) -> W:
    """Return ``round(rows @ (x - zx) @ columns.T * sx / sy) + zy``.

    Of a device that shifts, the weights are multiples of ``2**-11``: twice 11 bits and 8 of the
    values leave 2**32 for a factor below 2**31.
    """
    (x,), (x_at, y_at) = values, scales
    rows, columns = (interpolation(*side) for side in _sides(x, attributes))
    factor = float(ratio(x_at.scale, over=y_at.scale))
    centred = x_at.centred(x)
    if how.kind == "float":
        steps = np.rint(rows @ centred.known().astype(np.float64) @ columns.T * factor)
        return y_at.stored(x.like(np.clip(steps, -_LARGEST, _LARGEST)))
    high, wide = (np.rint(w * _WEIGHT_STEPS).astype(np.int64) for w in (rows, columns))
    return y_at.stored(how.rescaled((centred.between(high, wide.T), factor / _WEIGHT_STEPS**2)))


def _tflite_kernel(
    attributes: Attributes, values: Sequence[W], _: Sequence[TensorScale], how: Any
) -> W:
    """Weights of 10 bits along both axes, half a step away from zero."""
    del how
    (x,) = values
    rows, columns = (_tflite_weights(*side) for side in _sides(x, attributes))
    mixed = x.between(rows, columns.T)
    return gemmlowp.divided(mixed, 2 * _WEIGHT_BITS).clipped(LOWEST, HIGHEST)


def _tflite_weights(before: int, after: int, mode: str) -> Integers:
    """Return the whole weights of each value of the result [after, before]."""
    unit = 1 << _WEIGHT_BITS
    corners, half = mode == "align_corners", mode in ("half_pixel", "pytorch_half_pixel")
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


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    """Sum the copies of an enlargement by whole factors; approximate for linear ones."""
    small, large = at.shape(), at.output_shape
    if len(small) != 4 or small[:2] != large[:2] or 0 in (*small, *large):
        return {}
    if any(b % a for a, b in zip(small, large, strict=True)):
        return {}
    factors = [b // a for a, b in zip(small[2:], large[2:], strict=True)]
    mean = tape.add("AveragePool", at.dy, kernel_shape=factors, strides=factors)
    return {0: tape.add("Mul", mean, tape.constant(float(math.prod(factors))))}


register(
    Operator(
        name="Resize",
        adjoint=_adjoint,
        parameters={2: "scales", 3: "sizes"},
        passes=_passes,
        moves=_moves,
        follow=channels.resized,
        takes=_takes,
        is_defined=_is_defined,
        kernel=_kernel,
        in_tflite=_in_tflite,
        tflite_kernel=_tflite_kernel,
        tflite_scale="input",
    )
)
