"""What each thing that is bought costs."""

from __future__ import annotations

import numpy as np

from npuconv.tuning.precision.bill import bill_of
from npuconv.tuning.precision.ledger import Ledger
from npuconv.tuning.precision.shop import MOST, Bought, Offer, Shop, Term

OFFERS = [
    Offer("t", 4, ("a",), ("b",), ((0, np.asarray([0.9, 0.1, 0, 0])),)),
    Offer("u", 8, ("b",), (), ((1, np.full(8, 1 / 8)),)),
]
SHOP = Shop([Term(1.0, "a", ("b",)), Term(1.0, "b")], {"a": 400, "b": 3200}, OFFERS)


def test_nothing_costs_nothing():
    assert bill_of(SHOP, Bought()).total == 0


def test_channels_come_first():
    """A layer that runs twice does so with all of its channels."""
    bill = bill_of(SHOP, Bought({"b": 2}, {"t": (0, 1, 2, 3, 0), "u": (*range(8), 7, 7)}))
    assert bill.channels == {"t": 100 + 800, "u": 1000}
    assert bill.layers == {"b": 5000}
    assert bill.total == 500 + 2 * (3200 * 5 // 4 * 10 // 8) - 3600


def test_it_is_what_the_ledger_says():
    """Whatever came first there."""
    for limit in (900, 5000, 10**5):
        ledger = Ledger(SHOP)
        ledger.spend(limit, 0.0, MOST)
        assert abs(bill_of(SHOP, ledger.bought).total - ledger.spent) < 1
