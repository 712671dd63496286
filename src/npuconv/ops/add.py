"""Add, Sub and Sum, whose shapes broadcast."""

from __future__ import annotations

import numpy as np

from npuconv.arithmetic.rescaling import INT8_VALUES, ratio
from npuconv.model import Node
from npuconv.ops.operator import Arguments, Kernel, W, always, register, values_of
from npuconv.ops.tape import Gradients, Tape, Visit, by_input
from npuconv.tflite.elementwise import binary

_SUM_BITS = 20  # bits by which TFLite's ADD shifts both inputs left


def is_binary(node: Node) -> bool:
    """Return whether a node has two inputs, not all constant."""
    return len(node.inputs) == 2 and len(values_of(node)) > 0


def _kernel(sign: int) -> Kernel:
    """Return ``round((a - za) * sa / sy + sign * (b - zb) * sb / sy) + zy``."""

    def add(call: Arguments[W]) -> W:
        (a, b), (a_at, b_at, y_at) = call.values, call.scales
        first = a_at.centred(a), ratio(a_at.scale, over=y_at.scale)
        second = b_at.centred(b).times(sign), ratio(b_at.scale, over=y_at.scale)
        return y_at.stored(call.rescaling.rescaled(first, second))

    return add


def _tflite_kernel(sign: int) -> Kernel:
    """Return the sum of TFLite: both inputs in one scale, 20 bits finer, then requantized."""

    def add(call: Arguments[W]) -> W:
        a_at, b_at, y_at = call.scales
        twice = 2 * np.float64(max(np.float32(a_at.scale), np.float32(b_at.scale)))
        terms = []
        for x, scale in zip(call.values, (a_at, b_at), strict=True):
            fine = scale.centred(INT8_VALUES).times(1 << _SUM_BITS)
            factor = np.float64(np.float32(scale.scale)) / twice
            terms.append(x.looked_up(call.rescaling.rescaled((fine, factor)).values))
        total = terms[0].plus(terms[1].times(sign) if sign < 0 else terms[1])
        step = np.float64(np.float32(y_at.scale)) * (1 << _SUM_BITS)
        return y_at.stored(call.rescaling.rescaled((total, twice / step)))

    return add


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    parts = dict.fromkeys(range(len(visit.inputs)), visit.dy)
    if visit.op == "Sub":
        parts[1] = tape.add("Neg", visit.dy)
    return by_input(tape, visit, parts)


register(
    "Add",
    is_defined=is_binary,
    data=None,
    function=lambda a, b, **_: np.add(a, b),
    kernel=_kernel(1),
    adjoint=_adjoint,
    integer_form="QLinearAdd",
    in_tflite=always,
    tflite_kernel=_tflite_kernel(1),
    to_tflite=binary("ADD", "AddOptions"),
)
register(
    "Sub",
    is_defined=is_binary,
    data=None,
    function=lambda a, b, **_: np.subtract(a, b),
    kernel=_kernel(-1),
    adjoint=_adjoint,
    in_tflite=always,
    tflite_kernel=_tflite_kernel(-1),
    to_tflite=binary("SUB", "SubOptions"),
)
register("Sum", data=None, adjoint=_adjoint, to_tflite=binary("ADD", "AddOptions"))
