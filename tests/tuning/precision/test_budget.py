"""What is bought with multiplications: laws of the shop."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuconv.tuning.precision.bill import bill_of
from npuconv.tuning.precision.budget import spend
from npuconv.tuning.precision.shop import MOST, Bought, Offer, Shop, Term

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
parts = st.lists(st.floats(0, 1), min_size=4, max_size=4)


@st.composite
def shops(draw) -> Shop:
    """Some noise, three layers, and perhaps a tensor of four channels between two of them."""
    noise, offers = draw(terms), []
    if draw(st.booleans()):
        share = np.asarray(draw(parts)) / 4
        offers = [Offer("t", 4, ("a",), ("b",), ((draw(st.integers(0, len(noise) - 1)), share),))]
    return Shop(noise, draw(sizes), offers)


@given(shops(), st.integers(0, 400))
def test_never_more_than_the_limit(shop, limit):
    """And never more than four times, and never for nothing."""
    found = spend(shop, limit)
    assert bill_of(shop, found).total <= limit + 1e-6
    assert all(1 < times <= MOST for times in found.layers.values())
    for index in found.channels.values():
        assert index[:4] == (0, 1, 2, 3)
        assert 4 < len(index) <= 4 * MOST
        assert np.bincount(index).max() <= MOST


@given(shops())
def test_enough_is_enough(shop):
    """Nothing is bought beyond the goal, or where it is reached already."""
    assert spend(shop, 10**6, enough=shop.noise) == Bought()
    little, all_of_it = (spend(shop, 10**6, enough=part * shop.noise) for part in (0.5, 0.0))
    assert bill_of(shop, little).total <= bill_of(shop, all_of_it).total


@given(shops(), st.integers(0, 400))
def test_the_same_again(shop, limit):
    """It depends on nothing else."""
    assert spend(shop, limit) == spend(shop, limit)


def test_the_cheap_one_first():
    """The same noise for a tenth of the price."""
    shop = Shop([Term(1.0, "a"), Term(1.0, "b")], {"a": 100, "b": 10})
    assert spend(shop, 10) == Bought({"b": 2})
    assert spend(shop, 30) == Bought({"b": 4})


def test_maker_and_reader_are_bought_together():
    """Neither gains alone."""
    shop = Shop([Term(1.0, "a", ("b",), is_output=True)], {"a": 1, "b": 1})
    assert spend(shop, 2) == Bought({"a": 2, "b": 2})
    assert spend(shop, 1) == Bought()


def test_a_channel_where_a_layer_is_too_dear():
    """One of a hundred makes all of the noise."""
    share = np.zeros(100)
    share[17] = 0.95
    offer = Offer("t", 100, ("a",), (), ((0, share),))
    shop = Shop([Term(1.0, "a", is_output=True)], {"a": 1000}, [offer])
    assert spend(shop, 30) == Bought({}, {"t": (*range(100), 17, 17, 17)})
    assert spend(shop, 9) == Bought()
