"""Choosing between the legal forms of one convolution, by what they cost on the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from npuconv.config import Options
from npuconv.partition.costs import Cost
from npuconv.target import Target


@dataclass(frozen=True)
class Form:
    """One form a convolution could take."""

    name: str  # as --prefer calls it
    cost: Cost
    moved_bytes: int = 0  # sliced, concatenated or reordered, per inference
    obstacle: str = ""  # why it cannot be taken
    chosen: bool = False

    def total(self, target: Target) -> float | None:
        """Return its cost on the target; None where a dimension is not known."""
        if self.cost.macs is None:
            return None
        parts = (self.cost.macs, self.cost.weight_bytes, self.cost.convolutions)
        return target.costs.of(*parts, self.moved_bytes)


def choose(target: Target, options: Options, forms: Sequence[Form]) -> tuple[Form, ...]:
    """Return the forms with the best one marked: the preferred, else the cheapest legal.

    Where costs are unknown or equal, the first legal one is taken.
    """
    legal = [form for form in forms if not form.obstacle]
    wanted = [form for form in legal if form.name in options.prefer]
    candidates = wanted or legal
    if not candidates:
        return tuple(forms)
    best = min(candidates, key=lambda form: form.total(target) or 0.0)
    return tuple(replace(form, chosen=form is best) for form in forms)


def chosen(forms: Sequence[Form]) -> Form | None:
    """Return the form that is marked; None where none is legal."""
    return next((form for form in forms if form.chosen), None)
