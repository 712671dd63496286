"""Mul of two tensors, whose shapes broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuconv.arithmetic.rescaling import Rescaling, TensorScale, ratio
from npuconv.arithmetic.whole import W
from npuconv.ops.add import is_binary
from npuconv.ops.operator import Attributes, Operator, always, register
from npuconv.ops.tape import Gradients, Tape, Visit, by_input


def _kernel(_: Attributes, values: Sequence[W], scales: Sequence[TensorScale], how: Rescaling) -> W:
    """Return ``round((a - za) * (b - zb) * sa * sb / sy) + zy``."""
    (a, b), (a_at, b_at, y_at) = values, scales
    factor = ratio(a_at.scale, b_at.scale, over=y_at.scale)
    return y_at.stored(how.rescaled((a_at.centred(a).times(b_at.centred(b)), factor)))


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    return by_input(tape, at, {k: tape.add("Mul", at.dy, at.inputs[1 - k]) for k in (0, 1)})


register(
    Operator(
        name="Mul",
        adjoint=_adjoint,
        data=None,
        is_defined=is_binary,
        function=lambda a, b, **_: np.multiply(a, b),
        kernel=_kernel,
        integer_form="QLinearMul",
        in_tflite=always,
    )
)
