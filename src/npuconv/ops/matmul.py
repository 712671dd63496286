"""MatMul of two activations."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.arithmetic.rescaling import ratio
from npuconv.model import Node
from npuconv.ops.gemm import dense
from npuconv.ops.operator import Arguments, W, always, register, values_of
from npuconv.ops.tape import Gradients, Tape, Visit, unbroadcast
from npuconv.tflite.draft import Draft, onnx_order


def _is_defined(node: Node) -> bool:
    return len(values_of(node)) == 2


def _kernel(call: Arguments[W]) -> W:
    """Return ``round((a - za) @ (b - zb) * sa * sb / sy) + zy``."""
    (a, b), (a_at, b_at, y_at) = call.values, call.scales
    factor = call.rescaling.quotient(ratio(a_at.scale, b_at.scale, over=1.0), y_at.scale)
    return y_at.stored(call.rescaling.rescaled((a_at.centred(a).product(b_at.centred(b)), factor)))


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    if min(len(visit.shape(0)), len(visit.shape(1))) < 2:
        return {}

    def transposed(index: int) -> str:
        axes = list(range(len(visit.shape(index))))
        return tape.add("Transpose", visit.inputs[index], perm=[*axes[:-2], axes[-1], axes[-2]])

    gradients = {}
    for k, pair in {0: (visit.dy, transposed(1)), 1: (transposed(0), visit.dy)}.items():
        full = (*visit.output_shape[:-2], *visit.shape(k)[-2:])
        gradients[k] = unbroadcast(tape, tape.add("MatMul", *pair), visit.shape(k), full)
    return gradients


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a FULLY_CONNECTED where the right factor is a constant matrix, else BATCH_MATMUL."""
    right = draft.constant(node.input[1])
    if right is not None and right.ndim == 2:
        dense(draft, node, right.T, np.zeros(right.shape[1], np.float32))
        return
    rank = len(draft.shape(node.output[0]))
    sources = [draft.read(name, onnx_order(rank), rank) for name in node.input]
    output = draft.store(node.output[0], onnx_order(rank))
    draft.emit("BATCH_MATMUL", sources, [output], "BatchMatMulOptions", AdjX=False, AdjY=False)


register(
    "MatMul",
    is_defined=_is_defined,
    data=None,
    kernel=_kernel,
    adjoint=_adjoint,
    integer_form="QLinearMatMul",
    in_tflite=always,
    to_tflite=_to_tflite,
)
