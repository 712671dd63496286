"""Mul of two tensors, whose shapes broadcast."""

from __future__ import annotations

import numpy as np

from npuconv.arithmetic.rescaling import ratio
from npuconv.ops.add import is_binary
from npuconv.ops.operator import Arguments, W, always, register
from npuconv.ops.tape import Gradients, Tape, Visit, by_input
from npuconv.tflite.elementwise import binary


def _kernel(call: Arguments[W]) -> W:
    """Return ``round((a - za) * (b - zb) * sa * sb / sy) + zy``."""
    (a, b), (a_at, b_at, y_at) = call.values, call.scales
    factor = ratio(a_at.scale, b_at.scale, over=y_at.scale)
    return y_at.stored(call.rescaling.rescaled((a_at.centred(a).times(b_at.centred(b)), factor)))


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    return by_input(
        tape, visit, {k: tape.add("Mul", visit.dy, visit.inputs[1 - k]) for k in (0, 1)}
    )


register(
    "Mul",
    is_defined=is_binary,
    data=None,
    function=lambda a, b, **_: np.multiply(a, b),
    kernel=_kernel,
    adjoint=_adjoint,
    integer_form="QLinearMul",
    in_tflite=always,
    to_tflite=binary("MUL", "MulOptions"),
)
