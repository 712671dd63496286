"""Gemm, which is float on the host."""

from __future__ import annotations

from npuconv.ops.operator import Operator, register
from npuconv.ops.tape import Gradients, Tape, Visit


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    attributes = at.attributes
    if attributes.get("transA", 0):
        return {}
    options = {"transB": 1 - attributes.get("transB", 0), "alpha": attributes.get("alpha", 1.0)}
    return {0: tape.add("Gemm", at.dy, at.inputs[1], **options)}


register(Operator(name="Gemm", adjoint=_adjoint))
