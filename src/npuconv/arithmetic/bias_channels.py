"""An int32 bias as the products of constant integers with int8 weights.

All but the last of the constants are 127, the last is 1: with two of them every bias up to
127 * 127 is exact. A single constant is as small as the largest bias
allows, and the other biases are rounded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.whole import ceil_div

_LARGEST = 127  # largest weight, and largest constant whose zero point is 0


def largest_bias(count: int) -> int:
    """Return the largest bias that so many constants hold, with room for its own rounding."""
    return _LARGEST * (_LARGEST * max(count - 1, 1) - (count == 1))


def columns(bias: NDArray[np.int32], count: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return constants and weights that make up a bias.

    Args:
        bias: int32 [M], at most ``largest_bias(count)`` each.
        count: number of constants.

    Returns:
        int8 constants [count] and int8 weights [M, count].
    """
    constants = np.full(count, _LARGEST)
    largest = int(np.abs(bias).max(initial=1))
    constants[-1] = 1 if count > 1 else max(ceil_div(largest, _LARGEST), 1)
    remainder, weights = bias.astype(np.int64), np.zeros((len(bias), count), np.int64)
    for place, constant in enumerate(constants):
        steps = np.rint(remainder / float(constant))
        weights[:, place] = np.clip(steps, -_LARGEST, _LARGEST)
        remainder = remainder - weights[:, place] * constant
    return constants.astype(np.int8), weights.astype(np.int8)
