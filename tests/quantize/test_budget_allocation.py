"""Laws of the allocation of extra multiplications."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.quantize import settings
from npuconv.quantize.budget import NoiseTerm, allocate


def term(
    power: float, maker: str, readers: Iterable[str] = (), *, is_output: bool = False
) -> NoiseTerm:
    return NoiseTerm(power, maker, tuple(readers), is_output)


# Terms


def test_weights_and_inputs_gain_by_the_square():
    """Steps k times as fine leave 1/k^2."""
    assert term(1, "a").share_left({"a": 3}) == pytest.approx(1 / 9)
    assert term(1, "", ["a"]).share_left({"a": 2}) == pytest.approx(1 / 4)


def test_all_readers_of_a_tensor_count():
    """One of two that repeats takes half of the gain; what nobody of the device reads is gone."""
    assert term(1, "", ["a", "b"]).share_left({"a": 2}) == pytest.approx(5 / 8)
    assert term(1, "a", is_output=True).share_left({"a": 4}) == pytest.approx(4**-1.5)


def test_what_the_host_makes_anew_is_rounded_anew():
    """The mean of the maker's copies is rounded once more for a reader that does not repeat."""
    between = term(1, "a", ["b"], is_output=True)
    assert between.share_left({"a": 4}) == pytest.approx(4**-1.5 + 1)
    assert between.share_left({"b": 4}) == 1.0
    assert between.share_left({"a": 4, "b": 4}) == pytest.approx(4**-1.5 + 4**-2)


# Allocation


def test_the_cheap_one_first():
    """The same noise for a tenth of the price."""
    terms, sizes = [term(1, "a"), term(1, "b")], {"a": 100, "b": 10}
    assert allocate(terms, sizes, 10) == {"b": 2}
    assert allocate(terms, sizes, 30) == {"b": 4}


def test_maker_and_reader_are_bought_together():
    """Neither gains alone."""
    terms = [term(1, "a", ["b"], is_output=True)]
    assert allocate(terms, {"a": 1, "b": 1}, 2) == {"a": 2, "b": 2}
    assert not allocate(terms, {"a": 1, "b": 1}, 1)


# Laws

NAMES = ("a", "b", "c")
# Less than the last bit of the others may be lost where they are added.
powers = st.just(0.0) | st.floats(1e-6, 100)
noises = st.lists(
    st.builds(
        NoiseTerm,
        powers,
        st.sampled_from(("", *NAMES)),
        st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
        st.booleans(),
    ).filter(lambda t: t.maker or t.readers),
    min_size=1,
    max_size=6,
)
prices = st.fixed_dictionaries({name: st.integers(1, 100) for name in NAMES})


@given(noises, prices, st.integers(0, 400))
def test_never_more_than_the_limit(terms, sizes, limit):
    """The limit holds, four copies are the most, and all of them remove noise."""
    counts = allocate(terms, sizes, limit)
    assert sum(sizes[n] * (times - 1) for n, times in counts.items()) <= limit
    assert all(1 < times <= settings.BUDGET_MOST_COPIES for times in counts.values())
    left, before = (sum(t.power * t.share_left(c) for t in terms) for c in (counts, {}))
    assert left < before if counts else left == before
