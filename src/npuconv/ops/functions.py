"""Functions of one value: the device looks each int8 up in a table of 256 entries.

TFLite computes Sigmoid and Tanh in float32 for each int8, rounded half away from zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.rescaling import INT8_VALUES, TensorScale
from npuconv.arithmetic.whole import WholeArray
from npuconv.ops.operator import Arguments, Kernel, W, always, register
from npuconv.ops.tables import register_table
from npuconv.ops.tape import Tape, Visit, pointwise
from npuconv.tflite.elementwise import unary

Doubles = NDArray[np.float64]
_ALPHA, _GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # defaults of Selu in ONNX


def _gelu(x: Doubles, approximate: str = "none", **_: Any) -> Doubles:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    return np.asarray(0.5 * x * (1 + _erf(x / math.sqrt(2))))


def _erf(x: Doubles, **_: Any) -> Doubles:
    return np.asarray([math.erf(value) for value in x])


def _selu(x: Doubles, alpha: float = _ALPHA, gamma: float = _GAMMA, **_: Any) -> Doubles:
    return np.asarray(gamma * np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x))


def _in_float32(function: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> Kernel:
    def kernel(call: Arguments[W]) -> W:
        x_at, y_at = call.scales
        whole = x_at.centred(INT8_VALUES)
        real = np.float32(x_at.scale) * whole.values.astype(np.float32)
        inverse = np.float32(1) / np.float32(y_at.scale)
        steps = (function(real) * inverse).astype(np.float64)
        rounded = WholeArray.from_array(np.sign(steps) * np.floor(np.abs(steps) + 0.5))
        return call.values[0].looked_up(y_at.stored(rounded).values)

    return kernel


def _hard_sigmoid_slope(tape: Tape, visit: Visit) -> str:
    alpha = tape.constant(visit.attributes.get("alpha", 0.2))
    above = tape.add("Greater", visit.y, tape.constant(0.0))
    inside = tape.add("And", above, tape.add("Less", visit.y, tape.constant(1.0)))
    return tape.masked(alpha, inside)


def _erf_slope(tape: Tape, visit: Visit) -> str:
    negated = tape.add("Neg", tape.add("Mul", visit.x, visit.x))
    return tape.add("Mul", tape.add("Exp", negated), tape.constant(2 / math.sqrt(math.pi)))


def _selu_slope(tape: Tape, visit: Visit) -> str:
    """Return ``gamma`` above 0, ``y + gamma * alpha`` below."""
    alpha, gamma = visit.attributes.get("alpha", _ALPHA), visit.attributes.get("gamma", _GAMMA)
    positive = tape.add("Greater", visit.x, tape.constant(0.0))
    below = tape.add("Add", visit.y, tape.constant(gamma * alpha))
    return tape.add("Where", positive, tape.constant(gamma), below)


_ADJOINTS = {
    "Abs": pointwise(lambda tape, visit: tape.add("Sign", visit.x)),
    "Exp": pointwise(lambda _, visit: visit.y),
    "Sqrt": pointwise(lambda tape, visit: tape.add("Div", tape.constant(0.5), visit.y)),
    "HardSigmoid": pointwise(_hard_sigmoid_slope),
    "Selu": pointwise(_selu_slope),
    "Erf": pointwise(_erf_slope),
}
# "Swish" is that of opset 24, and SiLU with alpha 1. Attributes are those of ONNX.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": lambda x, **_: np.abs(x),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5, **_: np.clip(alpha * x + beta, 0, 1),
    "Swish": lambda x, alpha=1.0, **_: x / (1 + np.exp(-alpha * x)),
    "Elu": lambda x, alpha=1.0, **_: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
    "Selu": _selu,
    "Erf": _erf,
    "Gelu": _gelu,
    "Softplus": lambda x, **_: np.logaddexp(0, x),
    "Mish": lambda x, **_: x * np.tanh(np.logaddexp(0, x)),
    "Exp": lambda x, **_: np.exp(x),
    "Sqrt": lambda x, **_: np.sqrt(x),
    "Reciprocal": lambda x, **_: 1 / x,
}
_IN_TFLITE = {
    "Abs": unary("ABS"),
    "Elu": unary("ELU"),
    "Exp": unary("EXP", "ExpOptions"),
    "Gelu": unary("GELU", "GeluOptions"),
    "Sqrt": unary("SQRT"),
}
for name, function in _FUNCTIONS.items():
    register_table(name, function, adjoint=_ADJOINTS.get(name), to_tflite=_IN_TFLITE.get(name))
register_table(
    "Sigmoid",
    lambda x, **_: 1 / (1 + np.exp(-x)),
    adjoint=pointwise(
        lambda tape, visit: tape.add("Mul", visit.y, tape.add("Sub", tape.constant(1.0), visit.y))
    ),
    integer_form="QLinearSigmoid",
    in_tflite=always,
    tflite_kernel=_in_float32(lambda x: np.float32(1) / (np.float32(1) + np.exp(-x))),
    tflite_scale=TensorScale(1 / 256, -128),
    to_tflite=unary("LOGISTIC"),
)
register_table(
    "Tanh",
    lambda x, **_: np.tanh(x),
    adjoint=pointwise(
        lambda tape, visit: tape.add("Sub", tape.constant(1.0), tape.add("Mul", visit.y, visit.y))
    ),
    in_tflite=always,
    tflite_kernel=_in_float32(np.tanh),
    tflite_scale=TensorScale(1 / 128, 0),
    to_tflite=unary("TANH"),
)
# On the host, in float.
register(
    "Neg",
    adjoint=pointwise(lambda tape, _: tape.constant(-1.0)),
    to_tflite=unary("NEG", "NegOptions"),
)
for name in ("Log", "Floor", "Ceil", "Round", "Sin"):
    register(name, to_tflite=unary(name.upper()))
register("Cos", to_tflite=unary("COS", "CosOptions"))
register("Sign", to_tflite=unary("SIGN", "SignOptions"))
