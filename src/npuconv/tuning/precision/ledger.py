"""What has been bought so far, what it costs, and what is left of the noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from npuconv.tuning.precision.shop import MOST, Bought, Shop

Step = tuple[str, ...] | int  # layers that run once more, or an offer: one of its channels more


class Ledger:
    """An account that only grows.

    Args:
        shop: what there is.
        reluctance: how many times as much as a layer a channel must bring for each
            multiplication: a layer as a whole also makes less what was not counted as worth it.

    Attributes:
        left: noise in the outputs of the model.
        spent: multiplications.
    """

    def __init__(self, shop: Shop, reluctance: float = 1.0) -> None:
        """Start with nothing."""
        self._reluctance = reluctance
        self._shop, self.spent, self.left = shop, 0.0, shop.noise
        self._counts: dict[str, int] = {}
        self._times = [np.ones(offer.channels, np.int64) for offer in shop.offers]
        self._kept = [1.0] * len(shop.terms)  # share of each that copies of channels leave
        self._rows, self._columns = Counter[str](), Counter[str]()
        self._costs = {name: float(size) for name, size in shop.macs.items()}
        self._worths: dict[Step, tuple[float, int]] = {}
        self._terms = self._by_step()
        self._steps = _inverted(self._terms)

    @property
    def bought(self) -> Bought:
        """All of it."""
        return Bought(
            dict(self._counts),
            {
                offer.tensor: _index(times)
                for offer, times in zip(self._shop.offers, self._times, strict=True)
                if (times > 1).any()
            },
        )

    def spend(self, limit: float, enough: float, most: int) -> None:
        """Take step after step that removes most noise for each multiplication.

        Args:
            limit: multiplications, in all.
            enough: noise that is little enough.
            most: no layer runs more often.
        """
        while self.left > enough:
            best, rate = None, 0.0
            for step in self._terms:
                worth, price = self._worth(step)[0], self._price(step)
                worth /= 1.0 if isinstance(step, tuple) else self._reluctance
                if worth > rate * price and self.spent + price <= limit and self._may(step, most):
                    best, rate = step, worth / max(price, 1e-9)
            if best is None:
                return
            self._take(best)

    def _by_step(self) -> dict[Step, list[int]]:
        """Every step, and the numbers of the terms that it makes less."""
        terms, macs, found = self._shop.terms, self._shop.macs, dict[Step, list[int]]()
        of: dict[str, list[int]] = {}
        for number, term in enumerate(terms):
            for name in {term.maker, *term.readers}:
                of.setdefault(name, []).append(number)
        both = {
            tuple(dict.fromkeys((t.maker, *t.readers))) for t in terms if t.is_output and t.readers
        }
        singles = [(name,) for name in macs]
        joint = sorted(step for step in both if all(name in macs for name in step))
        for step in (*singles, *joint) if self._shop.repeats else ():
            found[step] = sorted({number for name in step for number in of.get(name, ())})
        for place, offer in enumerate(self._shop.offers):
            found[place] = [number for number, _ in offer.noise]
        return found

    def _worth(self, step: Step) -> tuple[float, int]:
        """Noise that goes, and the channel with which it goes."""
        if step not in self._worths:
            found = (self._of_layers(step), 0) if isinstance(step, tuple) else self._of_one(step)
            self._worths[step] = found
        return self._worths[step]

    def _of_layers(self, names: Sequence[str]) -> float:
        after = self._counts | {name: self._counts.get(name, 1) + 1 for name in names}
        terms = ((self._kept[k], self._shop.terms[k]) for k in self._terms[tuple(names)])
        return sum(kept * (t.left(self._counts) - t.left(after)) for kept, t in terms)

    def _of_one(self, place: int) -> tuple[float, int]:
        offer, times = self._shop.offers[place], self._times[place].astype(np.float64)
        less = np.where(times < MOST, times**-2 - (times + 1) ** -2, 0.0)
        parts = (self._shop.terms[k].left(self._counts) * share for k, share in offer.noise)
        gains = less * sum(parts, np.zeros(offer.channels))
        best = int(np.argmax(gains))
        return float(gains[best]), best

    def _price(self, step: Step) -> float:
        if isinstance(step, tuple):
            return sum(self._costs[name] / self._counts.get(name, 1) for name in step)
        offer = self._shop.offers[step]
        there = int(self._times[step].sum())
        return sum(self._costs[name] for name in (*offer.rows, *offer.columns)) / there

    def _may(self, step: Step, most: int) -> bool:
        if isinstance(step, tuple):
            return all(self._counts.get(name, 1) < most for name in step)
        offer, fits = self._shop.offers[step], self._shop.fits
        more_rows, more_columns = Counter(offer.rows), Counter(offer.columns)
        return all(
            fits(
                name,
                self._rows[name] + more_rows[name],
                self._columns[name] + more_columns[name],
            )
            for name in {**more_rows, **more_columns}
        )

    def _take(self, step: Step) -> None:
        (worth, channel), price = self._worth(step), self._price(step)
        self.left, self.spent = self.left - worth, self.spent + price
        if isinstance(step, tuple):
            for name in step:
                times = self._counts.get(name, 1)
                self._counts[name] = times + 1
                self._costs[name] *= (times + 1) / times
        else:
            self._make_again(step, channel)
        for number in self._terms[step]:
            for other in self._steps[number]:
                self._worths.pop(other, None)

    def _make_again(self, place: int, channel: int) -> None:
        offer, times = self._shop.offers[place], self._times[place]
        more = (int(times.sum()) + 1) / int(times.sum())
        before = float(times[channel]) ** -2
        times[channel] += 1
        for number, share in offer.noise:
            self._kept[number] -= share[channel] * (before - float(times[channel]) ** -2)
        for name in (*offer.rows, *offer.columns):
            self._costs[name] *= more
        self._rows.update(offer.rows)
        self._columns.update(offer.columns)


def _index(times: NDArray[np.int64]) -> tuple[int, ...]:
    """All channels, and behind them the copies."""
    return (*range(times.size), *np.repeat(np.arange(times.size), times - 1).tolist())


def _inverted(terms: dict[Step, list[int]]) -> dict[int, list[Step]]:
    found: dict[int, list[Step]] = {}
    for step, numbers in terms.items():
        for number in numbers:
            found.setdefault(number, []).append(step)
    return found
