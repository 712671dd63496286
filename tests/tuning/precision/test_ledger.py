"""What was bought, what it costs, and what is left."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.tuning.precision.ledger import Ledger
from npuconv.tuning.precision.shop import MOST, Bought, Offer, Shop, Term

MACS = {"maker": 400, "reader": 800}


def shop(shares=(0.1, 0.7, 0.2, 0.0), power=1.0, **options) -> Shop:
    """A tensor of four channels between two layers, of whose noise one makes most."""
    terms = [Term(power, "maker", ("reader",), is_output=True)]
    offer = Offer("t", 4, ("maker",), ("reader",), ((0, np.asarray(shares)),))
    return Shop(terms, MACS, [offer], **options)


def bought(limit: float, enough: float = 0.0, **options) -> tuple[Bought, Ledger]:
    ledger = Ledger(shop(**options))
    ledger.spend(limit, enough, MOST)
    return ledger.bought, ledger


def test_a_channel_costs_a_row_and_a_column():
    """A quarter of the layers, which have four; and only as many as the limit pays for."""
    found, ledger = bought(300)
    assert found == Bought({}, {"t": (0, 1, 2, 3, 1)})
    assert ledger.spent == pytest.approx(300)
    assert ledger.left == pytest.approx(1 - 0.7 * 0.75)
    assert bought(299)[0] == Bought()


def test_the_loudest_first_and_more_often():
    """A third copy brings less than a second one."""
    found, ledger = bought(1199)
    assert found.channels["t"] == (0, 1, 2, 3, 1, 1, 2)
    left = 0.1 + 0.7 / 9 + 0.2 / 4
    assert ledger.left == pytest.approx(left)


def test_a_silent_channel_is_not_made_again():
    """Nor any more than four times; and the layers as a whole when channels are no bargain."""
    found, ledger = bought(10**6)
    index = np.asarray(found.channels["t"])
    assert np.bincount(index).max() <= MOST
    assert (index == 3).sum() == 1
    assert found.layers == {"maker": MOST, "reader": MOST}
    assert 0 < ledger.left < 1 / 30


def test_enough_is_enough():
    """Nothing is bought beyond the goal."""
    assert bought(10**6, enough=1.0)[0] == Bought()
    found, ledger = bought(10**6, enough=0.5)
    assert found.channels == {"t": (0, 1, 2, 3, 1)}
    assert ledger.left <= 0.5


def test_a_layer_that_would_be_too_large():
    """The target has the last word, on rows and columns of each layer."""
    asked = []

    def fits(layer: str, rows: int, columns: int) -> bool:
        asked.append((layer, rows, columns))
        return rows + columns <= 1

    found, _ = bought(900, fits=fits)
    assert len(found.channels["t"]) == 5
    assert {("maker", 1, 0), ("reader", 0, 1)} <= set(asked)


def test_layers_with_more_channels_cost_more():
    """And a channel of layers that run twice."""
    terms = [Term(1.0, "maker"), Term(0.9, "", ("maker",))]
    offer = Offer("t", 4, ("maker",), (), ((1, np.asarray([0.97, 0.01, 0.01, 0.01])),))
    ledger = Ledger(Shop(terms, {"maker": 400}, [offer]))
    ledger.spend(600, 0.0, MOST)
    assert ledger.bought == Bought({"maker": 2}, {"t": (0, 1, 2, 3, 0)})
    assert ledger.spent == pytest.approx(2 * 500 - 400)


def test_what_a_layer_takes_a_channel_takes_no_more():
    """Worths are worked out anew where something else has made the noise less."""
    terms = [Term(1.0, "", ("reader",))]
    offer = Offer("t", 2, (), ("reader",), ((0, np.asarray([1.0, 0.0])),))
    ledger = Ledger(Shop(terms, {"reader": 100}, [offer]))
    ledger.spend(1000, 0.0, MOST)
    counts, index = ledger.bought.layers["reader"], ledger.bought.channels["t"]
    assert ledger.left == pytest.approx(counts**-2 * index.count(0) ** -2)


def test_layers_run_once_where_nobody_takes_a_mean():
    """Channels between them may be made again all the same."""
    found, _ = bought(10**6, repeats=False)
    assert not found.layers
    assert len(found.channels["t"]) > 4
