"""Operators that move, select or resize values, or compare neighbours: on int8 as on float."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from npuconv.emit.int8_operators import attributes_of
from npuconv.emit.tflite import conversions
from npuconv.emit.tflite.convolution import bounds
from npuconv.emit.tflite.draft import CHANNELS_LAST, Draft, View, same
from npuconv.emit.tflite.flatbuffer import Array, enumerator
from npuconv.emit.tflite.windows import ends_of, padded, pads_of
from npuconv.emit.tflite.windows import pad as append_pad
from npuconv.errors import ModelError
from npuconv.ops.resize import coordinates, interpolation

_AXES = ((1, 2), (2, 3))  # where height and width are stored, and where ONNX has them
_SYMMETRIC = ("half_pixel", "pytorch_half_pixel")


def transpose(draft: Draft, node: onnx.NodeProto) -> None:
    """Let the result be another view of the stored tensor."""
    name, result = node.input[0], node.output[0]
    rank = len(draft.shape(name))
    perm = list(attributes_of(node).get("perm", reversed(range(rank))))
    draft.read(name, draft.order([name], rank))
    view = draft.view(name) or View(draft.read(name), same(rank))
    draft.alias(result, View(view.index, tuple(perm.index(axis) for axis in view.order)))


def reshape(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a RESHAPE of values that lie as ONNX has them."""
    result = node.output[0]
    source = draft.flat(node.input[0])
    if draft.graph.tensors[source].shape == draft.shape(result):
        draft.alias(result, View(source, same(len(draft.shape(result)))))
        return
    output = draft.store(result, same(len(draft.shape(result))), draft.quantization(source))
    draft.reshape(source, output)


def identity(draft: Draft, node: onnx.NodeProto) -> None:
    """Give a tensor its second name."""
    rank = len(draft.shape(node.input[0]))
    view = draft.view(node.input[0]) or View(draft.read(node.input[0]), same(rank))
    draft.alias(node.output[0], view)


