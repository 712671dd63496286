"""Greedy allocation of extra multiplications to layers and channels that run several times.

The candidate that removes most estimated error for each multiplication comes first, until the
limit or the goal is reached. A candidate is a layer once more, a layer with all that read it on
the device (the error of the tensor between them only goes if both repeat), or one channel once
more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from npuconv.quantize.oversampling import Repeats
from npuconv.quantize.settings import BUDGET

Doubles = NDArray[np.float64]
# Layers that run once more, or the number of a channel set of which one channel runs once more.
Candidate = tuple[str, ...] | int
# Remaining error of an output if k copies round it, as a power of k: their inputs differ, so
# their roundings are neither equal nor independent. Dithered inputs: k * k.
_OUTPUT, _INPUT = -1.5, -2.0


@dataclass(frozen=True)
class NoiseTerm:
    """Error of one rounding, and the layers that reduce it by repeating."""

    channels: Doubles  # error of the outputs by channel of the rounded tensor, float64 [C]
    maker: str  # layer whose weights or output are rounded; "" where the host makes the tensor
    readers: tuple[str, ...] = ()  # layers on the device that read the tensor; () for weights
    # Whether its maker rounds it, and the host again where the maker repeats.
    is_output: bool = False

    def share_left(self, counts: Mapping[str, int]) -> float:
        """Return the remaining share of the error if layers run that often."""
        if not self.maker:
            return self._read(counts)
        copies = counts.get(self.maker, 1)
        if not self.is_output:
            return float(copies**_INPUT)
        return 1.0 if copies == 1 else float(copies**_OUTPUT + self._read(counts))

    def _read(self, counts: Mapping[str, int]) -> float:
        if not self.readers:
            return 0.0
        return sum(counts.get(r, 1) ** _INPUT for r in self.readers) / len(self.readers)


@dataclass(frozen=True)
class ChannelSet:
    """Channels that may be computed several times, each by itself."""

    tensor: str  # name of the first tensor that has them
    count: int  # number of channels
    rows: tuple[str, ...]  # layers that compute one channel more with each copy
    columns: tuple[str, ...]  # layers that read one channel more with each copy
    terms: tuple[int, ...]  # numbers of the noise terms of these channels

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers that grow with each copy."""
        return (*self.rows, *self.columns)


