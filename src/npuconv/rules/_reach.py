"""Observed range of a tensor, its own or derived from the tensor it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.arithmetic.encoding import Encoding
    from npuconv.arithmetic.statistics import Statistics
    from npuconv.model.types import Tensor
    from npuconv.rules._seen import Seen

LOWEST, HIGHEST = -128, 127
_SAME_EXTREMES = {"MaxPool", "Resize", "Pad", "Transpose", "Reshape", "Flatten", "Squeeze"}
_SAME_EXTREMES |= {"Unsqueeze", "DepthToSpace", "SpaceToDepth"}


class Range(NamedTuple):
    """Smallest and largest value seen."""

    low: float
    high: float

    @property
    def reach(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))


def range_of(tensor: Tensor, seen: Seen) -> Range | None:
    """The range of an int8 tensor: watched itself, or made from one that was."""
    way: list[Tensor] = []  # a loop, as the way may be longer than calls can be nested
    while (stats := seen.statistics.get(tensor.name)) is None:
        node = query.producer(tensor)
        if node is None or not len(node.inputs):
            return None
        way.append(tensor)
        tensor = node.inputs[0]
    found: Range | None = Range(float(stats.lows.min()), float(stats.highs.max()))
    while way and found is not None:
        found = _behind(way.pop(), found)
    return found


def _behind(tensor: Tensor, before: Range) -> Range | None:
    """The range of what a node makes of a range; None where it may be any."""
    node = query.producer(tensor)
    if node is None or node.op in _SAME_EXTREMES:
        return before
    if node.op == "Relu":
        return Range(max(before.low, 0.0), max(before.high, 0.0))
    return _clipped(tensor, before) if node.op == "Clip" else None


def _clipped(tensor: Tensor, before: Range) -> Range:
    node = query.producer(tensor)
    low, high = (query.scalar_input(node, k) if node else None for k in (1, 2))
    ends = (-np.inf if low is None else low, np.inf if high is None else high)
    return Range(*(float(np.clip(end, *ends)) for end in before))


def stored_range(encoding: Encoding) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The smallest and the largest number of every channel that int8 holds."""
    scales, zeros = encoding.scales.astype(np.float64), encoding.zeros.astype(np.float64)
    return scales * (LOWEST - zeros), scales * (HIGHEST - zeros)


def clipped_share(stats: Statistics, encoding: Encoding) -> float:
    """Share of the kept values that lie beyond what int8 holds, by more than half a step."""
    if encoding.scales.size not in (1, stats.channels) or not stats.values.size:
        return 0.0
    low, high = stored_range(encoding)
    slack = encoding.scales.astype(np.float64) / 2
    under = stats.values < (low - slack)[:, None]
    over = stats.values > (high + slack)[:, None]
    return float(np.mean(under | over))
