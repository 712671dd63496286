"""Whole numbers as arrays: rounding of quotients and shifts, tables, windows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.arithmetic.whole import Whole, WholeArray, shifted_right, window_sums

NUMBERS = np.asarray([-9, -8, -1, 0, 1, 7, 8, 9])


def test_quotients_are_rounded_towards_zero():
    found = WholeArray.from_array(NUMBERS).over(4).values.tolist()
    assert found == [int(n / 4) for n in NUMBERS.tolist()]


@pytest.mark.parametrize("places", [0, 1, 31])
def test_shifts_are_rounded_down(places):
    """The general form, by a quotient, gives what arrays have an instruction for."""
    values = WholeArray.from_array(NUMBERS * 12345678901)
    wanted = (values.values >> places).tolist()
    assert values.shifted(places).values.tolist() == wanted
    assert Whole.shifted(values, places).values.tolist() == wanted


def test_roots_are_whole_below_2_to_the_52():
    """A square has its own root, and what is one less that below it."""
    roots = np.asarray([1, 2, 3, 1000, 2**20 + 1, 2**26 - 1])
    assert WholeArray.from_array(roots**2).root().values.tolist() == roots.tolist()
    assert WholeArray.from_array(roots**2 - 1).root().values.tolist() == (roots - 1).tolist()


def test_tables_of_int8_begin_at_the_lowest():
    found = WholeArray.from_array([-128, 0, 127]).looked_up(np.arange(256) * 3)
    assert found.values.tolist() == [0, 384, 765]


def test_windows_are_summed_with_their_padding():
    """Padding is 0, or what fills it."""
    values = np.arange(6).reshape(1, 1, 2, 3)
    pool = ((2, 2), (1, 2), (1, 0, 0, 1))
    assert WholeArray.from_array(values).windows(*pool).values.tolist() == [[[[1, 2], [8, 7]]]]
    assert window_sums(values, *pool, fill=10).tolist() == [[[[21, 32], [8, 27]]]]


def test_reductions_and_products():
    values = WholeArray.from_array(NUMBERS.reshape(2, 4))
    assert values.total((1,)).values.tolist() == [[-18], [25]]
    assert values.total((1,), keep=False).values.tolist() == [-18, 25]
    assert values.largest(1).values.tolist() == [[0], [9]]
    assert values.clipped(-2, 2).values.tolist() == [[-2, -2, -1, 0], [1, 2, 2, 2]]
    assert values.between([[1, 1]], np.eye(4)[:, :1]).values.tolist() == [[-8]]
    assert values.product(WholeArray.from_array(np.ones((4, 1)))).values.tolist() == [
        [-18],
        [25],
    ]
    assert values.concat([values], 1).shape == (2, 8)


@pytest.mark.parametrize("rounding", ["half_away", "half_up", "half_even"])
@given(number=st.integers(-(2**60), 2**60), places=st.integers(0, 60))
def test_a_shift_rounds_as_it_says(rounding, number, places):
    exact, below = Fraction(number, 2**places), number >> places
    rest, half = exact - below, Fraction(1, 2)
    ties = {"half_up": 1, "half_away": int(number > 0), "half_even": below % 2}
    wanted = below + (ties[rounding] if rest == half else int(rest > half))
    found = shifted_right(WholeArray.from_array([number]), [places], rounding).values.tolist()
    assert found == [wanted]


def test_a_window_larger_than_its_input():
    """No window fits, so there are no sums: not one, and no error."""
    values = np.ones((1, 2, 5, 3), np.int64)
    assert window_sums(values, (3, 4), (1, 2), (0, 0, 0, 0)).shape == (1, 2, 3, 0)
