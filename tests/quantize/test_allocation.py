"""Laws of the allocation of extra multiplications."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.quantize.allocation import Allocator, ChannelSet, NoiseTerm
from npuconv.quantize.oversampling import Repeats
from npuconv.quantize.settings import BUDGET

MACS = {"maker": 400, "reader": 800}
MOST = BUDGET.most_copies


def term(
    power: float, maker: str, readers: Iterable[str] = (), *, is_output: bool = False
) -> NoiseTerm:
    """Make the noise term of a single channel."""
    return NoiseTerm(np.asarray([power]), maker, tuple(readers), is_output)


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


# One tensor of four channels between two layers, of whose noise one makes most


def bought(
    limit: float, enough: float = 0.0, shares: Iterable[float] = (0.1, 0.7, 0.2, 0.0), **options
) -> tuple[Repeats, Allocator]:
    terms = [NoiseTerm(np.asarray(shares), "maker", ("reader",), is_output=True)]
    own = ChannelSet("t", 4, ("maker",), ("reader",), (0,))
    allocator = Allocator(terms, MACS, [own], **options)
    return allocator.allocate(limit, enough), allocator


def test_a_channel_costs_a_row_and_a_column():
    """A quarter of the layers, which have four; and only as many as the limit pays for."""
    found, allocator = bought(300)
    assert found == Repeats({}, {"t": (0, 1, 2, 3, 1)})
    assert allocator.spent == pytest.approx(300)
    assert allocator.left == pytest.approx(1 - 0.7 * 0.75)
    assert not bought(299)[0]


def test_the_largest_contributor_first_and_more_often():
    """A third copy brings less than a second one."""
    found, allocator = bought(1199)
    assert found.channels["t"] == (0, 1, 2, 3, 1, 1, 2)
    assert allocator.left == pytest.approx(0.1 + 0.7 / 9 + 0.2 / 4)


def test_a_silent_channel_is_not_made_again():
    """Nor any more than four times; and the layers as a whole when channels are no bargain."""
    found, allocator = bought(10**6)
    index = np.asarray(found.channels["t"])
    assert np.bincount(index).max() <= MOST
    assert (index == 3).sum() == 1
    assert found.layers == {"maker": MOST, "reader": MOST}
    assert 0 < allocator.left < 1 / 30


def test_nothing_is_bought_beyond_the_goal():
    """Noise below the goal buys nothing."""
    assert not bought(10**6, enough=1.0)[0]
    found, allocator = bought(10**6, enough=0.5)
    assert found.channels == {"t": (0, 1, 2, 3, 1)}
    assert allocator.left <= 0.5


def test_a_layer_that_would_be_too_large():
    """The target has the last word, on rows and columns of each layer."""
    asked = []

    def fits(layer: str, rows: int, columns: int) -> bool:
        asked.append((layer, rows, columns))
        return rows + columns <= 1

    found, _ = bought(900, fits=fits)
    assert len(found.channels["t"]) == 5
    assert {("maker", 1, 0), ("reader", 0, 1)} <= set(asked)


def test_layers_run_once_where_nobody_takes_a_mean():
    """Channels between them may be made again all the same."""
    found, _ = bought(10**6, repeats_layers=False)
    assert not found.layers
    assert len(found.channels["t"]) > 4


def test_a_layer_with_more_channels_costs_more():
    """Channels of layers that run twice cost more as well."""
    terms = [term(1, "maker"), NoiseTerm(np.asarray([0.873, 0.009, 0.009, 0.009]), "", ("maker",))]
    allocator = Allocator(terms, {"maker": 400}, [ChannelSet("t", 4, ("maker",), (), (1,))])
    assert allocator.allocate(600) == Repeats({"maker": 2}, {"t": (0, 1, 2, 3, 0)})
    assert allocator.spent == pytest.approx(2 * 500 - 400)


def test_what_a_layer_takes_a_channel_takes_no_more():
    """Gains are worked out anew where something else has made the noise less."""
    terms = [NoiseTerm(np.asarray([1.0, 0.0]), "", ("reader",))]
    allocator = Allocator(terms, {"reader": 100}, [ChannelSet("t", 2, (), ("reader",), (0,))])
    found = allocator.allocate(1000)
    counts, index = found.layers["reader"], found.channels["t"]
    assert allocator.left == pytest.approx(counts**-2 * index.count(0) ** -2)


def test_the_cheap_one_first():
    """The same noise for a tenth of the price."""
    terms, sizes = [term(1, "a"), term(1, "b")], {"a": 100, "b": 10}
    assert Allocator(terms, sizes).allocate(10) == Repeats({"b": 2})
    assert Allocator(terms, sizes).allocate(30) == Repeats({"b": 4})


def test_maker_and_reader_are_bought_together():
    """Neither gains alone."""
    terms = [term(1, "a", ["b"], is_output=True)]
    assert Allocator(terms, {"a": 1, "b": 1}).allocate(2) == Repeats({"a": 2, "b": 2})
    assert not Allocator(terms, {"a": 1, "b": 1}).allocate(1)


# Laws

NAMES = ("a", "b", "c")
# Less than the last bit of the others may be lost where they are added.
powers = st.just(0.0) | st.floats(1e-6, 100)
noises = st.lists(
    st.builds(
        NoiseTerm,
        st.lists(powers, min_size=4, max_size=4).map(np.asarray),
        st.sampled_from(("", *NAMES)),
        st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
        st.booleans(),
    ).filter(lambda t: t.maker or t.readers),
    min_size=1,
    max_size=6,
)
prices = st.fixed_dictionaries({name: st.integers(1, 100) for name in NAMES})


@st.composite
def candidates(draw: st.DrawFn) -> tuple[list[NoiseTerm], dict[str, int], list[ChannelSet]]:
    """Some noise, three layers, and perhaps a tensor of four channels between two of them."""
    terms, sets = draw(noises), []
    if draw(st.booleans()):
        sets = [ChannelSet("t", 4, ("a",), ("b",), (draw(st.integers(0, len(terms) - 1)),))]
    return terms, draw(prices), sets


def price(sizes: dict[str, int], sets: list[ChannelSet], repeats: Repeats) -> Fraction:
    """Layers with all of their channels, as often as they run, less what there was."""
    costs = {name: Fraction(size) for name, size in sizes.items()}
    for one in (one for one in sets if one.tensor in repeats.channels):
        for name in one.layers:
            costs[name] *= Fraction(len(repeats.channels[one.tensor]), one.count)
    return sum(costs[n] * repeats.layers.get(n, 1) for n in costs) - sum(sizes.values())


@given(candidates(), st.integers(0, 400))
def test_never_more_than_the_limit(candidate, limit):
    """The limit holds, four copies are the most, and the result is the same every time."""
    allocator = Allocator(*candidate)
    before = allocator.left
    found = allocator.allocate(limit)
    assert float(price(*candidate[1:], found)) == pytest.approx(allocator.spent, abs=1e-6)
    assert allocator.spent <= limit + 1e-6
    assert -1e-9 <= allocator.left <= before
    assert (allocator.left < before) == bool(found)
    assert all(1 < times <= MOST for times in found.layers.values())
    for index in found.channels.values():
        assert index[:4] == (0, 1, 2, 3)
        assert 4 < len(index) <= 4 * MOST
        assert np.bincount(index).max() <= MOST
    assert Allocator(*candidate).allocate(limit) == found


@given(candidates())
def test_less_is_bought_for_less(candidate):
    """A goal that is half of the way costs no more than all of it."""
    half, whole = Allocator(*candidate), Allocator(*candidate)
    half.allocate(10**6, half.left / 2)
    whole.allocate(10**6)
    assert half.spent <= whole.spent
