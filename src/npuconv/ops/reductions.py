"""Reductions; means over height and width are also computed in int8."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.rescaling import ratio
from npuconv.errors import ModelError
from npuconv.model import Node, query
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import Arguments, W, always, register
from npuconv.ops.tape import Gradients, Tape, Visit
from npuconv.tflite.draft import Draft, onnx_order
from npuconv.tflite.flatbuffer import enumerator

_IN_TFLITE = {
    "ReduceMean": "MEAN", "ReduceSum": "SUM", "ReduceMax": "REDUCE_MAX", "ReduceMin": "REDUCE_MIN",
    "ReduceProd": "REDUCE_PROD", "ArgMax": "ARG_MAX", "ArgMin": "ARG_MIN",
    "GlobalAveragePool": "MEAN", "GlobalMaxPool": "REDUCE_MAX",
}  # fmt: skip


def _is_of_images(node: Node) -> bool:
    return query.rank(node.inputs[0]) == 4


def _is_spatial(node: Node) -> bool:
    """Return whether height and width are reduced, by axes that are known, of rank 4."""
    return _is_of_images(node) and query.reduced_axes(node) == (2, 3)


def _total(call: Arguments[W]) -> tuple[W, int]:
    """Return ``sum(x - zx)``, and the number of values that are averaged.

    Raises:
        ModelError: an extent is not known.
    """
    (x,), attributes, rank = call.values, call.attributes, len(call.values[0].shape)
    axes = sorted(int(axis) % rank for axis in np.ravel(attributes.get("axes", range(2, rank))))
    extents = [n for axis in axes if (n := x.shape[axis]) is not None]
    if len(extents) < len(axes):
        raise ModelError("ReduceMean: height or width is not known")
    total = call.scales[0].centred(x).total(axes, keep=bool(attributes.get("keepdims", 1)))
    return total, int(np.prod(extents))


def _kernel(call: Arguments[W]) -> W:
    """Return ``round(sum(x - zx) * sx / (n * sy)) + zy`` over n values."""
    (total, count), (x_at, y_at) = _total(call), call.scales
    return y_at.stored(call.rescaling.rescaled((total, ratio(x_at.scale, over=y_at.scale) / count)))


def _tflite_kernel(call: Arguments[W]) -> W:
    """Return the sum of the values, requantized by a multiplier divided by their number."""
    (total, count), (x_at, y_at) = _total(call), call.scales
    factor = gemmlowp.nearest(ratio(x_at.scale, over=y_at.scale))
    exponent = int(factor.exponent)
    places = min(count.bit_length() - 1, 32, 31 + exponent)
    multiplier = (int(factor.multiplier) << places) // count
    share = gemmlowp.Multipliers(np.asarray(multiplier), np.asarray(exponent - places))
    return y_at.stored(gemmlowp.scaled(total, share))


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    shape = visit.shape()
    axes = _axes(tape, visit)
    dims = [1 if k in axes else n for k, n in enumerate(shape)]
    count = 1 if visit.op == "ReduceSum" else math.prod(shape[k] for k in axes)
    share = tape.add("Mul", tape.reshape(visit.dy, dims), tape.constant(1 / max(count, 1)))
    return {0: tape.add("Expand", share, tape.integers(shape))}


def _axes(tape: Tape, visit: Visit) -> set[int]:
    rank = len(visit.shape())
    if visit.op == "GlobalAveragePool":
        return set(range(2, rank))
    axes = visit.attributes.get("axes")
    if axes is None and len(visit.inputs) > 1:
        axes = tape.value(visit.inputs[1])
    return {int(a) % rank for a in (range(rank) if axes is None else axes)}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a reduction over constant axes; a global pool reduces all but the first two."""
    attrs, name, rank = attributes_of(node), node.input[0], len(draft.shape(node.input[0]))
    axes: Any = attrs.get("axes")
    if node.op_type.startswith("Global"):
        axes = range(2, rank)
    elif node.op_type in ("ArgMax", "ArgMin"):
        axes = [attrs.get("axis", 0)]
        if attrs.get("select_last_index", 0):
            raise ModelError(f"TFLite has no {node.op_type} with select_last_index")
    elif axes is None and len(node.input) > 1 and node.input[1]:
        axes = draft.constant(node.input[1])
        if axes is None:
            raise ModelError("axes are not constant")
    axes = range(rank) if axes is None else [int(axis) % rank for axis in axes]
    code, keep = _IN_TFLITE[node.op_type], bool(attrs.get("keepdims", 1))
    order = draft.order([name], rank)
    remaining = [axis for axis in order if axis not in axes]
    if not keep and remaining != sorted(remaining):
        order, remaining = onnx_order(rank), sorted(remaining)
    source = draft.read(name, order)
    places = draft.number("axes", np.asarray(sorted(order.index(a) for a in axes), np.int32))
    output = draft.store(
        node.output[0], order if keep else onnx_order(len(draft.shape(node.output[0])))
    )
    if code not in ("ARG_MAX", "ARG_MIN"):
        draft.emit(code, [source, places], [output], "ReducerOptions", KeepDims=keep)
        return
    index = draft.add(name, [draft.shape(name)[axis] for axis in remaining], np.int64)
    options = {"OutputType": enumerator("TensorType", "INT64")}
    draft.emit(code, [source, places], [index], f"{node.op_type}Options", **options)
    draft.reshape(index, output)


register(
    "GlobalAveragePool",
    is_defined=_is_of_images,
    kernel=_kernel,
    adjoint=_adjoint,
    integer_form="QLinearGlobalAveragePool",
    in_tflite=always,
    tflite_kernel=_tflite_kernel,
    to_tflite=_to_tflite,
)
register(
    "ReduceMean",
    is_defined=_is_spatial,
    parameters={1: "axes"},
    kernel=_kernel,
    adjoint=_adjoint,
    in_tflite=always,
    tflite_kernel=_tflite_kernel,
    to_tflite=_to_tflite,
)
register("ReduceSum", adjoint=_adjoint, to_tflite=_to_tflite)
for name in ("ReduceMax", "ReduceMin", "ReduceProd", "ArgMax", "ArgMin", "GlobalMaxPool"):
    register(name, to_tflite=_to_tflite)
