"""Rows of the report on a budget."""

from __future__ import annotations

from npuconv.config import Options
from npuconv.legalize.legal import legalize
from npuconv.quantize.budget import BudgetResult, ChannelSet
from npuconv.quantize.fake_quant import Error
from npuconv.quantize.oversampling import Oversampled, Repeats
from npuconv.report.builder.budget_rows import budget_report
from support.loud_nets import CHANNELS, loud

AGAIN = (*range(CHANNELS), 5, 5)


def rows(repeats: Repeats, after: float = 0.5, **options: object):
    """Return the rows of a network of two layers."""
    legal = legalize(loud("HardSwish"), Options(**options))
    sets = [ChannelSet("followed", 32, (), ("mixed",), (1,))]
    sets += [ChannelSet("made", 32, ("first",), (), (0,)), ChannelSet("x", 3, (), ("first",), ())]
    layers = dict.fromkeys(repeats.layers, 700)
    channels = dict.fromkeys(repeats.channels, 25)
    noise = Error((1.0,), (100.0,)), Error((after,), (100.0,))
    own = {one.tensor: one for one in sets}
    made = Oversampled(None, None)
    return budget_report(
        legal, BudgetResult(made, repeats, layers, channels, own, 2000, *noise, True)
    )


def test_what_was_bought_by_the_users_names():
    """Layers and tensors in the order of the model."""
    index = {"followed": (*range(32), 7), "made": AGAIN}
    found = rows(Repeats({"mixed": 2, "first": 3}, index), max_extra_macs=80)
    assert [(r.node, r.times, r.extra_macs) for r in found.repeated] == [
        ("first", 3, 700), ("mixed", 2, 700),
    ]  # fmt: skip
    assert [(c.tensor, c.layers, c.channels, c.copies) for c in found.channels] == [
        ("made", ("first",), 32, 2), ("followed", ("mixed",), 32, 1),
    ]  # fmt: skip
    assert (found.extra_macs, found.extra_percent) == (1450, 72.5)
    assert (found.before_db, found.simulated_db) == (20.0, 23.01)
    assert found.unsaturated
    assert (found.max_extra_percent, found.min_sqnr_db) == (80, None)


def test_nothing_bought():
    """The cost stays as it was, under the limit that goes with a goal."""
    found = rows(Repeats(), after=1.0, min_sqnr=12.5)
    assert (found.repeated, found.channels, found.extra_percent) == ((), (), 0)
    assert (found.max_extra_percent, found.min_sqnr_db) == (100, 12.5)
    assert found.before_db == found.simulated_db


def test_no_noise_is_no_number():
    """Infinitely many dB are not written."""
    assert rows(Repeats(), after=0.0).simulated_db is None
