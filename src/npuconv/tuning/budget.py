"""Which convolutions to run several times, so that every multiplication buys most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MOST = 4  # times that one convolution runs; the noise of four is 1/16
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


def left(terms: Iterable[Term], counts: Mapping[str, int]) -> float:
    """Noise in the outputs of the model if layers run that often."""
    return sum(term.left(counts) for term in terms)


def spend(
    terms: Sequence[Term],
    macs: Mapping[str, int],
    limit: int,
    enough: float = 0.0,
    start: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """How often each layer is to run.

    The step that takes away most noise for each multiplication is taken, until the limit
    or the goal is reached. A step is one layer once more, or a layer with all that read it
    on the device: the noise of the tensor between them only goes if both repeat. Steps that
    are cheap may leave no room for a dear one that is worth more, so what is left is spent
    also after every layer has been held to two and to three runs, and the best is taken.

    Args:
        terms: all noise.
        macs: of the layers that may be repeated.
        limit: multiply-accumulates that may be added, in all.
        enough: noise that is little enough.
        start: counts to go on from.

    Returns:
        By layer, only those that run more than once.
    """
    found = []
    for first in range(2, MOST + 1):
        counts = dict(start or {})
        for most in range(first, MOST + 1):
            counts = _spend(terms, macs, limit, enough, counts, most)
        found.append(counts)
    reaching = [each for each in found if left(terms, each) <= enough]
    if reaching:
        return min(reaching, key=lambda each: _spent(macs, each))
    return min(found, key=lambda each: left(terms, each))


def _spent(macs: Mapping[str, int], counts: Mapping[str, int]) -> int:
    return sum((times - 1) * macs[name] for name, times in counts.items())


def _spend(
    terms: Sequence[Term],
    macs: Mapping[str, int],
    limit: int,
    enough: float,
    start: Mapping[str, int],
    most: int,
) -> dict[str, int]:
    """Step by step, no layer more often than ``most`` times."""
    counts = dict(start)
    spent = _spent(macs, counts)
    steps, touched = _steps(terms, macs), _touched(terms)
    while left(terms, counts) > enough:
        best, gain, cost = None, 0.0, 0
        for step in steps:
            price = sum(macs[name] for name in step)
            if spent + price > limit or any(counts.get(n, 1) >= most for n in step):
                continue
            worth = _worth(step, counts, touched) / max(price, 1)
            if worth > gain:
                best, gain, cost = step, worth, price
        if best is None:
            break
        counts.update((name, counts.get(name, 1) + 1) for name in best)
        spent += cost
    return counts


def _steps(terms: Iterable[Term], macs: Mapping[str, int]) -> list[tuple[str, ...]]:
    singles = [(name,) for name in macs]
    joint = {
        tuple(dict.fromkeys((t.maker, *t.readers))) for t in terms if t.is_output and t.readers
    }
    return [*singles, *sorted(step for step in joint if all(name in macs for name in step))]


def _touched(terms: Iterable[Term]) -> dict[str, list[Term]]:
    found: dict[str, list[Term]] = {}
    for term in terms:
        for name in {term.maker, *term.readers}:
            found.setdefault(name, []).append(term)
    return found


def _worth(
    step: Sequence[str], counts: Mapping[str, int], touched: Mapping[str, list[Term]]
) -> float:
    """Noise that goes."""
    after = {**counts, **{name: counts.get(name, 1) + 1 for name in step}}
    terms = {id(t): t for name in step for t in touched.get(name, [])}
    return sum(t.left(counts) - t.left(after) for t in terms.values())
