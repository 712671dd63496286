"""What there is to buy, and what it would bring."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import npuconv
from builders import Net
from npuconv.pipeline import budget
from npuconv.pipeline.market import Market


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
    """A layer that runs k times adds k - 1 times what it takes."""
    assert market.total == 16 * 16 * (8 * 27 + 4 * 8)
    assert market.limit() == market.total // 2
    assert market.extra() == 0
    chosen = replace(market, counts={"first": 2, "last": 4})
    assert chosen.extra() == 16 * 16 * (8 * 27 + 3 * 4 * 8)


def test_it_is_simulated_on_a_copy(market):
    """Nothing is bought by trying, and the same counts leave the same noise."""
    before = market.proto.SerializeToString(deterministic=True)
    found = market.shown({"first": 2})
    assert 0 < found.ratio(market.before) < 0.8
    assert market.shown({"first": 2}) == found
    assert market.proto.SerializeToString(deterministic=True) == before
    assert market.shown({}) == market.before
    assert market.counts == {}


def test_noise_is_looked_at_before_it_saturates(market):
    """A Sigmoid has a slope of 1/4 at most."""
    raw, shown = market.raw({}), market.shown({})
    assert shown.noise < raw.noise / 16
    assert raw.signal > shown.signal


def test_copies_that_were_made_are_kept(market):
    """More of them go on from those that there are; fewer are the first of them."""
    market.shown({"last": 2})
    two = list(market.numbers.copies["last"])
    market.shown({"last": 4})
    four = list(market.numbers.copies["last"])
    market.shown({"last": 3})
    assert len(two) == 2
    assert len(four) == len(market.numbers.copies["last"]) == 4
    assert all(one is other for one, other in zip(two, four, strict=False))
