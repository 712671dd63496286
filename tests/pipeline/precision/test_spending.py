"""How much of a limit is spent."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from npuconv.pipeline.precision import spending
from npuconv.pipeline.precision.market import Market
from npuconv.pipeline.precision.repeated import Numbers
from npuconv.pipeline.precision.spending import spend_most
from npuconv.tuning.noise.whole import Noise
from npuconv.tuning.precision.shop import Bought, Shop


def noise(power: float) -> Noise:
    """Of one sample, beside a signal of 1."""
    return Noise(power, 1.0, (power,))


def layer(_shop: Shop, limit: float) -> Bought:
    """A layer as often as the limit is high."""
    return Bought({"layer": round(limit)})


def opened() -> Market:
    """One with a limit of 100 multiplications."""
    work = SimpleNamespace(options=SimpleNamespace(max_extra_macs=100))
    return Market(work, None, Numbers({}, {}, {}), [], None, Shop([], {"layer": 1}), 100)


@pytest.fixture
def spent(monkeypatch):
    """What is bought of 100 multiplications, where copies of a layer leave such noise."""

    def run(left: dict[int, float]) -> tuple[Bought, Noise | None]:
        def simulated(_market: Market, bought: Bought) -> Noise:
            return noise(left[bought.layers["layer"]] if bought else 1.0)

        monkeypatch.setattr(spending, "spend", layer)
        monkeypatch.setattr(Market, "raw", simulated)
        monkeypatch.setattr(Market, "saturates", True)
        market = opened()
        spend_most(market)
        return market.bought, market.after

    return run


def test_all_of_it_where_that_is_best(spent):
    """The more, the better."""
    bought, after = spent({100: 0.2, 75: 0.3, 50: 0.4, 25: 0.5, 10: 0.7, 5: 0.8})
    assert bought == Bought({"layer": 100})
    assert after == noise(0.2)


def test_a_part_where_the_whole_does_harm(spent):
    """What one layer was thought to bring was wrong."""
    assert spent({100: 1.5, 75: 0.6, 50: 0.4, 25: 0.5, 10: 0.7, 5: 0.8}) == (
        Bought({"layer": 50}),
        noise(0.4),
    )


def test_nothing_where_nothing_helps(spent):
    assert spent({100: 1.5, 75: 1.0, 50: 1.1, 25: 2.0, 10: 1.3, 5: 1.0}) == (Bought(), None)


def test_most_samples_and_all_together(monkeypatch):
    """What leaves less in most samples, but more in all of them together, is not bought."""
    before = Noise(1.0, 1.0, (0.1, 0.1, 0.8))
    after = {100: Noise(1.2, 1.0, (0.02, 0.02, 1.16)), 50: Noise(0.9, 1.0, (0.09, 0.09, 0.72))}
    monkeypatch.setattr(spending, "spend", layer)
    monkeypatch.setattr(
        Market, "raw", lambda _, b: after.get(b.layers["layer"], before) if b else before
    )
    monkeypatch.setattr(Market, "saturates", True)
    market = opened()
    spend_most(market)
    assert market.bought == Bought({"layer": 50})
    assert (market.before, market.after, market.unsaturated) == (before, after[50], True)
