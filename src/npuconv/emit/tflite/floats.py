"""Operators under their TFLite names: float on the host, int8 where the device computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from npuconv.emit.int8_operators import attributes_of
from npuconv.emit.tflite.movement import identity, pool_options
from npuconv.errors import ModelError
from npuconv.tflite.draft import CHANNELS_LAST, Draft, Order, same
from npuconv.tflite.flatbuffer import enumerator
from npuconv.tflite.windows import named_padding, padded, pads_of

# ONNX operator -> TFLite operator and its table of options
BINARY = {
    "Add": ("ADD", "AddOptions"), "Sub": ("SUB", "SubOptions"), "Mul": ("MUL", "MulOptions"),
    "Div": ("DIV", "DivOptions"), "Pow": ("POW", "PowOptions"), "Sum": ("ADD", "AddOptions"),
    "Max": ("MAXIMUM", "MaximumMinimumOptions"), "Min": ("MINIMUM", "MaximumMinimumOptions"),
    "Equal": ("EQUAL", "EqualOptions"), "Greater": ("GREATER", "GreaterOptions"),
    "Less": ("LESS", "LessOptions"), "Where": ("SELECT_V2", "SelectV2Options"),
    "GreaterOrEqual": ("GREATER_EQUAL", "GreaterEqualOptions"),
    "LessOrEqual": ("LESS_EQUAL", "LessEqualOptions"),
    "And": ("LOGICAL_AND", "LogicalAndOptions"), "Or": ("LOGICAL_OR", "LogicalOrOptions"),
}  # fmt: skip
UNARY = {
    "Relu": ("RELU", ""), "Sigmoid": ("LOGISTIC", ""), "Tanh": ("TANH", ""), "Elu": ("ELU", ""),
    "HardSwish": ("HARD_SWISH", "HardSwishOptions"), "Exp": ("EXP", "ExpOptions"),
    "Log": ("LOG", ""), "Sqrt": ("SQRT", ""), "Neg": ("NEG", "NegOptions"), "Abs": ("ABS", ""),
    "Floor": ("FLOOR", ""), "Ceil": ("CEIL", ""), "Round": ("ROUND", ""), "Sin": ("SIN", ""),
    "Cos": ("COS", "CosOptions"), "Gelu": ("GELU", "GeluOptions"),
    "Not": ("LOGICAL_NOT", "LogicalNotOptions"), "Sign": ("SIGN", "SignOptions"),
}  # fmt: skip
REDUCTIONS = {
    "ReduceMean": "MEAN", "ReduceSum": "SUM", "ReduceMax": "REDUCE_MAX", "ReduceMin": "REDUCE_MIN",
}  # fmt: skip


def binary(draft: Draft, node: onnx.NodeProto) -> None:
    """Append an operator on tensors that are broadcast; of more than two inputs, a chain."""
    code, table = BINARY[node.op_type]
    rank = len(draft.shape(node.output[0]))
    order = draft.order(node.input, rank)
    sources = [draft.read(name, order, rank) for name in node.input]
    output = draft.store(node.output[0], order)
    while len(sources) > 2 and code != "SELECT_V2":
        part = draft.step(code, sources[:2], output, table=table)
        sources = [part, *sources[2:]]
    draft.emit(code, sources, [output], table)


def unary(draft: Draft, node: onnx.NodeProto) -> None:
    """Append an operator on one tensor; int8 that passes through keeps its scale."""
    code, table = UNARY[node.op_type]
    order = draft.order([node.input[0]], len(draft.shape(node.input[0])))
    source = draft.read(node.input[0], order)
    output = draft.store(node.output[0], order, draft.quantization(source))
    tanh = attributes_of(node).get("approximate") == "tanh"
    draft.emit(code, [source], [output], table, **({"Approximate": True} if tanh else {}))


def leaky_relu(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a LEAKY_RELU."""
    order = draft.order([node.input[0]], len(draft.shape(node.input[0])))
    source = draft.read(node.input[0], order)
    alpha = float(attributes_of(node).get("alpha", 0.01))
    output = draft.store(node.output[0], order)
    draft.emit("LEAKY_RELU", [source], [output], "LeakyReluOptions", Alpha=alpha)


