"""Cutting a number of cells, channels or images into parts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
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


def counted(layers: Iterable[Layer], *, shared: bool = True) -> tuple[Part, ...]:
    """The layers as parts of a proposal, those that are equal counted.

    Args:
        layers: one after the other.
        shared: whether equal ones read the same weights.
    """
    counts = Counter(layers)
    return tuple(Part(layer, n, 1 if shared else n) for layer, n in counts.items())
