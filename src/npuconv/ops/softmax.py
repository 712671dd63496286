"""Softmax: differences to the largest value are 0..-255, so that exponentials are a table."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.arithmetic.rescaling import TensorScale
from npuconv.model import Node, query
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import Arguments, W, always, register
from npuconv.ops.tape import Gradients, Tape, Visit
from npuconv.tflite.draft import Draft

_TABLE_STEPS = 2**24  # steps from 0 to 1 in the exponentials of a device that shifts
_SHARE_BITS = 31  # bits of an exponential of TFLite
_TFLITE_SCALE = TensorScale(1 / 256, -128)


def _in_tflite(node: Node) -> bool:
    """Return whether a Softmax runs along the last axis, where all opsets agree."""
    rank = query.rank(node.inputs[0])
    axis = query.attribute(node, "axis", -1)
    return rank is not None and int(axis) % rank == rank - 1


def _kernel(call: Arguments[W]) -> W:
    """Return ``round(e / sum(e) / sy) + zy`` with ``e = exp(sx * (x - max(x)))``.

    Of a device that shifts, exponentials are multiples of ``2**-24`` and ``1 / sy`` of ``2**-8``.
    """
    (x,), (x_at, y_at), axis = call.values, call.scales, int(call.attributes.get("axis", -1))
    distances = x.times(-1).plus(x.largest(axis))
    table = np.exp(-np.arange(256) * float(np.float32(x_at.scale)))
    inverse = 1 / float(np.float32(y_at.scale))
    if call.rescaling.kind == "float":
        real = table[distances.array()]
        return y_at.rounded(x, real / real.sum(axis, keepdims=True) * inverse)
    steps = distances.entries(np.rint(table * _TABLE_STEPS).astype(np.int64))
    whole = steps.total((axis,)).times(256)
    product = steps.times(round(inverse * 256))
    return y_at.stored(product.times(2).plus(whole).over(whole.times(2)))


def _tflite_kernel(call: Arguments[W]) -> W:
    """Return exponentials from a table over their sum, half a step upwards.

    The kernel has float32 numbers here. Multiples of ``2**-31`` differ from them only where a
    result lies within their last bits of a tie.
    """
    (x,), (x_at, y_at), axis = call.values, call.scales, int(call.attributes.get("axis", -1))
    real = np.exp(-np.float32(x_at.scale) * np.arange(256, dtype=np.float32)).astype(np.float64)
    table = np.rint(np.ldexp(real, _SHARE_BITS)).astype(np.int64)
    shares = x.times(-1).plus(x.largest(axis)).entries(table)
    total = shares.total((axis,))
    return y_at.stored(shares.times(2 * 256).plus(total).over(total.times(2)))


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    weighed = tape.add("Mul", visit.dy, visit.y)
    axis = visit.attributes.get("axis", -1)
    total = tape.reduce("ReduceSum", weighed, [axis], keepdims=True)
    return {0: tape.add("Sub", weighed, tape.add("Mul", visit.y, total))}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
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


register(
    "Softmax",
    is_defined=always,
    kernel=_kernel,
    adjoint=_adjoint,
    integer_form="QLinearSoftmax",
    in_tflite=_in_tflite,
    tflite_kernel=_tflite_kernel,
    tflite_scale=_TFLITE_SCALE,
    to_tflite=_to_tflite,
)
register("LogSoftmax", to_tflite=_to_tflite)
