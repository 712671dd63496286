"""Noise, and who could make it less."""

from __future__ import annotations

import pytest

from npuconv.tuning.precision.shop import Bought, Shop, Term


def test_weights_and_inputs_gain_by_the_square():
    """Steps k times as fine leave 1/k^2."""
    assert Term(9.0, "a").left({"a": 3}) == 1.0
    assert Term(8.0, "", ("a",)).left({"a": 2}) == 2.0


def test_all_readers_of_a_tensor_count():
    """One of two that repeats takes half of the gain."""
    assert Term(8.0, "", ("a", "b")).left({"a": 2}) == pytest.approx(5.0)


def test_what_the_host_makes_anew_is_rounded_anew():
    """The mean of the maker's copies is rounded once more for a reader that does not repeat."""
    between = Term(1.0, "a", ("b",), is_output=True)
    assert between.left({"a": 4}) == pytest.approx(4**-1.5 + 1)
    assert between.left({"b": 4}) == 1.0
    assert between.left({"a": 4, "b": 4}) == pytest.approx(4**-1.5 + 4**-2)


def test_nothing_is_nothing():
    """Of layers and of channels."""
    assert not Bought()
    assert Bought({"a": 2})
    assert Bought({}, {"t": (0, 1, 1)})


def test_all_noise_of_a_shop():
    """Whoever makes it."""
    assert Shop([Term(1.0, "a"), Term(2.0, "", ("b",))], {"a": 1}).noise == 3.0
