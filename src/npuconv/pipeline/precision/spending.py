"""What is bought, for a goal or for a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.tuning.precision.budget import spend
from npuconv.tuning.precision.shop import Bought

if TYPE_CHECKING:
    from npuconv.config import Options
    from npuconv.pipeline.precision.market import Market
    from npuconv.tuning.noise.whole import Noise

_PARTS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.05)  # of the limit, each tried
_TRIES = 5
_CAUTION = 0.9  # of the noise that is allowed, where an estimate was too good


def spend_most(market: Market) -> None:
    """Of the whole limit and parts of it what leaves least noise in a simulation.

    What is bought first is not always a part of what more would buy, and the noise of a layer
    is an estimate: where it is wrong, less may bring more. What counts is most samples; all
    together must not get worse by it. Both are looked at, and told, before anything saturates
    the outputs: behind a Softmax one sample that tips over decides everything.
    """
    limit, before = market.limit(), market.raw(Bought())
    market.before, market.unsaturated = before, market.saturates
    least, tried = 1.0, [market.bought]
    for part in _PARTS:
        bought = spend(market.shop, limit * part)
        if bought in tried:
            continue
        tried.append(bought)
        after = market.raw(bought)
        if after.ratio(before) < least and after.noise < before.noise:
            least, market.bought, market.after = after.ratio(before), bought, after


def spend_enough(market: Market) -> None:
    """Spend until the goal is reached in a simulation of all roundings, or the limit is."""
    limit, allowed = market.limit(), _allowed(market.work.options, market.before)
    share = allowed / market.before.noise if market.before.noise else 1.0
    for _ in range(_TRIES):
        if share >= 1:
            return
        bought = spend(market.shop, limit, market.shop.noise * share)
        if bought == market.bought:
            return
        after = market.shown(bought)
        if market.after is None or after.noise < market.after.noise:
            market.bought, market.after = bought, after
        if after.noise <= allowed:
            break
        share *= _CAUTION * allowed / after.noise
    if market.after is not None and market.after.noise >= market.before.noise:
        market.bought, market.after = Bought(), None


def _allowed(options: Options, before: Noise) -> float:
    """Noise that the goal leaves."""
    assert options.min_sqnr is not None, "there is a goal"
    return before.signal / 10 ** (options.min_sqnr / 10)
