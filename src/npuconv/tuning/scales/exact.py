"""Ranges under which int8 holds all values that were seen exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npuconv.quant import grid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from npuconv.plan import Group
    from npuconv.quant.grid import Grid
    from npuconv.quant.statistics import Statistics
    from npuconv.tuning.scales.demands import Demand

    Ends = tuple[NDArray[np.float64], NDArray[np.float64]]


def exact_ends(
    demand: Demand, group: Group, stats: Mapping[str, Statistics], grids: Mapping[str, Grid]
) -> Ends | None:
    """Lows and highs, each [K], where channels are on a grid of at most 256 levels.

    Args:
        demand: of the group; channels that are on no grid keep its range.
        group: only one of a single tensor, with a slot for each channel, can be exact.
        stats: of the tensor: a single value off the grid, and it is none.
        grids: of tensors, before they were moved.
    """
    found = grids.get(group.name)
    if found is None or len(group.tensors) > 1 or len(found.steps) != demand.count:
        return None
    seen, lows, highs = stats[group.name], demand.lows.copy(), demand.highs.copy()
    on = grid.keep(seen.values, found.steps, -found.offsets) & ~demand.centred
    ends = {k: grid.covering(seen.lows[k], seen.highs[k], found.steps[k]) for k in np.where(on)[0]}
    held = {k: pair for k, pair in ends.items() if pair is not None}
    for k, pair in held.items():
        lows[k], highs[k] = pair
    return (lows, highs) if held else None
