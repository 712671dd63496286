"""Cutting a number of cells, channels or images into parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from npuconv.legalize.fitting.proposal import Part

if TYPE_CHECKING:
    from npuconv.legalize.fitting.layer import Layer


def chunks(total: int, size: int) -> list[tuple[int, int]]:
    """Start and stop of each part; the last may be smaller."""
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def even(total: int, parts: int) -> list[tuple[int, int]]:
    """Start and stop of so many parts, none more than one larger than another."""
    edges = [total * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def sizes(total: int, multiple: int = 1) -> Iterator[int]:
    """Sizes of parts, from the whole down to one: of each number of parts the smallest.

    With ``multiple`` they are rounded up to one of it.
    """
    last = 0
    for parts in range(1, total + 1):
        size = -(-total // parts)
        size = min(-(-size // multiple) * multiple, total)
        if size != last:
            last = size
            yield size


def cut(
    total: int, size: int, form: Callable[[int], Layer], *, shared: bool = False
) -> tuple[Part, ...]:
    """The parts of a proposal that cuts channels, groups or images.

    Args:
        total: how many there are.
        size: how many of them a part takes; the last may have fewer.
        form: makes the layer of so many.
        shared: whether all parts of one size read the same weights.
    """
    whole, rest = divmod(total, size)
    parts = [Part(form(size), whole, 1 if shared else whole)] if whole else []
    return (*parts, *([Part(form(rest))] if rest else []))


def with_bias_once(parts: Sequence[Part], *, bias: bool) -> tuple[Part, ...]:
    """The parts of a sum: a bias, if there is one, is added by the first alone."""
    first, *rest = [replace(p, layer=replace(p.layer, bias=False)) for p in parts]
    if not bias:
        return (first, *rest)
    biased = Part(replace(first.layer, bias=True))
    fewer = (replace(first, count=first.count - 1, weights=first.weights - 1),)
    return (biased, *(fewer if first.count > 1 else ()), *rest)