def prelu(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a PRELU, whose slopes have all axes but the first."""
    rank = len(draft.shape(node.input[0]))
    order = draft.order([node.input[0]], rank)
    source, slopes = draft.read(node.input[0], order), draft.constant(node.input[1])
    if slopes is None:
        raise ModelError("slopes are not constant")
    wide = slopes.reshape((1,) * (rank - slopes.ndim) + slopes.shape).transpose(order)
    stored = wide[0] if order[0] == 0 and rank > 1 else wide
    number = draft.number(node.input[1], stored, draft.scales.get(node.input[1]))
    draft.emit("PRELU", [source, number], [draft.store(node.output[0], order)])


def softmax(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a SOFTMAX or LOG_SOFTMAX, which run along the last axis that is stored."""
    rank = len(draft.shape(node.input[0]))
    axis = int(attributes_of(node).get("axis", -1)) % rank
    order = draft.order([node.input[0]], rank)
    if order[-1] != axis:
        order = (*(k for k in order if k != axis), axis)
    source = draft.read(node.input[0], order)
    output = draft.store(node.output[0], order)
    if node.op_type == "Softmax":
        draft.emit("SOFTMAX", [source], [output], "SoftmaxOptions", Beta=1.0)
    else:
        draft.emit("LOG_SOFTMAX", [source], [output], "LogSoftmaxOptions")


def average_pool(draft: Draft, node: onnx.NodeProto) -> None:
    """Append an AVERAGE_POOL_2D, which never counts its padding.

    Padding that TFLite has no name for is padded before with 0 and counted; where ONNX does not
    count it, a MUL makes up for it.
    """
    attrs = attributes_of(node)
    source = draft.read(node.input[0], CHANNELS_LAST)
    kernel, strides = attrs["kernel_shape"], attrs.get("strides", (1, 1))
    pads, counted = pads_of(attrs), bool(attrs.get("count_include_pad", 0))
    stored = draft.graph.tensors[source]
    named = named_padding(stored.shape[1:3], kernel, strides, pads)
    # TFLite must not know that counted cells are padding.
    explicit = counted and any(pads)
    source, padding = padded(draft, source, kernel, strides, pads, explicit=explicit)
    options = pool_options(kernel, strides, padding)
    output = draft.store(node.output[0], CHANNELS_LAST)
    if named or counted:
        draft.emit("AVERAGE_POOL_2D", [source], [output], "Pool2DOptions", **options)
        return
    pooled = draft.step("AVERAGE_POOL_2D", [source], output, table="Pool2DOptions", **options)
    counts = []  # values of each window that are no padding, by row and by column
    windows = zip(stored.shape[1:3], kernel, strides, strict=True)
    for axis, (extent, size, stride) in enumerate(windows):
        real = np.pad(np.ones(extent), (pads[axis], pads[axis + 2]))
        starts = range(0, len(real) - size + 1, stride)
        counts.append(np.asarray([real[k : k + size].sum() for k in starts]))
    area = float(kernel[0]) * float(kernel[1])
    shares = (area / np.outer(*counts)).astype(np.float32)[None, :, :, None]
    number = draft.number(f"{node.name}/shares", shares)
    draft.emit("MUL", [pooled, number], [output], "MulOptions")


def global_pool(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a MEAN or REDUCE_MAX over all axes but the first two."""
    rank = len(draft.shape(node.input[0]))
    code = "MEAN" if node.op_type == "GlobalAveragePool" else "REDUCE_MAX"
    _reduce(draft, node, code, range(2, rank), keep=True)


def reduction(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a reduction over constant axes."""
    attrs, rank = attributes_of(node), len(draft.shape(node.input[0]))
    axes: Any = attrs.get("axes")
    if axes is None and len(node.input) > 1 and node.input[1]:
        axes = draft.constant(node.input[1])
        if axes is None:
            raise ModelError("axes are not constant")
    axes = range(rank) if axes is None else [int(axis) % rank for axis in axes]
    keep = bool(attrs.get("keepdims", 1))
    _reduce(draft, node, REDUCTIONS[node.op_type], axes, keep=keep)


def _reduce(
    draft: Draft, node: onnx.NodeProto, code: str, axes: Sequence[int], *, keep: bool
) -> None:
    name, rank = node.input[0], len(draft.shape(node.input[0]))
    order = draft.order([name], rank)
    remaining = [axis for axis in order if axis not in axes]
    order = order if keep or remaining == sorted(remaining) else same(rank)
    source = draft.read(name, order)
    places = draft.number("axes", np.asarray(sorted(order.index(a) for a in axes), np.int32))
    output = draft.store(node.output[0], order if keep else same(len(draft.shape(node.output[0]))))
    draft.emit(code, [source, places], [output], "ReducerOptions", KeepDims=keep)


def gemm(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a FULLY_CONNECTED of constant weights [N, K]."""
    attrs = attributes_of(node)
    weight = draft.constant(node.input[1])
    bias = draft.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if weight is None or attrs.get("transA", 0) or (len(node.input) > 2 and bias is None):
        raise ModelError("TFLite needs constant weights, and no transA")
    rows = weight if attrs.get("transB", 0) else weight.T
    offsets = np.zeros(len(rows), np.float32) if bias is None else bias
    offsets = np.broadcast_to(offsets.reshape(-1), len(rows)) * np.float32(attrs.get("beta", 1))
    _dense(draft, node, rows * np.float32(attrs.get("alpha", 1)), offsets)


def matmul(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a FULLY_CONNECTED where the right factor is a constant matrix, else BATCH_MATMUL."""
    right = draft.constant(node.input[1])
    if right is not None and right.ndim == 2:
        _dense(draft, node, right.T, np.zeros(right.shape[1], np.float32))
        return
    rank = len(draft.shape(node.output[0]))
    sources = [draft.read(name, same(rank), rank) for name in node.input]
    output = draft.store(node.output[0], same(rank))
    draft.emit("BATCH_MATMUL", sources, [output], "BatchMatMulOptions", AdjX=False, AdjY=False)


def _dense(draft: Draft, node: onnx.NodeProto, rows: Any, offsets: Any) -> None:
    source = draft.read(node.input[0])
    weight = draft.number(node.input[1], np.ascontiguousarray(rows, np.float32))
    bias = draft.number(f"{node.name}/bias", np.ascontiguousarray(offsets, np.float32))
    output = draft.store(node.output[0], same(len(draft.shape(node.output[0]))))
    none = enumerator("ActivationFunctionType", "NONE")
    options = {"KeepNumDims": True, "FusedActivationFunction": none}
    inputs = [source, weight, bias]
    draft.emit("FULLY_CONNECTED", inputs, [output], "FullyConnectedOptions", **options)


def cast(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a CAST, or none to the type that the tensor has."""
    if draft.dtype(node.input[0]) == draft.dtype(node.output[0]):
        identity(draft, node)
        return
    order: Order = draft.order([node.input[0]], len(draft.shape(node.input[0])))
    source = draft.read(node.input[0], order)
    output = draft.store(node.output[0], order)
    draft.emit("CAST", [source], [output], "CastOptions")


def expand(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a BROADCAST_TO the shape that is known."""
    shape = draft.shape(node.output[0])
    source = draft.read(node.input[0], same(len(shape)), len(shape))
    output = draft.store(node.output[0], same(len(shape)))
    extents = draft.number("shape", np.asarray(shape, np.int32))
    draft.emit("BROADCAST_TO", [source, extents], [output], "BroadcastToOptions")
