"""Random choices that are the same every time, on every machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Random choices that depend only on the seed, which consists of names and numbers."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random(repr(seed))

    def number(self, low: int, high: int) -> int:
        """Draw an integer between two bounds, both included."""
        return self._random.randint(low, high)

    def one_of(self, options: Sequence[T]) -> T:
        """Draw an option; all options are equally likely."""
        return self._random.choice(options)

    def weighted(self, **shares: int) -> str:
        """Draw a name with the probability of its share."""
        return self._random.choices(list(shares), list(shares.values()))[0]

    def chance(self, percent: int) -> bool:
        """Return True with this probability."""
        return self.number(0, 99) < percent
