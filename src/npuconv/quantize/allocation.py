"""Greedy allocation of extra multiplications to layers that run several times.

The candidate that removes most estimated error for each multiplication comes first, until the
limit is reached. A candidate is a layer once more, or a layer with all that read it on
the device (the error of the tensor between them only goes if both repeat).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npuconv.quantize import settings
from npuconv.quantize.oversampling import Repeats
from npuconv.records import dataclass

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


def allocate(terms: Sequence[NoiseTerm], macs: Mapping[str, int], limit: float) -> Repeats:
    """Take the best candidate for each multiplication until the limit is reached.

    Args:
        terms: errors of all roundings.
        macs: multiplications of each layer that may run several times.
        limit: largest number of extra multiplications.
    """
    joint = {(t.maker, *t.readers) for t in terms if t.is_output and t.readers}
    candidates = [*((name,) for name in macs), *sorted({tuple(dict.fromkeys(c)) for c in joint})]
    terms_of = {
        candidate: [t for t in terms if not {t.maker, *t.readers}.isdisjoint(candidate)]
        for candidate in candidates
        if macs.keys() >= set(candidate)
    }
    counts, spent = dict[str, int](), 0
    while True:
        best, best_rate = None, 0.0
        for candidate, touched in terms_of.items():
            cost = sum(macs[name] for name in candidate)
            after = counts | {name: counts.get(name, 1) + 1 for name in candidate}
            is_allowed = all(after[name] <= settings.BUDGET_MOST_COPIES for name in candidate)
            if is_allowed and spent + cost <= limit:
                gain = sum(t.power * (t.share_left(counts) - t.share_left(after)) for t in touched)
                if gain / max(cost, 1e-9) > best_rate:
                    best, best_rate = (after, spent + cost), gain / max(cost, 1e-9)
        if best is None:
            return counts
        counts, spent = best
