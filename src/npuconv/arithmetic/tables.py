"""Operators with one input and no neighbours, as tables of 256 int8 entries.

Entry ``q + 128`` is ``saturate(round(f((q - zx) * sx) / sy) + zy)``, with f in float64, rounded
half to even. Any chain of such operators is one table, rounded once. Where f is no number the
entry is that of 0; where it is infinite, it saturates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.device import saturated
from npuconv.arithmetic.operators import TensorScale
from npuconv.errors import ModelError

Stored = NDArray[np.int8]
Doubles = NDArray[np.float64]
Attributes = Mapping[str, float | str]
Function = Callable[[Doubles, Attributes], NDArray[Any]]

LENGTH = 256  # int8 has no more values


def table(chain: Sequence[tuple[str, Attributes]], x_at: TensorScale, y_at: TensorScale) -> Stored:
    """Return the table of a chain of operators, int8 [256].

    Args:
        chain: ONNX's names with their attributes, ``slope`` for a PRelu, in their order.
        x_at: scale of what the first reads.
        y_at: scale of what the last makes.

    Raises:
        ModelError: an operator that is no table.
    """
    whole = np.arange(LENGTH, dtype=np.float64) - 128 - x_at.zero
    values: NDArray[Any] = whole * float(np.float32(x_at.scale))
    with np.errstate(all="ignore"):
        for op, attributes in chain:
            if op not in FUNCTIONS:
                raise ModelError(f"{op} is not a function of one value")
            values = np.asarray(FUNCTIONS[op](values, attributes))
        steps = np.nan_to_num(values / float(np.float32(y_at.scale)), posinf=1e9, neginf=-1e9)
    return saturated(np.rint(np.clip(steps, -1e9, 1e9)).astype(np.int64), y_at.zero)


def look_up(entries: Stored, x: Stored) -> Stored:
    """Return the entry of every stored integer; entry 0 is that of -128."""
    return np.asarray(entries[np.asarray(x, np.int64) + 128])


def _number(attributes: Attributes, name: str, default: float) -> float:
    return float(attributes.get(name, default))


def _sigmoid(x: Doubles, _: Attributes) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-x)))


def _hard_sigmoid(x: Doubles, attributes: Attributes) -> Doubles:
    slope, offset = _number(attributes, "alpha", 0.2), _number(attributes, "beta", 0.5)
    return np.clip(slope * x + offset, 0, 1)


def _hard_swish(x: Doubles, _: Attributes) -> Doubles:
    return np.asarray(x * np.clip(x / 6 + 0.5, 0, 1))


def _leaky(x: Doubles, slope: float) -> Doubles:
    return np.where(x < 0, x * slope, x)


def _elu(x: Doubles, attributes: Attributes) -> Doubles:
    return np.where(x < 0, _number(attributes, "alpha", 1.0) * np.expm1(np.minimum(x, 0)), x)


def _gelu(x: Doubles, attributes: Attributes) -> Doubles:
    if attributes.get("approximate", "none") == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    erf = np.asarray([math.erf(value / math.sqrt(2)) for value in x])
    return np.asarray(0.5 * x * (1 + erf))


def _softplus(x: Doubles, _: Attributes) -> Doubles:
    return np.logaddexp(0, x)


def _swish(x: Doubles, attributes: Attributes) -> Doubles:
    return np.asarray(x / (1 + np.exp(-_number(attributes, "alpha", 1.0) * x)))


# By ONNX's names; "Swish" is that of opset 24, and SiLU with alpha 1.
FUNCTIONS: dict[str, Function] = {
    "Sigmoid": _sigmoid,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Swish": _swish,
    "Tanh": lambda x, _: np.tanh(x),
    "LeakyRelu": lambda x, a: _leaky(x, _number(a, "alpha", 0.01)),
    "PRelu": lambda x, a: _leaky(x, _number(a, "slope", 0.25)),
    "Elu": _elu,
    "Gelu": _gelu,
    "Softplus": _softplus,
    "Mish": lambda x, a: x * np.tanh(_softplus(x, a)),
    "Exp": lambda x, _: np.exp(x),
    "Sqrt": lambda x, _: np.sqrt(x),
    "Reciprocal": lambda x, _: 1 / x,
}
