"""Pow, which is a part of functions of one value."""

from __future__ import annotations

import numpy as np

from npuconv.ops.operator import Operator, register

register(Operator(name="Pow", data=None, function=lambda a, b, **_: np.power(a, b)))
