"""Least squares without negative answers."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.quant.nonnegative import solve


@pytest.mark.parametrize("seed", range(5))
def test_what_is_not_negative_is_found(seed: int):
    """More equations than unknowns, and all of them hold."""
    rng = np.random.default_rng(seed)
    matrix, wanted = rng.standard_normal((40, 12)), rng.uniform(0, 3, 12)
    assert solve(matrix, matrix @ wanted) == pytest.approx(wanted, abs=1e-5)


def test_nothing_goes_below_0():
    """Where the free answer is negative, 0 is nearest."""
    assert solve(np.eye(2), np.asarray([3.0, -2.0])) == pytest.approx([3, 0])


def test_an_unknown_that_no_equation_has_is_0():
    """It cannot be told."""
    assert solve(np.asarray([[1.0, 0.0]]), np.asarray([2.0])) == pytest.approx([2, 0])
