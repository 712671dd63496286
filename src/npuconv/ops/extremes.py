"""Comparisons and copies that run on int8 where a model has them so: Max, Min, Where and others."""

from __future__ import annotations

from functools import reduce

import numpy as np

from npuconv.ops.operator import Operator, always, register

register(
    Operator(
        name="Max",
        data=None,
        moves=always,
        function=lambda *values, **_: reduce(np.maximum, values),
    ),
    Operator(
        name="Min",
        data=None,
        moves=always,
        function=lambda *values, **_: reduce(np.minimum, values),
    ),
    Operator(name="Where", data=(1, 2), moves=always),
    Operator(name="ReduceMax", moves=always),
    Operator(name="ReduceMin", moves=always),
    Operator(name="Identity", moves=always),
    Operator(name="Expand", moves=always),
    Operator(name="Tile", moves=always),
)
