"""First and second moments of the windows that a convolution multiplies its weights with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BLOCK = 256  # values of a window whose products are kept; those of different blocks are not
KEPT = 256  # windows that are kept as they are, to judge on


class Moments:
    """Of G groups of windows of K values.

    Attributes:
        groups: G.
        length: K.
        blocks: the values are cut into blocks of equal length.
        count: windows seen.
    """

    def __init__(self, groups: int, length: int) -> None:
        """Start empty."""
        self.groups, self.length = groups, length
        parts = -(-length // BLOCK)
        size = -(-length // parts)
        self.blocks = [slice(k, min(k + size, length)) for k in range(0, length, size)]
        self.count = 0
        self._sums = np.zeros((groups, length))
        self._products = [
            np.zeros((groups, b.stop - b.start, b.stop - b.start), np.float32) for b in self.blocks
        ]
        self._apart: list[NDArray[np.float32]] = []
        self._unit = 0.0  # what values are divided by, so that their squares fit float32

    def add(self, windows: NDArray[np.float32], *, apart: bool = False) -> None:
        """Add windows [G,K,P].

        Args:
            windows: what was seen.
            apart: keep some of them to judge on, and take no moments of those.
        """
        if apart and self.count:
            self._keep(windows)
            return
        self.count += windows.shape[2]
        self._unit = self._unit or float(np.abs(windows).max(initial=0.0))
        self._sums += windows.sum(axis=2, dtype=np.float64)
        for block, total in zip(self.blocks, self._products, strict=True):
            part = windows[:, block] / np.float32(self._unit or 1.0)
            total += part @ part.transpose(0, 2, 1)

    def _keep(self, windows: NDArray[np.float32]) -> None:
        room = KEPT // 4
        step = max(1, windows.shape[2] // room)
        self._apart.append(np.array(windows[:, :, ::step][:, :, :room]))

    def take(self, groups: Sequence[int]) -> Moments:
        """Of these groups only, in this order."""
        index, found = list(groups), Moments(len(groups), self.length)
        found.count, found._unit = self.count, self._unit
        found._sums = self._sums[index]
        found._products = [each[index] for each in self._products]
        found._apart = [each[index] for each in self._apart]
        return found

    @property
    def means(self) -> NDArray[np.float64]:
        """float64 [G,K]."""
        return self._sums / max(self.count, 1)

    def products(self, block: int) -> NDArray[np.float64]:
        """Mean products of the values of a block, uncentred, float64 [G,B,B]."""
        return self._products[block].astype(np.float64) * (self._unit**2 / max(self.count, 1))

    @property
    def apart(self) -> NDArray[np.float32] | None:
        """Windows that no moments were taken of, [G,K,P]; None if there are none."""
        return np.concatenate(self._apart, axis=2) if self._apart else None
