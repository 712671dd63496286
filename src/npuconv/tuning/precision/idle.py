"""Channels that say nothing, whatever a model is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npuconv.plan.levels import Levels, levels, parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from npuconv.plan.strands import Strand
    from npuconv.quant.encoding import Encoding

_FAR = 1e3  # times as far as the input is stored: nothing of it comes near
_NOTHING = 1e-6  # of a step


def idle_channels(strand: Strand, encodings: Mapping[str, Encoding]) -> list[int]:
    """Channels that have one value where they are mixed with others, also at its borders.

    Training leaves such filters: their weights have decayed to nothing, and mostly a bias
    below 0 is cut off by the activation.

    Args:
        strand: the channels.
        encodings: of every tensor.

    Returns:
        Numbers of the channels, ascending.
    """
    _, bias = parameters(strand.maker)
    reach = _reach(strand, encodings[strand.maker.inputs[0].name])
    found = levels(strand, Levels(bias - reach, bias + reach))
    idle = np.full(len(bias), fill_value=True)
    for reader in strand.readers:
        name = reader.inputs[0].name
        low, high = found[name].around(reader)
        idle &= high - low <= _NOTHING * encodings[name].scales.astype(np.float64)
    return [int(k) for k in np.flatnonzero(idle)]


def _reach(strand: Strand, source: Encoding) -> NDArray[np.float64]:
    """How far the input could move what the maker puts out, float64 [C]."""
    weight, _ = parameters(strand.maker)
    scales, zeros = source.scales.astype(np.float64), source.zeros
    far = _FAR * np.maximum((127 - zeros) * scales, (zeros + 128) * scales)
    sums = np.abs(weight).reshape(*weight.shape[:2], -1).sum(axis=2)
    return np.asarray(sums @ np.broadcast_to(far, weight.shape[1]))
