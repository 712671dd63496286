"""MatMul of two activations."""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.arithmetic.rescaling import Rescaling, TensorScale, ratio
from npuconv.arithmetic.whole import W
from npuconv.model.types import Node
from npuconv.ops.operator import Attributes, Operator, always, register, values_of
from npuconv.ops.tape import Gradients, Tape, Visit, unbroadcast


def _is_defined(node: Node) -> bool:
    return len(values_of(node)) == 2


def _kernel(_: Attributes, values: Sequence[W], scales: Sequence[TensorScale], how: Rescaling) -> W:
    """Return ``round((a - za) @ (b - zb) * sa * sb / sy) + zy``."""
    (a, b), (a_at, b_at, y_at) = values, scales
    factor = how.quotient(ratio(a_at.scale, b_at.scale, over=1.0), y_at.scale)
    return y_at.stored(how.rescaled((a_at.centred(a).product(b_at.centred(b)), factor)))


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    if min(len(at.shape(0)), len(at.shape(1))) < 2:
        return {}

    def transposed(index: int) -> str:
        axes = list(range(len(at.shape(index))))
        return tape.add("Transpose", at.inputs[index], perm=[*axes[:-2], axes[-1], axes[-2]])

    gradients = {}
    for k, pair in {0: (at.dy, transposed(1)), 1: (transposed(0), at.dy)}.items():
        full = (*at.output_shape[:-2], *at.shape(k)[-2:])
        gradients[k] = unbroadcast(tape, tape.add("MatMul", *pair), at.shape(k), full)
    return gradients


register(
    Operator(
        name="MatMul",
        adjoint=_adjoint,
        data=None,
        is_defined=_is_defined,
        kernel=_kernel,
        integer_form="QLinearMatMul",
        in_tflite=always,
    )
)
