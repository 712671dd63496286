"""Which of many make much of the noise, channels of a tensor or others, without measuring each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_PARTS = 8  # that a set of channels is cut into


class Noise(Protocol):
    """Tells the noise of things that have numbers."""

    def of(self, channels: Sequence[int | Sequence[int]], /) -> NDArray[np.float64]:
        """Of these in each of the feeds; of several together where a sequence stands for one."""


def loudest(
    noise: Noise,
    weights: NDArray[np.float64],
    count: int,
    least: float,
    looks: float = math.inf,
) -> dict[int, float]:
    """Cut the channels into a few parts, and again those that are loud, down to single ones.

    Args:
        noise: tells that of any channels together.
        weights: of the feeds, in a sum over them.
        count: how many channels there are.
        least: noise that counts, of a part or a channel.
        looks: parts that are measured, or a few more. The loudest is cut first; what lies in
            parts that are not cut by then is not found.

    Returns:
        The weighted noise of every loud channel, by number, ascending.

    Raises:
        RuntimeRefusedError: onnxruntime does not take a part of the model.
    """
    found: dict[int, float] = {}
    waiting: list[tuple[float, Sequence[int]]] = [(math.inf, range(count))]
    while waiting and looks > 0:
        waiting.sort(key=lambda one: -one[0])
        at_once = 1 if looks < math.inf else len(waiting)
        parts = [part for _, each in waiting[:at_once] for part in _cut(each)]
        powers = (noise.of(parts) @ weights).tolist()
        loud = [(power, part) for part, power in zip(parts, powers, strict=True) if power >= least]
        found |= {part[0]: power for power, part in loud if len(part) == 1}
        waiting = [*waiting[at_once:], *(one for one in loud if len(one[1]) > 1)]
        looks -= len(parts)
    return dict(sorted(found.items()))


def _cut(channels: Sequence[int]) -> list[Sequence[int]]:
    size = -(-len(channels) // _PARTS)
    return [channels[start : start + size] for start in range(0, len(channels), size)]
