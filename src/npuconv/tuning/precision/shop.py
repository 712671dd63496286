"""What precision can be bought, and for how many multiplications."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MOST = 4  # times that a layer runs or a channel is made; the noise of four is 1/16
# What is left of the noise in an output if k copies round it, as a power of k: their
# inputs differ, so their roundings are neither alike nor independent.
_OUTPUT, _INPUT = -1.5, -2.0


@dataclass(frozen=True)
class Term:
    """Noise of one rounding, and who could make it less.

    Attributes:
        power: in the outputs of the model.
        maker: the layer whose weights or output are rounded; "" where the host makes it.
        readers: the layers on the device that read it; () for weights.
        is_output: rounded by its maker, and by the host anew where that repeats.
    """

    power: float
    maker: str
    readers: tuple[str, ...] = ()
    is_output: bool = False

    def left(self, counts: Mapping[str, int]) -> float:
        """What is left of it if layers run that often."""
        own = counts.get(self.maker, 1)
        if not self.maker:
            return self.power * self._read(counts)
        if not self.is_output:
            return self.power * float(own**_INPUT)
        if own == 1:
            return self.power
        return self.power * float(own**_OUTPUT + self._read(counts))

    def _read(self, counts: Mapping[str, int]) -> float:
        if not self.readers:
            return 0.0
        return sum(counts.get(r, 1) ** _INPUT for r in self.readers) / len(self.readers)


@dataclass(frozen=True)
class Offer:
    """Channels each of which may be made several times.

    Attributes:
        tensor: name of the first tensor that has them.
        channels: C.
        rows: layers that make one more with each; with it grow their multiplications.
        columns: layers that read one more with each.
        noise: numbers of terms, and the share of each that is of every channel, [C].
    """

    tensor: str
    channels: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    noise: tuple[tuple[int, NDArray[np.float64]], ...]


@dataclass(frozen=True)
class Bought:
    """What is bought.

    Attributes:
        layers: how often each runs, where more than once.
        channels: by tensor, the channel that each of those it is to have is: first its own,
            then the copies.
    """

    layers: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether it is anything."""
        return bool(self.layers or self.channels)


def _any_size(_layer: str, _rows: int, _columns: int) -> bool:
    return True


@dataclass(frozen=True)
class Shop:
    """All that there is to buy.

    Attributes:
        terms: all noise.
        macs: multiplications of each layer that may run several times.
        offers: channels that may be made several times, of such layers.
        fits: whether a layer may have so many more rows and columns.
        repeats: whether layers may run several times: somebody has to take the mean.
    """

    terms: Sequence[Term]
    macs: Mapping[str, int]
    offers: Sequence[Offer] = ()
    fits: Callable[[str, int, int], bool] = _any_size
    repeats: bool = True

    @property
    def noise(self) -> float:
        """In the outputs of the model, while nothing is bought."""
        return sum(term.power for term in self.terms)
