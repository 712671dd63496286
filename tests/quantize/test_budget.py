"""What multiplications buy: laws of the allocation, and purchases for whole graphs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.partition import macs
from npuconv.quantize import sensitivity
from npuconv.quantize.budget import (
    Allocator,
    ChannelSet,
    Spent,
    Term,
    channel_sets,
    layer_macs,
    spend_budget,
)
from npuconv.quantize.fake_quant import quant_points
from npuconv.quantize.output_error import Error, OutputError
from npuconv.quantize.oversampling import Purchase
from npuconv.quantize.settings import BUDGET
from npuconv.target import Target
from support.asserts import context, read
from support.builders import Net
from support.loud_nets import CHANNELS, LOUD, loud, pictures
from support.plans import Quantized, planned, quantized

MACS = {"maker": 400, "reader": 800}
MOST = BUDGET.most_copies


def term(power: float, maker: str, readers: Iterable[str] = (), *, is_output: bool = False) -> Term:
    """Of a single channel."""
    return Term(np.asarray([power]), maker, tuple(readers), is_output)


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
) -> tuple[Purchase, Allocator]:
    terms = [Term(np.asarray(shares), "maker", ("reader",), is_output=True)]
    own = ChannelSet("t", 4, ("maker",), ("reader",), (0,))
    shop = Allocator(terms, MACS, [own], **options)
    return shop.buy(limit, enough), shop


def test_a_channel_costs_a_row_and_a_column():
    """A quarter of the layers, which have four; and only as many as the limit pays for."""
    found, shop = bought(300)
    assert found == Purchase({}, {"t": (0, 1, 2, 3, 1)})
    assert shop.spent == pytest.approx(300)
    assert shop.left == pytest.approx(1 - 0.7 * 0.75)
    assert not bought(299)[0]


def test_the_loudest_first_and_more_often():
    """A third copy brings less than a second one."""
    found, shop = bought(1199)
    assert found.channels["t"] == (0, 1, 2, 3, 1, 1, 2)
    assert shop.left == pytest.approx(0.1 + 0.7 / 9 + 0.2 / 4)


def test_a_silent_channel_is_not_made_again():
    """Nor any more than four times; and the layers as a whole when channels are no bargain."""
    found, shop = bought(10**6)
    index = np.asarray(found.channels["t"])
    assert np.bincount(index).max() <= MOST
    assert (index == 3).sum() == 1
    assert found.layers == {"maker": MOST, "reader": MOST}
    assert 0 < shop.left < 1 / 30


def test_nothing_is_bought_beyond_the_goal():
    """What is little enough costs nothing."""
    assert not bought(10**6, enough=1.0)[0]
    found, shop = bought(10**6, enough=0.5)
    assert found.channels == {"t": (0, 1, 2, 3, 1)}
    assert shop.left <= 0.5


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
    found, _ = bought(10**6, repeats=False)
    assert not found.layers
    assert len(found.channels["t"]) > 4


def test_a_layer_with_more_channels_costs_more():
    """And a channel of layers that run twice."""
    terms = [term(1, "maker"), Term(np.asarray([0.873, 0.009, 0.009, 0.009]), "", ("maker",))]
    shop = Allocator(terms, {"maker": 400}, [ChannelSet("t", 4, ("maker",), (), (1,))])
    assert shop.buy(600) == Purchase({"maker": 2}, {"t": (0, 1, 2, 3, 0)})
    assert shop.spent == pytest.approx(2 * 500 - 400)


def test_what_a_layer_takes_a_channel_takes_no_more():
    """Gains are worked out anew where something else has made the noise less."""
    terms = [Term(np.asarray([1.0, 0.0]), "", ("reader",))]
    shop = Allocator(terms, {"reader": 100}, [ChannelSet("t", 2, (), ("reader",), (0,))])
    found = shop.buy(1000)
    counts, index = found.layers["reader"], found.channels["t"]
    assert shop.left == pytest.approx(counts**-2 * index.count(0) ** -2)


def test_the_cheap_one_first():
    """The same noise for a tenth of the price."""
    terms, sizes = [term(1, "a"), term(1, "b")], {"a": 100, "b": 10}
    assert Allocator(terms, sizes).buy(10) == Purchase({"b": 2})
    assert Allocator(terms, sizes).buy(30) == Purchase({"b": 4})


def test_maker_and_reader_are_bought_together():
    """Neither gains alone."""
    terms = [term(1, "a", ["b"], is_output=True)]
    assert Allocator(terms, {"a": 1, "b": 1}).buy(2) == Purchase({"a": 2, "b": 2})
    assert not Allocator(terms, {"a": 1, "b": 1}).buy(1)


# Laws

NAMES = ("a", "b", "c")
# Less than the last bit of the others may be lost where they are added.
powers = st.just(0.0) | st.floats(1e-6, 100)
noises = st.lists(
    st.builds(
        Term,
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
def offers(draw: st.DrawFn) -> tuple[list[Term], dict[str, int], list[ChannelSet]]:
    """Some noise, three layers, and perhaps a tensor of four channels between two of them."""
    terms, sets = draw(noises), []
    if draw(st.booleans()):
        sets = [ChannelSet("t", 4, ("a",), ("b",), (draw(st.integers(0, len(terms) - 1)),))]
    return terms, draw(prices), sets


def price(sizes: dict[str, int], sets: list[ChannelSet], purchase: Purchase) -> Fraction:
    """Layers with all of their channels, as often as they run, less what there was."""
    costs = {name: Fraction(size) for name, size in sizes.items()}
    for one in (one for one in sets if one.tensor in purchase.channels):
        for name in one.layers:
            costs[name] *= Fraction(len(purchase.channels[one.tensor]), one.count)
    return sum(costs[n] * purchase.layers.get(n, 1) for n in costs) - sum(sizes.values())


@given(offers(), st.integers(0, 400))
def test_never_more_than_the_limit(offer, limit):
    """And never more than four times, and never for nothing; the same every time."""
    shop = Allocator(*offer)
    before = shop.left
    found = shop.buy(limit)
    assert float(price(*offer[1:], found)) == pytest.approx(shop.spent, abs=1e-6)
    assert shop.spent <= limit + 1e-6
    assert -1e-9 <= shop.left <= before
    assert (shop.left < before) == bool(found)
    assert all(1 < times <= MOST for times in found.layers.values())
    for index in found.channels.values():
        assert index[:4] == (0, 1, 2, 3)
        assert 4 < len(index) <= 4 * MOST
        assert np.bincount(index).max() <= MOST
    assert Allocator(*offer).buy(limit) == found


@given(offers())
def test_less_is_bought_for_less(offer):
    """A goal that is half of the way costs no more than all of it."""
    half, whole = Allocator(*offer), Allocator(*offer)
    half.buy(10**6, half.left / 2)
    whole.buy(10**6)
    assert half.spent <= whole.spent


# What a graph offers


@cache
def once(between: str) -> tuple[onnx.ModelProto, Quantized]:
    """A graph that nobody changes, and its model."""
    proto = loud(between, (1, 3, 12, 12))
    return proto, quantized(proto, [{"x": one[None]} for one in pictures(8)])


def of_loud(between: str = "Relu", **options: object) -> Quantized:
    """One that may be changed."""
    proto, own = once(between)
    return replace(own, graph=planned(read(proto), context(**options)))


def sets_of(own: Quantized) -> dict[str, ChannelSet]:
    sizes = layer_macs(own.graph, own.graph.proto(), own.feeds)
    return {one.tensor: one for one in channel_sets(own.graph, own.points, sizes)}


def test_who_makes_and_who_reads_channels():
    """On the device both; where the host is between, each of them has its own tensor."""
    inner = sets_of(of_loud("Relu"))["made"]
    assert (inner.count, inner.rows, inner.columns) == (CHANNELS, ("first",), ("mixed",))
    own = of_loud("HardSwish")
    found = sets_of(own)
    assert (found["made"].rows, found["made"].columns) == (("first",), ())
    (read_,) = (one for one in found.values() if one.columns and one.tensor != "x")
    assert (read_.rows, read_.columns) == ((), ("mixed",))
    for one in found.values():
        assert {own.points[k].kind for k in one.terms} <= {"input", "output"}


def test_int8_at_the_door_keeps_one_scale():
    """What goes in and out as integers is not made again."""
    assert set(sets_of(of_loud("Relu"))) > set(sets_of(of_loud("Relu", io="int8"))) == {"made"}


def test_layers_that_are_not_for_sale():
    """Nor are channels that they would have to have."""
    own = of_loud("Relu")
    (found,) = channel_sets(own.graph, own.points, ["first"])
    assert (found.tensor, found.rows, found.columns) == ("x", (), ("first",))


def test_multiplications_of_open_sizes_are_those_of_the_samples():
    """Where the model does not say how large a map is."""
    wanted = {"first": 144 * CHANNELS * 27, "mixed": 144 * CHANNELS * 36}
    for x in ((1, 3, 12, 12), ("N", 3, "H", "W")):
        graph = planned(read(loud("Relu", x)))
        assert layer_macs(graph, graph.proto(), [{"x": pictures(1)}]) == wanted


def limited(**limits: dict[str, int]) -> Target:
    return Target.model_validate(
        {
            "schema": 1, "name": "narrow", "unlisted_operators": "host",
            "operators": {"Conv": {"limits": limits}},
            "activations": {"dtype": "int8", "zero_point": [0], "granularity": "tensor"},
            "weights": {"dtype": "int8", "symmetric": True, "granularity": "channel"},
        }
    )  # fmt: skip


# Purchases


def spend(own: Quantized) -> Spent:
    return spend_budget(own.graph, own.state, own.hessians, own.feeds, own.feeds)


def device_macs(spent: Spent) -> int:
    """Of the graph as it is now."""
    return sum(macs(conv) for conv in spent.oversampled.graph.plan.device)


@pytest.mark.parametrize("between", ["Relu", "Sigmoid", "HardSwish"])
def test_few_multiplications_buy_the_loud_channel(between: str):
    """Less than a layer costs, and more than 1 dB."""
    own = of_loud(between, max_extra_macs=15)
    proto = own.graph.proto()
    found = spend(own)
    assert not found.purchase.layers
    assert LOUD in found.purchase.channels["made"][CHANNELS:]
    assert found.macs == 144 * CHANNELS * (27 + 36)
    assert device_macs(found) == found.macs + found.extra_macs
    assert 0 < found.extra_macs <= 0.15 * found.macs
    assert sum(found.channel_macs.values()) == found.extra_macs
    assert found.after.sqnr_db > found.before.sqnr_db + 1
    # What was simulated is what the changed graph does.
    made = found.oversampled
    points = quant_points(made.graph, made.state)
    assert OutputError(proto, own.feeds).of(points, made.graph.proto()) == found.after


def test_many_multiplications_buy_layers_too():
    """Each is billed with the channels that it has then."""
    found = spend(of_loud("HardSwish", max_extra_macs=100))
    assert found.purchase.layers
    assert found.purchase.channels
    assert set(found.layer_macs) == set(found.purchase.layers)
    assert device_macs(found) == found.macs + found.extra_macs
    assert found.extra_macs <= found.macs


def test_nothing_is_bought_for_nothing():
    """The graph stays the very one that it was."""
    own = of_loud("Relu", max_extra_macs=0)
    found = spend(own)
    assert not found.purchase
    assert found.oversampled.graph is own.graph
    assert found.oversampled.state is own.state
    assert (found.extra_macs, found.after) == (0, found.before)


def test_a_model_without_noise_buys_nothing():
    """Where all numbers are whole steps."""
    proto = loud("Relu", (1, 3, 12, 12))
    for tensor in proto.graph.initializer:
        tensor.raw_data = np.zeros(tuple(tensor.dims), np.float32).tobytes()
    own = quantized(proto, [{"x": one[None]} for one in pictures(8)], max_extra_macs=50)
    assert not spend(own).purchase


def test_a_goal_costs_what_it_takes():
    """None where it is reached, a part of the limit where it is near, all where it is far."""
    base = spend(of_loud("HardSwish", max_extra_macs=0)).before.sqnr_db
    near, mid, far = (spend(of_loud("HardSwish", min_sqnr=base + db)) for db in (-1, 1, 60))
    assert not near.purchase
    assert mid.after.sqnr_db >= base + 1
    assert 0 < mid.extra_macs < far.extra_macs <= far.macs


def test_more_is_bought_where_an_estimate_was_too_good(monkeypatch):
    """A goal that is missed is aimed at again, from further away."""
    tried, purchases = [1.0, 0.9, 0.5], []
    found = iter([Error((power,), (10.0,)) for power in tried])
    monkeypatch.setattr(OutputError, "of", lambda *_: next(found))
    buy = Allocator.buy
    monkeypatch.setattr(
        Allocator, "buy", lambda *given: purchases.append(buy(*given)) or purchases[-1]
    )
    spent = spend(of_loud("HardSwish", min_sqnr=11))  # four fifths of the noise may stay
    assert spent.after.noise == (0.5,)
    assert len(purchases) == 2
    assert spent.purchase == purchases[1] != purchases[0]
    assert size(purchases[0]) < size(purchases[1])


def size(purchase: Purchase) -> int:
    """Copies of all."""
    return sum(purchase.layers.values()) + sum(map(len, purchase.channels.values()))


def test_noise_is_looked_at_before_it_saturates():
    """Unless a goal says what the outputs themselves are to have."""
    net = Net(x=(1, 3, 12, 12)).conv("x", (8, 3, 3, 3), name="first").op("Relu")
    proto = net.conv("", (4, 8, 1, 1), name="last").op("Sigmoid").model()
    shown, raw = spend(quantized(proto, min_sqnr=10)), spend(quantized(proto, max_extra_macs=20))
    assert (shown.is_before_saturation, raw.is_before_saturation) == (False, True)
    assert sum(shown.before.noise) < sum(raw.before.noise) / 16


def test_what_does_harm_is_not_bought(monkeypatch):
    """A simulation has the last word: in most samples, and in all of them together."""
    kept = []
    for noise in ((2.0, 2.0, 2.0), (0.1, 0.1, 10.0), (0.9, 1.4, 0.9), (0.9, 0.9, 0.9)):
        found = iter([Error((1.0, 1.0, 1.0), (9.0,) * 3), Error(noise, (9.0,) * 3)])
        monkeypatch.setattr(OutputError, "of", lambda *_, found=found: next(found))
        kept.append(bool(spend(of_loud("Relu", max_extra_macs=20)).purchase))
    assert kept == [False, False, False, True]


def test_a_simulation_leaves_the_model_as_it_is(monkeypatch):
    """It is made on a copy."""
    own = of_loud("Relu", max_extra_macs=20)
    before = own.graph.proto().SerializeToString(deterministic=True)
    monkeypatch.setattr(Error, "ratio", lambda *_: 2.0)
    found = spend(own)
    assert not found.purchase
    assert own.graph.proto().SerializeToString(deterministic=True) == before


def test_where_sensitivity_is_not_known_nothing_is_bought(monkeypatch):
    """The error before is told all the same."""
    monkeypatch.setattr(sensitivity, "measure", lambda *_: None)
    own = of_loud("Relu", max_extra_macs=50)
    found = spend(own)
    assert not found.purchase
    assert found.oversampled.graph is own.graph
    assert found.before.sqnr_db > 20


def test_the_target_says_how_large_layers_may_be():
    """Rows and columns are those beyond what there is."""
    own = of_loud("Relu", max_extra_macs=30)
    own.graph.ctx.target = limited(in_c={"max": CHANNELS + 2}, weight_n={"max": CHANNELS + 1})
    made = spend(own).oversampled
    shapes = [conv.inputs[1].values.shape for conv in made.graph.plan.device]
    assert [one.index[CHANNELS:] for one in made.duplicated if len(one.index) > 10] == [(LOUD,)]
    assert max(shape[0] for shape in shapes) == CHANNELS + 1
    assert max(shape[1] for shape in shapes) <= CHANNELS + 2


def test_layers_that_read_one_by_one_grow_in_both():
    """A depthwise convolution has as many groups as channels."""
    net = Net(x=(1, 8, 6, 6)).conv("x", (8, 1, 3, 3), group=8, name="deep")
    own = quantized(net.op("Sigmoid").model(), max_extra_macs=60)
    own.graph.ctx.target = limited(group={"max": 9})
    found = spend(own)
    assert len(found.purchase.channels["x"]) == 9
    (conv,) = found.oversampled.graph.plan.device
    assert conv.attrs["group"] == 9


def test_nobody_takes_a_mean_where_there_is_no_host():
    """Channels between layers may be made again there, and nothing else be bought."""
    own = of_loud("Relu", max_extra_macs=100)
    alone = own.graph.target.model_copy(update={"unlisted_operators": "error"})
    found = spend(replace(own, graph=replace(own.graph, target=alone)))
    assert not found.purchase.layers
    assert set(found.purchase.channels) == {"made"}
