"""Greedy allocation of extra multiplications to layers that run several times.

The candidate that removes most estimated error for each multiplication comes first, until the
limit or the goal is reached. A candidate is a layer once more, or a layer with all that read it on
the device (the error of the tensor between them only goes if both repeat).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from npuconv.quantize.oversampling import Repeats
from npuconv.quantize.settings import BUDGET

Candidate = tuple[str, ...]  # layers that run once more
# Remaining error of an output if k copies round it, as a power of k: their inputs differ, so
# their roundings are neither equal nor independent. Dithered inputs: k * k.
_OUTPUT, _INPUT = -1.5, -2.0


@dataclass(frozen=True)
class NoiseTerm:
    """Error of one rounding, and the layers that reduce it by repeating."""

    power: float  # error of the outputs
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


@dataclass
class Allocator:
    """Greedy allocation of extra multiplications."""

    terms: Sequence[NoiseTerm]
    macs: Mapping[str, int]  # multiplications of each layer that may run several times
    spent: int = 0  # multiplications that are allocated
    _counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start without repeats."""
        terms_of_layer: dict[str, list[int]] = {}
        for number, term in enumerate(self.terms):
            for name in {term.maker, *term.readers}:
                terms_of_layer.setdefault(name, []).append(number)
        joint = {(t.maker, *t.readers) for t in self.terms if t.is_output and t.readers}
        joint_layers = sorted(tuple(dict.fromkeys(candidate)) for candidate in joint)
        candidates = [*((name,) for name in self.macs), *joint_layers]
        # Candidates with the numbers of the terms that they reduce.
        self._terms_of = {
            candidate: sorted(
                {number for name in candidate for number in terms_of_layer.get(name, ())}
            )
            for candidate in candidates
            if self.macs.keys() >= set(candidate)
        }
        self._gains = {candidate: self._gain(candidate) for candidate in self._terms_of}
        self.left = sum(term.power for term in self.terms)

    def allocate(self, limit: float, goal: float = 0.0) -> Repeats:
        """Take the best candidate for each multiplication until the limit or goal is reached."""
        while self.left > goal:
            rates = {
                candidate: gain / max(self._cost(candidate), 1e-9)
                for candidate, gain in self._gains.items()
                if gain > 0 and self._fits(candidate, limit)
            }
            if not rates:
                break
            self._take(max(rates, key=lambda candidate: rates[candidate]))
        return dict(self._counts)

    def _gain(self, candidate: Candidate) -> float:
        """Return the error that a candidate removes."""
        after = self._counts | {name: self._counts.get(name, 1) + 1 for name in candidate}
        terms = (self.terms[number] for number in self._terms_of[candidate])
        return sum(t.power * (t.share_left(self._counts) - t.share_left(after)) for t in terms)

    def _cost(self, candidate: Candidate) -> int:
        return sum(self.macs[name] for name in candidate)

    def _fits(self, candidate: Candidate, limit: float) -> bool:
        is_affordable = self.spent + self._cost(candidate) <= limit
        return is_affordable and all(
            self._counts.get(name, 1) < BUDGET.most_copies for name in candidate
        )

    def _take(self, candidate: Candidate) -> None:
        self.left -= self._gains[candidate]
        self.spent += self._cost(candidate)
        for name in candidate:
            self._counts[name] = self._counts.get(name, 1) + 1
        terms = set(self._terms_of[candidate])
        for touched, numbers in self._terms_of.items():
            if not terms.isdisjoint(numbers):
                self._gains[touched] = self._gain(touched)
