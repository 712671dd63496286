"""Comparisons and copies that run on int8 where a model has them so: Max, Min, Where and others."""

from __future__ import annotations

from functools import reduce

import numpy as np

from npuconv.ops.operator import Operator, always, register
from npuconv.ops.tape import pass_reshaped, pass_selected

register(
    Operator(
        name="Max",
        adjoint=pass_selected,
        data=None,
        moves=always,
        function=lambda *values, **_: reduce(np.maximum, values),
    ),
    Operator(
        name="Min",
        adjoint=pass_selected,
        data=None,
        moves=always,
        function=lambda *values, **_: reduce(np.minimum, values),
    ),
    Operator(name="Where", data=(1, 2), moves=always),
    Operator(name="ReduceMax", moves=always),
    Operator(name="ReduceMin", moves=always),
    Operator(name="Identity", adjoint=pass_reshaped, moves=always),
    Operator(name="Expand", moves=always),
    Operator(name="Tile", moves=always),
    Operator(name="Dropout", adjoint=pass_reshaped),
    Operator(name="Cast", adjoint=pass_reshaped),
)
