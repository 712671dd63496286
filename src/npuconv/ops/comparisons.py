"""Comparisons and choices; binary operators run on int8 if their inputs in the model are int8."""

from __future__ import annotations

from functools import reduce

import numpy as np

from npuconv.ops.operator import register
from npuconv.ops.tape import pass_selected
from npuconv.tflite.elementwise import binary, unary

register(
    "Max",
    data=None,
    function=lambda *values, **_: reduce(np.maximum, values),
    adjoint=pass_selected,
    to_tflite=binary("MAXIMUM", "MaximumMinimumOptions"),
)
register(
    "Min",
    data=None,
    function=lambda *values, **_: reduce(np.minimum, values),
    adjoint=pass_selected,
    to_tflite=binary("MINIMUM", "MaximumMinimumOptions"),
)
register("Where", data=(1, 2), to_tflite=binary("SELECT_V2", "SelectV2Options"))
register("Not", to_tflite=unary("LOGICAL_NOT", "LogicalNotOptions"))
for name, code, options in (
    ("Equal", "EQUAL", "EqualOptions"),
    ("Greater", "GREATER", "GreaterOptions"),
    ("Less", "LESS", "LessOptions"),
    ("GreaterOrEqual", "GREATER_EQUAL", "GreaterEqualOptions"),
    ("LessOrEqual", "LESS_EQUAL", "LessEqualOptions"),
    ("And", "LOGICAL_AND", "LogicalAndOptions"),
    ("Or", "LOGICAL_OR", "LogicalOrOptions"),
):
    register(name, data=None, to_tflite=binary(code, options))
