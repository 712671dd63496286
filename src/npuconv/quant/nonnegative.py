"""Least squares without negative answers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
_ROUNDS = 500
_SMALL = 1e-9


def solve(matrix: Doubles, wanted: Doubles) -> Doubles:
    """The x >= 0 of least ``|matrix x - wanted|``, by coordinate descent.

    Args:
        matrix: [E,L].
        wanted: [E].

    Returns:
        float64 [L].
    """
    products, target = matrix.T @ matrix, matrix.T @ wanted
    result = np.zeros(len(target))
    scale = float(np.abs(wanted).max(initial=0.0))
    for _ in range(_ROUNDS):
        before = result.copy()
        for k in range(len(result)):
            rest = target[k] - products[k] @ result + products[k, k] * result[k]
            result[k] = max(rest / products[k, k], 0.0) if products[k, k] > 0 else 0.0
        if np.abs(result - before).max(initial=0.0) <= _SMALL * scale:
            break
    return result
