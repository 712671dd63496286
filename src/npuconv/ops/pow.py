"""Pow, which is a part of functions of one value."""

from __future__ import annotations

import numpy as np

from npuconv.ops.operator import register
from npuconv.ops.tape import Gradients, Tape, Visit, by_input
from npuconv.tflite.elementwise import binary


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    exponent = visit.inputs[1]
    less = tape.add("Pow", visit.x, tape.add("Sub", exponent, tape.constant(1.0)))
    slope = tape.add("Mul", exponent, less)
    return by_input(tape, visit, {0: tape.add("Mul", visit.dy, slope)})


register(
    "Pow",
    data=None,
    function=lambda a, b, **_: np.power(a, b),
    adjoint=_adjoint,
    to_tflite=binary("POW", "PowOptions"),
)
