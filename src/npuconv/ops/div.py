"""Div by a constant, which is never rounded."""

from __future__ import annotations

import numpy as np

from npuconv.arithmetic.rescaling import ratio
from npuconv.errors import ModelError
from npuconv.model import Node, query
from npuconv.ops.operator import Arguments, W, register
from npuconv.ops.tape import Gradients, Tape, Visit, by_input
from npuconv.tflite.elementwise import binary


def _is_defined(node: Node) -> bool:
    divisor = query.constant_input(node, 1)
    return divisor is not None and bool((divisor != 0).all())


def _kernel(call: Arguments[W]) -> W:
    """Return ``round((x - zx) * sx / (divisor * sy)) + zy``.

    Raises:
        ModelError: a divisor is 0 or not finite.
    """
    (x,), (x_at, y_at) = call.values, call.scales
    divisor = np.asarray(call.attributes["divisor"], np.float64)
    if not (np.isfinite(divisor) & (divisor != 0)).all():
        raise ModelError("a constant divisor is 0 or not finite")
    signed = x_at.centred(x).times(np.sign(divisor).astype(np.int64))
    factors = float(ratio(x_at.scale, over=y_at.scale)) / np.abs(divisor)
    return y_at.stored(call.rescaling.rescaled((signed, factors)))


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    first = tape.add("Div", visit.dy, visit.inputs[1])
    return by_input(tape, visit, {0: first, 1: tape.add("Neg", tape.add("Mul", first, visit.y))})


register(
    "Div",
    is_defined=_is_defined,
    data=None,
    parameters={1: "divisor"},
    function=lambda a, b, **_: np.divide(a, b),
    takes=lambda attributes: "divisor" in attributes,
    kernel=_kernel,
    adjoint=_adjoint,
    to_tflite=binary("DIV", "DivOptions"),
)
