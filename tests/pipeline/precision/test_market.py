"""What there is to buy, and what it would bring."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from builders import Net
from npuconv.pipeline.precision import budget
from npuconv.pipeline.precision.market import FEW, Market
from npuconv.tuning.precision.shop import Bought


@pytest.fixture(scope="module")
def market() -> Market:
    """That of a small model which ends in a Sigmoid."""
    net = Net(x=(1, 3, 16, 16)).conv("x", (8, 3, 3, 3), pads=[1] * 4, name="first").op("Relu")
    model = net.conv(weight=(4, 8, 1, 1), name="last").op("Sigmoid").model()
    values = np.random.default_rng(1).normal(0, 1, (24, 3, 16, 16)).astype(np.float32)
    found: list[Market] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "spend_most", found.append)
        npuconv.convert(model, calibration={"x": values}, max_extra_macs=50)
    return found[0]


def test_a_limit_is_a_share_of_all_multiplications(market):
    """Of the layers of the device."""
    assert market.total == 16 * 16 * (8 * 27 + 4 * 8)
    assert market.limit() == market.total // 2


def test_it_is_simulated_on_a_copy(market):
    """Nothing is bought by trying, and the same leaves the same noise."""
    before = market.proto.SerializeToString(deterministic=True)
    found = market.shown(Bought({"first": 2}))
    assert 0 < found.ratio(market.before) < 0.8
    assert market.shown(Bought({"first": 2})) == found
    assert market.proto.SerializeToString(deterministic=True) == before
    assert market.shown(Bought()) == market.before
    assert not market.bought


def test_channels_are_simulated_as_well(market):
    """All channels twice: what is stored is as fine as with half of its steps."""
    assert {offer.tensor for offer in market.shop.offers} >= {"x", "t0"}
    twice = Bought({}, {"x": (*range(3), *range(3)), "t0": (*range(8), *range(8))})
    assert 0 < market.raw(twice).ratio(market.raw(Bought())) < 0.7
    both = Bought({"first": 2}, twice.channels)
    assert market.raw(both).noise < market.raw(twice).noise


def test_every_sample_counts_alike(market):
    """Shares of the noise, whatever odd samples make of it."""
    assert market.shop.noise == pytest.approx(FEW)


def test_noise_is_looked_at_before_it_saturates(market):
    """A Sigmoid has a slope of 1/4 at most."""
    raw, shown = market.raw(Bought()), market.shown(Bought())
    assert shown.noise < raw.noise / 16
    assert raw.signal > shown.signal


def test_copies_that_were_made_are_kept(market):
    """More of them go on from those that there are; fewer are the first of them."""
    market.shown(Bought({"last": 2}))
    two = list(market.numbers.copies["last"])
    market.shown(Bought({"last": 4}))
    four = list(market.numbers.copies["last"])
    market.shown(Bought({"last": 3}))
    assert len(two) == 2
    assert len(four) == len(market.numbers.copies["last"]) == 4
    assert all(one is other for one, other in zip(two, four, strict=False))
