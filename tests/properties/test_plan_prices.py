"""A target that lists more, or has looser limits, never gets a plan of a higher price.

The price is that of all convolutions and of all tensors that cross. A plan may cost more that has
more multiplications on the device, or that rounds fewer partial sums and averages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npuconv.config import Options
from npuconv.legalize.legal import LegalModel, legalize
from npuconv.partition.costs import cost
from npuconv.partition.crossings import price
from support.dice import Dice
from support.odd_networks import odd_network
from support.target_pairs import target_pair

pytestmark = pytest.mark.e2e

SLICE = range(8)
# Elements that a form moves and convolutions that it starts count in the choice, not in this price.
SLACK = 10_000  # of 5,000,000 for a crossing
SWEEP = [range(first, first + 50) for first in range(0, 2000, 50)]


def price_of(legal: LegalModel) -> float:
    """Return the price of the work and of the crossings."""
    total = cost(legal.model.nodes()).total(legal.target.costs)
    return total + price(legal.model, legal.plan, legal.target)


def host_macs(legal: LegalModel) -> int:
    """Return the multiply-accumulates that the host computes."""
    placement = legal.plan.placement
    nodes = [n for n in legal.model.nodes() if placement[id(n)] != "device"]
    return cost(nodes).macs or 0


def is_rounded(legal: LegalModel) -> bool:
    """Return whether int8 rounds partial sums, or averages of averages."""
    records = legal.log.rewrites
    return any("rounded to int8" in r.note or "average of" in r.after for r in records)


def fault(number: int, folder: Path) -> str:
    """Return how the plan for the second target of a pair is worse, or ''."""
    dice, model = Dice("pairs", number), odd_network(number).model
    plans = []
    form = dice.one_of(("qoperator", "qdq", "float"))
    pair: list[dict[str, Any]] = list(target_pair(dice))
    for target in pair:
        path = folder / "target.yaml"
        path.write_text(json.dumps(target))
        plans.append(legalize(model, Options(target=str(path), format=form, verify=False)))
    fewer, more = plans
    if fewer.findings.refuse or is_rounded(fewer) or host_macs(more) < host_macs(fewer):
        return ""
    prices = [price_of(plan) for plan in plans]
    is_dearer = prices[1] > prices[0] + SLACK
    return f"pair {number}: {prices[0]:,.0f} became {prices[1]:,.0f}" if is_dearer else ""


@pytest.mark.parametrize("number", SLICE)
def test_a_device_that_does_more_never_costs_more(number: int, tmp_path: Path) -> None:
    """Random networks and pairs of targets."""
    assert fault(number, tmp_path) == ""


@pytest.mark.sweep
@pytest.mark.parametrize("numbers", SWEEP)
def test_two_thousand_pairs(numbers: range, tmp_path: Path) -> None:
    """The same for many."""
    assert list(filter(None, (fault(number, tmp_path) for number in numbers))) == []
