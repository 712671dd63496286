"""What the report says of a budget, and of limits of a model that has changed since."""

from __future__ import annotations

import pytest

from support.asserts import apply_pass
from support.loud_nets import CHANNELS, loud
from npuconv.config import Options
from npuconv.diagnostics import Status
from npuconv.legalize.legal import Legalized, legalize
from npuconv.model import query
from npuconv.quantize.budget import ChannelSet, BudgetResult
from npuconv.quantize.fake_quant import Error
from npuconv.quantize.oversampling import Oversampled, Repeats
from npuconv.report.builder.budget_rows import LIMIT_UNKNOWN, budget_report, renew_needs
from npuconv.rules import RULES

AGAIN = (*range(CHANNELS), 5, 5)


# The budget


def rows(repeats: Repeats, after: float = 0.5, **options: object):
    """Of a network of two layers."""
    work = legalize(loud("HardSwish"), Options(**options))
    sets = [ChannelSet("followed", 32, (), ("mixed",), (1,))]
    sets += [ChannelSet("made", 32, ("first",), (), (0,)), ChannelSet("x", 3, (), ("first",), ())]
    layers = dict.fromkeys(repeats.layers, 700)
    channels = dict.fromkeys(repeats.channels, 25)
    noise = Error((1.0,), (100.0,)), Error((after,), (100.0,))
    own = {one.tensor: one for one in sets}
    made = Oversampled(None, None)
    return budget_report(work, BudgetResult(made, repeats, layers, channels, own, 2000, *noise, True))


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
    """As much as there was, under the limit that goes with a goal."""
    found = rows(Repeats(), after=1.0, min_sqnr=12.5)
    assert (found.repeated, found.channels, found.extra_percent) == ((), (), 0)
    assert (found.max_extra_percent, found.min_sqnr_db) == (100, 12.5)
    assert found.before_db == found.simulated_db


def test_no_noise_is_no_number():
    """Infinitely many dB are not written."""
    assert rows(Repeats(), after=0.0).simulated_db is None


# Limits that nobody knows


def widened(options: Options | None = None) -> Legalized:
    work = legalize(loud("Relu"), options or Options())
    assert apply_pass("repeat-channels", work.model, work.ctx, work.plan, {"made": AGAIN})
    return work


def needed(work: Legalized, name: str) -> tuple[int, ...]:
    return next(need.values for need in work.needs if need.name == name)


def test_the_values_are_those_of_the_model_as_it_is():
    """In the list, and in the findings; nothing else is lost or there twice."""
    work = widened()
    before = [(f.code, f.status) for f in work.findings]
    assert needed(work, "Conv.in_c") == (3, 32)
    renew_needs(work)
    assert needed(work, "Conv.in_c") == (3, 34)
    assert [(f.code, f.status) for f in work.findings] == before
    texts = [f.value for f in work.every if f.code == LIMIT_UNKNOWN and "Conv.in_c" in f.message]
    assert texts == ["3, 34"]
    assert {query.shape(t)[1] for n in work.model.nodes("Relu") for t in n.outputs} == {34}


@pytest.mark.parametrize("unknown", ["pass", "fail"])
def test_as_the_user_has_it(unknown: str):
    """Unknown limits that pass are not mentioned, and those that fail are errors, as before."""
    work = widened(Options(unknown=unknown))
    before = [(f.code, f.severity) for f in work.findings]
    renew_needs(work)
    assert [(f.code, f.severity) for f in work.findings] == before


def test_the_code_is_that_of_the_rule():
    """And all that it says is unknown."""
    assert next(rule.name for rule in RULES if rule.code == LIMIT_UNKNOWN) == "limit-unknown"
    found = [f for f in legalize(loud("Relu"), Options()).every if f.code == LIMIT_UNKNOWN]
    assert found
    assert all(f.status == Status.UNKNOWN for f in found)