def concat(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a CONCATENATION in the order of its first input."""
    result = node.output[0]
    rank = len(draft.shape(result))
    order = draft.order(node.input, rank)
    sources = [draft.read(name, order) for name in node.input]
    output = draft.store(result, order, draft.quantization(sources[0]))
    axis = order.index(int(attributes_of(node)["axis"]) % rank)
    none = enumerator("ActivationFunctionType", "NONE")
    options = {"Axis": axis, "FusedActivationFunction": none}
    draft.emit("CONCATENATION", sources, [output], "ConcatenationOptions", **options)


def max_pool(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a MAX_POOL_2D, whose padding is never the largest."""
    attrs = attributes_of(node)
    source = draft.read(node.input[0], CHANNELS_LAST)
    stored = draft.graph.tensors[source]
    if any(d != 1 for d in attrs.get("dilations", (1, 1))):
        raise ModelError("TFLite has no MaxPool with dilation")
    dtype = stored.dtype
    lowest = np.iinfo(dtype).min if dtype.kind == "i" else np.finfo(dtype).min
    kernel, strides = attrs["kernel_shape"], attrs.get("strides", (1, 1))
    fill = np.asarray(lowest, dtype)
    source, padding = padded(draft, source, kernel, strides, pads_of(attrs), fill)
    output = draft.store(node.output[0], CHANNELS_LAST, draft.quantization(source))
    options = pool_options(kernel, strides, padding)
    draft.emit("MAX_POOL_2D", [source], [output], "Pool2DOptions", **options)


def pool_options(kernel: Sequence[int], strides: Sequence[int], padding: int) -> dict[str, int]:
    """Return the fields of ``Pool2DOptions``."""
    return {
        "Padding": padding,
        "StrideH": int(strides[0]),
        "StrideW": int(strides[1]),
        "FilterHeight": int(kernel[0]),
        "FilterWidth": int(kernel[1]),
        "FusedActivationFunction": enumerator("ActivationFunctionType", "NONE"),
    }


def pad(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a PAD, a PADV2 where the value is not 0, or a MIRROR_PAD."""
    if conversions.pads_later(draft, node):
        return
    result = node.output[0]
    rank = len(draft.shape(result))
    order = draft.order([node.input[0]], rank)
    source = draft.read(node.input[0], order)
    ends = ends_of(draft, node, rank)[list(order)].astype(np.int32)
    output = draft.store(result, order, draft.quantization(source))
    mode = attributes_of(node).get("mode", "constant")
    if mode == "reflect":
        kind = enumerator("MirrorPadMode", "REFLECT")
        places = draft.number("paddings", ends)
        draft.emit("MIRROR_PAD", [source, places], [output], "MirrorPadOptions", Mode=kind)
        return
    if mode != "constant" or (ends < 0).any():
        raise ModelError(f"TFLite has no Pad of mode {mode!r}, or with negative pads")
    fill = draft.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if fill is None:
        fill = np.zeros((), draft.graph.tensors[source].dtype)
    quantization = draft.quantization(source)
    zero = 0 if quantization is None else quantization.zero
    append_pad(draft, source, output, ends, None if fill.item() == zero else fill)


def clip(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a RELU, a RELU6, or MAXIMUM and MINIMUM."""
    low, high = bounds(draft, node)
    name, result = node.input[0], node.output[0]
    order = draft.order([name], len(draft.shape(result)))
    source = draft.read(name, order)
    stored = draft.graph.tensors[source]
    if stored.quantization is None and low == 0 and high in (6, np.inf):
        output = draft.store(result, order)
        draft.emit("RELU6" if high == 6 else "RELU", [source], [output])
        return
    limits = np.iinfo(stored.dtype) if stored.dtype.kind == "i" else None
    lowest, highest = (-np.inf, np.inf) if limits is None else (limits.min, limits.max)
    steps = [("MAXIMUM", low)] if low > lowest else []
    steps += [("MINIMUM", high)] if high < highest else []
    for code, bound in steps:
        number = draft.number(code.lower(), np.asarray(bound, stored.dtype), stored.quantization)
        source = draft.step(code, [source, number], source, table="MaximumMinimumOptions")
    draft.alias(result, View(source, order))


def gather(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a GATHER or GATHER_ND; ONNX counts negative indices from the end."""
    name, result, attrs = node.input[0], node.output[0], attributes_of(node)
    shape, rank, several = draft.shape(name), len(draft.shape(result)), node.op_type == "GatherND"
    if attrs.get("batch_dims", 0):
        raise ModelError("TFLite has no GatherND with batch_dims")
    order = (
        draft.order([name], len(shape)) if rank == len(shape) and not several else same(len(shape))
    )
    source, axis = draft.read(name, order), int(attrs.get("axis", 0)) % len(shape)
    extents = np.asarray(shape[: draft.shape(node.input[1])[-1]] if several else shape[axis])
    indices = draft.constant(node.input[1])
    if indices is not None:
        places = draft.number("indices", (indices % extents).astype(np.int32))
    else:
        signed = draft.read(node.input[1])
        extents = extents.astype(draft.graph.tensors[signed].dtype)
        inputs = [signed, draft.number("extents", extents)]
        places = draft.step("FLOOR_MOD", inputs, signed, table="FloorModOptions")
    output = draft.store(result, order if rank == len(shape) and not several else same(rank))
    draft.graph.tensors[output].quantization = draft.quantization(source)
    if several:
        draft.emit("GATHER_ND", [source, places], [output], "GatherNdOptions")
    else:
        draft.emit("GATHER", [source, places], [output], "GatherOptions", Axis=order.index(axis))


def take(draft: Draft, source: int, output: int, axis: int, indices: Array) -> None:
    """Append a GATHER along an axis of a stored tensor."""
    places = draft.number("indices", indices.astype(np.int32))
    draft.emit("GATHER", [source, places], [output], "GatherOptions", Axis=axis)


def slice_(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a SLICE, or a STRIDED_SLICE where steps are not 1."""
    name, result = node.input[0], node.output[0]
    shape, rank = draft.shape(name), len(draft.shape(name))
    values = [draft.constant(n) if n else None for n in (*node.input[1:5], "", "")][:4]
    if values[0] is None or values[1] is None:
        raise ModelError("starts or ends are not constant")
    axes = np.arange(len(values[0])) if values[2] is None else values[2] % rank
    steps = np.ones(len(values[0]), int) if values[3] is None else values[3]
    parts = [slice(None)] * rank
    for start, end, axis, step in zip(values[0], values[1], axes, steps, strict=True):
        last = None if step < 0 and end < -shape[axis] else int(end)
        parts[axis] = slice(int(start), last, int(step))
    order = draft.order([name], rank)
    source = draft.read(name, order)
    output = draft.store(result, order, draft.quantization(source))
    ranges = [range(shape[axis])[parts[axis]] for axis in order]
    _cut(draft, source, output, ranges)


def _cut(draft: Draft, source: int, output: int, ranges: Sequence[range]) -> None:
    """Append a SLICE or STRIDED_SLICE, with a range of each stored axis."""
    starts = draft.number("begin", np.asarray([r.start for r in ranges], np.int32))
    if all(r.step == 1 for r in ranges):
        sizes = draft.number("size", np.asarray([len(r) for r in ranges], np.int32))
        draft.emit("SLICE", [source, starts, sizes], [output], "SliceOptions")
        return
    # Only the mask can express an end before the first element.
    mask = sum(1 << k for k, r in enumerate(ranges) if r.stop < 0)
    stops = draft.number("end", np.asarray([max(r.stop, 0) for r in ranges], np.int32))
    steps = draft.number("strides", np.asarray([r.step for r in ranges], np.int32))
    options = {"BeginMask": 0, "EndMask": mask}
    inputs = [source, starts, stops, steps]
    draft.emit("STRIDED_SLICE", inputs, [output], "StridedSliceOptions", **options)


def split(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a SLICE for every output."""
    name = node.input[0]
    shape = draft.shape(name)
    axis = int(attributes_of(node).get("axis", 0)) % len(shape)
    order = draft.order([name], len(shape))
    source, start = draft.read(name, order), 0
    for result in node.output:
        stop = start + draft.shape(result)[axis]
        output = draft.store(result, order, draft.quantization(source))
        full = [range(shape[k]) for k in order]
        full[order.index(axis)] = range(start, stop)
        _cut(draft, source, output, full)
        start = stop


def depth_to_space(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a DEPTH_TO_SPACE; for the mode CRD after a GATHER of channels into the order DCR."""
    attrs = attributes_of(node)
    block = int(attrs["blocksize"])
    source = draft.read(node.input[0], CHANNELS_LAST)
    quantization = draft.quantization(source)
    channels = draft.shape(node.input[0])[1]
    if attrs.get("mode", "DCR") == "CRD" and channels > block * block:
        numbers = np.arange(channels).reshape(-1, block * block).T.reshape(-1)
        stored = draft.graph.tensors[source]
        output = draft.add(f"{stored.name}/dcr", stored.shape, stored.dtype, None, quantization)
        take(draft, source, output, 3, numbers)
        source = output
    output = draft.store(node.output[0], CHANNELS_LAST, quantization)
    draft.emit("DEPTH_TO_SPACE", [source], [output], "DepthToSpaceOptions", BlockSize=block)


def space_to_depth(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a SPACE_TO_DEPTH, whose order of channels is that of ONNX."""
    source = draft.read(node.input[0], CHANNELS_LAST)
    output = draft.store(node.output[0], CHANNELS_LAST, draft.quantization(source))
    block = int(attributes_of(node)["blocksize"])
    draft.emit("SPACE_TO_DEPTH", [source], [output], "SpaceToDepthOptions", BlockSize=block)


def resize(draft: Draft, node: onnx.NodeProto) -> None:
    """Append the operator of TFLite that resizes so; else a GATHER or a product for each axis.

    Raises:
        ModelError: of other axes than height and width, or by a region.
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
    places = [_nearest(draft, node, axis) for _, axis in _AXES]
    plain = [np.arange(after[k]) * before[k] // after[k] for _, k in _AXES]
    if all(np.array_equal(a, b) for a, b in zip(places, plain, strict=True)):
        _to_size(draft, "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", source, output)
        return
    stored = draft.graph.tensors[source]
    shape = (stored.shape[0], after[2], *stored.shape[2:])
    rows = draft.add(f"{stored.name}/rows", shape, stored.dtype, None, stored.quantization)
    take(draft, source, rows, 1, places[0])
    take(draft, rows, output, 2, places[1])


def _to_size(
    draft: Draft, code: str, table: str, source: int, output: int, **options: bool
) -> None:
    size = draft.number("size", np.asarray(draft.graph.tensors[output].shape[1:3], np.int32))
    draft.emit(code, [source, size], [output], table, **options)


def _interpolate(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a RESIZE_BILINEAR, or products with the weights of rows and of columns.

    RESIZE_BILINEAR takes the scale from the extents, and knows neither cubic nor antialias.
    """
    name, result, attrs = node.input[0], node.output[0], attributes_of(node)
    before, after = draft.shape(name), draft.shape(result)
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    ends = [(before[k], after[k], mode, _scale(draft, node, before, after, k)) for _, k in _AXES]
    rows, columns = (interpolation(*end, attrs) for end in ends)
    plain = [interpolation(*end[:3]) for end in ends]
    bilinear = all(map(np.allclose, (rows, columns), plain)) or draft.dtype(name) == np.int8
    if bilinear and mode in (*_SYMMETRIC, "align_corners", "asymmetric"):
        source = draft.read(name, CHANNELS_LAST)
        output = draft.store(result, CHANNELS_LAST, draft.quantization(source))
        options = {"AlignCorners": mode == "align_corners", "HalfPixelCenters": mode in _SYMMETRIC}
        _to_size(draft, "RESIZE_BILINEAR", "ResizeBilinearOptions", source, output, **options)
        return
    left, right = (draft.number(f"{name}/weights", w[None, None]) for w in (rows, columns.T))
    part = draft.add(f"{name}/rows", (*before[:2], after[2], before[3]), draft.dtype(name))
    output, options = draft.store(result, same(4)), {"AdjX": False, "AdjY": False}
    for factors, product in (((left, draft.read(name, same(4))), part), ((part, right), output)):
        draft.emit("BATCH_MATMUL", factors, [product], "BatchMatMulOptions", **options)


def _nearest(draft: Draft, node: onnx.NodeProto, axis: int) -> Array:
    """Return the places that nearest values come from along an axis, int64."""
    attrs = attributes_of(node)
    before, after = draft.shape(node.input[0]), draft.shape(node.output[0])
    rounding: dict[str, Any] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    scale = _scale(draft, node, before, after, axis)
    places = coordinates(before[axis], after[axis], mode, scale)
    nearest = rounding[attrs.get("nearest_mode", "round_prefer_floor")](places)
    return np.clip(nearest, 0, before[axis] - 1).astype(np.int64)


def _scale(
    draft: Draft, node: onnx.NodeProto, before: Sequence[int], after: Sequence[int], axis: int
) -> float:
    """Return the factor of an axis: the scale of the node, or the ratio of the extents."""
    scales = draft.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    listed = list(attributes_of(node).get("axes", range(4)))
    if scales is None or not scales.size:
        return after[axis] / before[axis]
    return float(scales[listed.index(axis)]) if axis in listed else 1.0
