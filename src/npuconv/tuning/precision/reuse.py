"""Which channels to make again in the place of idle ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from npuconv.plan.levels import parameters
from npuconv.tuning.precision.shop import MOST

if TYPE_CHECKING:
    from npuconv.plan.strands import Strand
    from npuconv.quant.encoding import Encoding

_LOOKED_AT = 48  # channels of a strand whose noise is measured, one by one


def promising(strand: Strand, encodings: Mapping[str, Encoding], idle: Sequence[int]) -> list[int]:
    """Channels that may make much of the noise: those whose steps add most to what reads them.

    Args:
        strand: the channels.
        encodings: of its tensors.
        idle: channels that make none.

    Returns:
        Numbers of some, ascending; all that are not idle where they are few.
    """
    added = np.zeros(len(parameters(strand.maker)[0]))
    for reader in strand.readers:
        weight, _ = parameters(reader)
        squares = np.square(weight).sum(axis=0).reshape(len(added), -1).sum(axis=1)
        added += squares * np.square(encodings[reader.inputs[0].name].scales.astype(np.float64))
    order = [int(k) for k in np.argsort(-added, kind="stable") if k not in set(idle)]
    return sorted(order[:_LOOKED_AT])


def reused(powers: Mapping[int, float], idle: Sequence[int], count: int) -> tuple[int, ...]:
    """Give every idle channel to the one whose noise it takes most of.

    Of the rounding of k copies that lie evenly within a step 1 part in k * k is left.

    Args:
        powers: noise of channels, by number.
        idle: numbers of the channels that may be replaced.
        count: of all channels.

    Returns:
        For each channel, which one it is to be: its own number where nothing changes.
    """
    index, times = list(range(count)), dict.fromkeys(powers, 1)
    for place in idle:
        gains = {c: _gain(powers[c], k) for c, k in times.items() if k < MOST}
        best = max(gains, key=lambda c: gains[c], default=None)
        if best is None or gains[best] <= 0:
            break
        index[place], times[best] = best, times[best] + 1
    return tuple(index)


def _gain(power: float, times: int) -> float:
    return power * float(times**-2.0 - (times + 1) ** -2.0)