@dataclass
class Allocator:
    """Greedy allocation of extra multiplications."""

    terms: Sequence[NoiseTerm]
    macs: Mapping[str, int]  # multiplications of each layer that may run several times
    sets: Sequence[ChannelSet] = ()  # channels that may be computed several times, of such layers
    # Whether a layer may have so many more rows and columns.
    fits: Callable[[str, int, int], bool] = lambda *_: True
    # Whether layers may run several times, which needs a host for the mean.
    repeats_layers: bool = True
    spent: float = 0.0  # multiplications that are allocated
    _counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start without repeats."""
        self._times = [np.ones(channel_set.count, np.int64) for channel_set in self.sets]
        self._channels = [term.channels.copy() for term in self.terms]
        self._costs = {name: float(size) for name, size in self.macs.items()}
        self._rows, self._columns = Counter[str](), Counter[str]()
        self._terms_of = self._candidates()
        self._touching: dict[int, list[Candidate]] = {}
        for candidate, numbers in self._terms_of.items():
            for number in numbers:
                self._touching.setdefault(number, []).append(candidate)
        self._gains = {candidate: self._gain(candidate) for candidate in self._terms_of}
        self.left = sum(float(t.channels.sum()) for t in self.terms)

    def _candidates(self) -> dict[Candidate, list[int]]:
        """Return every candidate, and the numbers of the terms that it reduces."""
        terms_of_layer: dict[str, list[int]] = {}
        for number, term in enumerate(self.terms):
            for name in {term.maker, *term.readers}:
                terms_of_layer.setdefault(name, []).append(number)
        joint = {(t.maker, *t.readers) for t in self.terms if t.is_output and t.readers}
        joint_layers = sorted(tuple(dict.fromkeys(candidate)) for candidate in joint)
        singles = [(name,) for name in self.macs]
        layers = [s for s in (*singles, *joint_layers) if all(name in self.macs for name in s)]
        terms_of: dict[Candidate, list[int]] = {
            candidate: sorted(
                {number for name in candidate for number in terms_of_layer.get(name, ())}
            )
            for candidate in (layers if self.repeats_layers else ())
        }
        return terms_of | {k: list(channels.terms) for k, channels in enumerate(self.sets)}

    def allocate(self, limit: float, goal: float = 0.0) -> Repeats:
        """Take the best candidate for each multiplication until the limit or goal is reached."""
        while self.left > goal:
            rates = ((self._rate(candidate), candidate) for candidate in self._terms_of)
            best = max(
                (pair for pair in rates if pair[0] > 0 and self._fits(pair[1], limit)),
                key=lambda pair: pair[0],
                default=None,
            )
            if best is None:
                break
            self._take(best[1])
        index = {
            channel_set.tensor: (
                *range(channel_set.count),
                *np.repeat(np.arange(channel_set.count), times - 1).tolist(),
            )
            for channel_set, times in zip(self.sets, self._times, strict=True)
            if (times > 1).any()
        }
        return Repeats(dict(self._counts), index)

    def _rate(self, candidate: Candidate) -> float:
        """Return the error that a multiplication removes, weighed."""
        rate = self._gains[candidate][0] / self._mac_cost(candidate)
        # Repeating a layer also reduces errors that are not estimated.
        return rate if isinstance(candidate, tuple) else rate / BUDGET.channel_reserve

    def _gain(self, candidate: Candidate) -> tuple[float, int]:
        """Return the error that a candidate removes, and its channel."""
        if isinstance(candidate, tuple):
            after = self._counts | {name: self._counts.get(name, 1) + 1 for name in candidate}
            parts = ((self.terms[k], self._channels[k].sum()) for k in self._terms_of[candidate])
            return sum(
                float(power) * (t.share_left(self._counts) - t.share_left(after))
                for t, power in parts
            ), 0
        times = self._times[candidate].astype(np.float64)
        removed = np.where(times < BUDGET.most_copies, 1 - (times / (times + 1)) ** 2, 0.0)
        parts = ((self.terms[k], self._channels[k]) for k in self._terms_of[candidate])
        gains = removed * sum(power * term.share_left(self._counts) for term, power in parts)
        best = int(np.argmax(gains))
        return float(gains[best]), best

    def _mac_cost(self, candidate: Candidate) -> float:
        if isinstance(candidate, tuple):
            return sum(self._costs[name] / self._counts.get(name, 1) for name in candidate) or 1e-9
        channel_count = int(self._times[candidate].sum())
        return (
            sum(self._costs[name] for name in self.sets[candidate].layers) / channel_count or 1e-9
        )

    def _fits(self, candidate: Candidate, limit: float) -> bool:
        if self.spent + self._mac_cost(candidate) > limit:
            return False
        if isinstance(candidate, tuple):
            return all(self._counts.get(name, 1) < BUDGET.most_copies for name in candidate)
        rows, columns = Counter(self.sets[candidate].rows), Counter(self.sets[candidate].columns)
        return all(
            self.fits(n, self._rows[n] + rows[n], self._columns[n] + columns[n])
            for n in {**rows, **columns}
        )

    def _take(self, candidate: Candidate) -> None:
        (gain, channel), price = self._gains[candidate], self._mac_cost(candidate)
        self.left, self.spent = self.left - gain, self.spent + price
        if isinstance(candidate, tuple):
            for name in candidate:
                times = self._counts.get(name, 1)
                self._counts[name] = times + 1
                self._costs[name] *= (times + 1) / times
        else:
            self._duplicate(candidate, channel)
        for touched in {o for number in self._terms_of[candidate] for o in self._touching[number]}:
            self._gains[touched] = self._gain(touched)

    def _duplicate(self, number_of_set: int, channel: int) -> None:
        channel_set, times = self.sets[number_of_set], self._times[number_of_set]
        growth = (int(times.sum()) + 1) / int(times.sum())
        error_left = float((times[channel] / (times[channel] + 1)) ** 2)
        times[channel] += 1
        for number in channel_set.terms:
            self._channels[number][channel] *= error_left
        for name in channel_set.layers:
            self._costs[name] *= growth
        self._rows.update(channel_set.rows)
        self._columns.update(channel_set.columns)
