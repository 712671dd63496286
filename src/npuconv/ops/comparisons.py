"""Comparisons and choices; binary operators run on int8 if their inputs in the model are int8."""

from __future__ import annotations

from functools import reduce

import numpy as np

from npuconv.ops.operator import Operator, register
from npuconv.ops.tape import pass_selected
from npuconv.tflite.elementwise import binary, unary

register(
    Operator(
        name="Max",
        data=None,
        function=lambda *values, **_: reduce(np.maximum, values),
        adjoint=pass_selected,
        to_tflite=binary("MAXIMUM", "MaximumMinimumOptions"),
    ),
    Operator(
        name="Min",
        data=None,
        function=lambda *values, **_: reduce(np.minimum, values),
        adjoint=pass_selected,
        to_tflite=binary("MINIMUM", "MaximumMinimumOptions"),
    ),
    Operator(
        name="Where",
        data=(1, 2),
        to_tflite=binary("SELECT_V2", "SelectV2Options"),
    ),
    Operator(name="Equal", data=None, to_tflite=binary("EQUAL", "EqualOptions")),
    Operator(name="Greater", data=None, to_tflite=binary("GREATER", "GreaterOptions")),
    Operator(name="Less", data=None, to_tflite=binary("LESS", "LessOptions")),
    Operator(
        name="GreaterOrEqual",
        data=None,
        to_tflite=binary("GREATER_EQUAL", "GreaterEqualOptions"),
    ),
    Operator(
        name="LessOrEqual",
        data=None,
        to_tflite=binary("LESS_EQUAL", "LessEqualOptions"),
    ),
    Operator(name="And", data=None, to_tflite=binary("LOGICAL_AND", "LogicalAndOptions")),
    Operator(name="Or", data=None, to_tflite=binary("LOGICAL_OR", "LogicalOrOptions")),
    Operator(name="Not", to_tflite=unary("LOGICAL_NOT", "LogicalNotOptions")),
)
