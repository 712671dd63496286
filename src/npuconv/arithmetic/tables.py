"""Operators with one input and no neighbours, as tables of 256 int8 entries.

Entry ``q + 128`` is ``saturate(round(f((q - zx) * sx) / sy) + zy)``, with f in float64, rounded
half to even. Any chain of such operators is one table, rounded once. Where f is no number the
entry is that of 0; where it is infinite, it saturates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
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
SOURCE = ""  # the value that a function is of


@dataclass(frozen=True)
class Step:
    """One operator of a function of one value."""

    op: str  # ONNX's name
    # Names of what earlier steps make, ``SOURCE``, or numbers.
    inputs: tuple[str | float, ...] = (SOURCE,)
    output: str = "result"  # name of what it makes
    attributes: Attributes = field(default_factory=dict)  # of the node; ``slope`` of a PRelu


def chain(operators: Sequence[tuple[str, Attributes]]) -> list[Step]:
    """Return the steps of operators that follow each other."""
    names = [SOURCE, *(str(number) for number in range(len(operators)))]
    links = zip(operators, names, names[1:], strict=False)
    return [Step(op, (read,), made, attributes) for (op, attributes), read, made in links]


def evaluate(steps: Sequence[Step], values: Doubles) -> Doubles:
    """Return what the last step makes of ``SOURCE``, in float64.

    Args:
        steps: in their order.
        values: numbers that ``SOURCE`` stands for [N].

    Raises:
        ModelError: an operator that is no function of one value.
    """
    known = {SOURCE: np.asarray(values, np.float64)}
    with np.errstate(all="ignore"):
        for step in steps:
            given = [known[one] if isinstance(one, str) else np.float64(one) for one in step.inputs]
            if step.op in FUNCTIONS:
                made = FUNCTIONS[step.op](np.asarray(given[0]), step.attributes)
            elif step.op in ARITHMETIC:
                made = ARITHMETIC[step.op](*given)
            else:
                raise ModelError(f"{step.op} is not a function of one value")
            known[step.output] = np.asarray(made, np.float64)
    return known[steps[-1].output]


def table(steps: Sequence[Step], x_at: TensorScale, y_at: TensorScale) -> Stored:
    """Return the table of a function of one value, int8 [256].

    Args:
        steps: in their order; the first read ``SOURCE``.
        x_at: scale of ``SOURCE``.
        y_at: scale of what the last makes.

    Raises:
        ModelError: an operator that is no table.
    """
    whole = np.arange(LENGTH, dtype=np.float64) - 128 - x_at.zero
    values = evaluate(steps, whole * float(np.float32(x_at.scale)))
    with np.errstate(all="ignore"):
        found = np.nan_to_num(values / float(np.float32(y_at.scale)), posinf=1e9, neginf=-1e9)
    return saturated(np.rint(np.clip(found, -1e9, 1e9)).astype(np.int64), y_at.zero)


def look_up(entries: Stored, x: Stored) -> Stored:
    """Return the entry of every stored integer; entry 0 is that of -128."""
    return np.asarray(entries[np.asarray(x, np.int64) + 128])


def _number(attributes: Attributes, name: str, default: float) -> float:
    return float(attributes.get(name, default))


def _leaky(x: Doubles, slope: float) -> Doubles:
    return np.where(x < 0, x * slope, x)


def _gelu(x: Doubles, attributes: Attributes) -> Doubles:
    if attributes.get("approximate", "none") == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    return np.asarray(0.5 * x * (1 + _erf(x / math.sqrt(2))))


def _erf(x: Doubles) -> Doubles:
    return np.asarray([math.erf(value) for value in x])


# By ONNX's names; "Swish" is that of opset 24, and SiLU with alpha 1.
FUNCTIONS: dict[str, Function] = {
    "Abs": lambda x, _: np.abs(x),
    "Sigmoid": lambda x, _: 1 / (1 + np.exp(-x)),
    "HardSigmoid": lambda x, a: np.clip(
        _number(a, "alpha", 0.2) * x + _number(a, "beta", 0.5), 0, 1
    ),
    "HardSwish": lambda x, _: x * np.clip(x / 6 + 0.5, 0, 1),
    "Swish": lambda x, a: x / (1 + np.exp(-_number(a, "alpha", 1.0) * x)),
    "Tanh": lambda x, _: np.tanh(x),
    "LeakyRelu": lambda x, a: _leaky(x, _number(a, "alpha", 0.01)),
    "PRelu": lambda x, a: _leaky(x, _number(a, "slope", 0.25)),
    "Elu": lambda x, a: np.where(x < 0, _number(a, "alpha", 1.0) * np.expm1(np.minimum(x, 0)), x),
    "Erf": lambda x, _: _erf(x),
    "Gelu": _gelu,
    "Softplus": lambda x, _: np.logaddexp(0, x),
    "Mish": lambda x, _: x * np.tanh(np.logaddexp(0, x)),
    "Exp": lambda x, _: np.exp(x),
    "Sqrt": lambda x, _: np.sqrt(x),
    "Reciprocal": lambda x, _: 1 / x,
}

# Of two values, and those that passthrough operators have among them.
ARITHMETIC: dict[str, Callable[..., NDArray[Any]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Relu": lambda x: np.maximum(x, 0),
    "Max": lambda *values: reduce(np.maximum, values),
    "Min": lambda *values: reduce(np.minimum, values),
    "Clip": lambda x, low=-np.inf, high=np.inf: np.clip(x, low, high),
}
