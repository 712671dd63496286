"""Resize of the two axes of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from npuconv.emit.tflite.draft import CHANNELS_LAST, Draft, attributes
from npuconv.emit.tflite.graph import Array
from npuconv.emit.tflite.movement import take
from npuconv.errors import ModelError

_AXES = ((1, 2), (2, 3))  # where height and width are stored, and where ONNX has them
_SYMMETRIC = ("half_pixel", "pytorch_half_pixel")


def resize(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a RESIZE_NEAREST_NEIGHBOR or RESIZE_BILINEAR, or a GATHER along each axis.

    Raises:
        ModelError: a mode that TFLite does not have.
    """
    attrs = attributes(node)
    before, after = draft.shape(node.input[0]), draft.shape(node.output[0])
    if len(before) != 4 or before[:2] != after[:2]:
        raise ModelError(f"{node.name!r}: TFLite resizes height and width only")
    source = draft.read(node.input[0], CHANNELS_LAST)
    made = draft.store(node.output[0], CHANNELS_LAST, draft.quantization(source))
    mode = attrs.get("mode", "nearest")
    if mode == "linear":
        _bilinear(draft, node, source, made)
        return
    if mode != "nearest":
        raise ModelError(f"{node.name!r}: TFLite has no Resize of mode {mode!r}")
    places = [_places(draft, node, before[k], after[k], k) for _, k in _AXES]
    plain = [np.arange(after[k]) * before[k] // after[k] for _, k in _AXES]
    if all(np.array_equal(a, b) for a, b in zip(places, plain, strict=True)):
        _to_size(draft, "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", source, made)
        return
    stored = draft.graph.tensors[source]
    shape = (stored.shape[0], after[2], *stored.shape[2:])
    rows = draft.add(f"{stored.name}/rows", shape, stored.dtype, None, stored.quantization)
    take(draft, source, rows, 1, places[0])
    take(draft, rows, made, 2, places[1])


def _to_size(draft: Draft, code: str, table: str, source: int, made: int, **options: bool) -> None:
    size = draft.number("size", np.asarray(draft.graph.tensors[made].shape[1:3], np.int32))
    draft.emit(code, [source, size], [made], table, **options)


def _bilinear(draft: Draft, node: onnx.NodeProto, source: int, made: int) -> None:
    mode = attributes(node).get("coordinate_transformation_mode", "half_pixel")
    if mode not in (*_SYMMETRIC, "align_corners", "asymmetric"):
        raise ModelError(f"{node.name!r}: TFLite has no bilinear Resize with {mode!r}")
    corners, half = mode == "align_corners", mode in _SYMMETRIC
    options = {"AlignCorners": corners, "HalfPixelCenters": half}
    _to_size(draft, "RESIZE_BILINEAR", "ResizeBilinearOptions", source, made, **options)


def _places(draft: Draft, node: onnx.NodeProto, before: int, after: int, axis: int) -> Array:
    """Return the places that nearest values come from, int64 [after], by ONNX's formulas."""
    attrs = attributes(node)
    out, scale = np.arange(after, dtype=np.float64), _scale(draft, node, before, after, axis)
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode == "asymmetric":
        found = out / scale
    elif mode in _SYMMETRIC:
        found = (out + 0.5) / scale - 0.5 if after > 1 or mode == "half_pixel" else out * 0
    elif mode == "align_corners":
        found = out * (before - 1) / max(after - 1, 1)
    else:
        raise ModelError(f"{node.name!r}: TFLite has no nearest Resize with {mode!r}")
    rounding: dict[str, Any] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    nearest = rounding[attrs.get("nearest_mode", "round_prefer_floor")](found)
    return np.clip(nearest, 0, before - 1).astype(np.int64)


def _scale(draft: Draft, node: onnx.NodeProto, before: int, after: int, axis: int) -> float:
    """Return the factor of an axis: what the node says, or that of the extents."""
    scales = draft.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    listed = list(attributes(node).get("axes", range(4)))
    if scales is None or not scales.size:
        return after / before
    return float(scales[listed.index(axis)]) if axis in listed else 1.0
