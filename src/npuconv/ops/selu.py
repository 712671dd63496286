"""Selu: ``gamma * x`` above 0, ``gamma * alpha * (exp(x) - 1)`` below."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuconv.ops.tables import register_table
from npuconv.ops.tape import Tape, Visit, pointwise

_ALPHA, _GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # defaults of ONNX


def _selu(x: Any, alpha: float = _ALPHA, gamma: float = _GAMMA, **_: Any) -> Any:
    return gamma * np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _slope(tape: Tape, visit: Visit) -> str:
    """Return ``gamma`` above 0, ``y + gamma * alpha`` below."""
    alpha, gamma = visit.attributes.get("alpha", _ALPHA), visit.attributes.get("gamma", _GAMMA)
    positive = tape.add("Greater", visit.x, tape.constant(0.0))
    below = tape.add("Add", visit.y, tape.constant(gamma * alpha))
    return tape.add("Where", positive, tape.constant(gamma), below)


register_table("Selu", _selu, adjoint=pointwise(_slope))
