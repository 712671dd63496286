"""What is bought with multiplications: laws of the shop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.tuning.budget import MOST, Term, left, spend

NAMES = ("a", "b", "c")
# Less than the last bit of the others may be lost where they are added.
powers = st.just(0.0) | st.floats(1e-6, 100)
terms = st.lists(
    st.builds(
        Term,
        powers,
        st.sampled_from(("", *NAMES)),
        st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
        st.booleans(),
    ).filter(lambda t: t.maker or t.readers),
    min_size=1,
    max_size=6,
)
sizes = st.fixed_dictionaries({name: st.integers(1, 100) for name in NAMES})


@given(terms, sizes, st.integers(0, 400))
def test_never_more_than_the_limit(noise, macs, limit):
    """And never more than four times, and never for nothing."""
    counts = spend(noise, macs, limit)
    assert sum((times - 1) * macs[name] for name, times in counts.items()) <= limit
    assert all(1 < times <= MOST for times in counts.values())
    assert left(noise, counts) <= left(noise, {})
    assert not counts or left(noise, counts) < left(noise, {})


@given(terms, sizes)
def test_enough_is_enough(noise, macs):
    """Nothing is bought beyond the goal, or where it is reached already."""
    assert spend(noise, macs, 10**6, enough=left(noise, {})) == {}
    half = 0.5 * left(noise, {})
    counts = spend(noise, macs, 10**6, enough=half)
    if left(noise, counts) <= half and counts:
        assert sum(counts.values()) <= sum(spend(noise, macs, 10**6).values())


def test_the_cheap_one_first():
    """The same noise for a tenth of the price."""
    noise = [Term(1.0, "a"), Term(1.0, "b")]
    assert spend(noise, {"a": 100, "b": 10}, 10) == {"b": 2}
    assert spend(noise, {"a": 100, "b": 10}, 30) == {"b": 4}


def test_weights_and_inputs_gain_by_the_square():
    """Steps k times as fine leave 1/k^2."""
    assert left([Term(9.0, "a")], {"a": 3}) == 1.0
    assert left([Term(8.0, "", ("a",))], {"a": 2}) == 2.0


def test_all_readers_of_a_tensor_count():
    """One of two that repeats takes half of the gain."""
    assert left([Term(8.0, "", ("a", "b"))], {"a": 2}) == pytest.approx(5.0)


def test_what_the_host_makes_anew_is_rounded_anew():
    """The mean of the maker's copies is rounded once more for a reader that does not repeat."""
    between = [Term(1.0, "a", ("b",), is_output=True)]
    assert left(between, {"a": 4}) == pytest.approx(4**-1.5 + 1)
    assert left(between, {"b": 4}) == 1.0
    assert left(between, {"a": 4, "b": 4}) == pytest.approx(4**-1.5 + 4**-2)


def test_maker_and_reader_are_bought_together():
    """Neither gains alone."""
    between = [Term(1.0, "a", ("b",), is_output=True)]
    assert spend(between, {"a": 1, "b": 1}, 2) == {"a": 2, "b": 2}
    assert spend(between, {"a": 1, "b": 1}, 1) == {}


def test_going_on_from_what_was_bought():
    """What there is counts against the limit."""
    noise = [Term(1.0, "a"), Term(0.5, "b")]
    assert spend(noise, {"a": 10, "b": 10}, 20, start={"a": 2}) == {"a": 2, "b": 2}
