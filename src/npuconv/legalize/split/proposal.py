"""Exact forms of a layer, as rewrites propose them, and numbers in parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from npuconv.legalize.split.builder import Bound, Builder, Piece
from npuconv.legalize.split.layer import Layer
from npuconv.legalize.split.limits import Demand
from npuconv.model.types import Tensor

Emit = Callable[[Piece], Tensor]
Build = Callable[[Builder, Piece, Emit], Tensor]
MOST_ADDED = 64  # channels beyond those that are wanted, to reach what a device takes


@dataclass(frozen=True)
class Part:
    """Layers of one kind in a proposal."""

    layer: Layer
    count: int = 1
    weights: int = 1  # different weights among them: tiles share theirs


@dataclass(frozen=True)
class Term:
    """A convolution of a sum.

    Attributes:
        layer: the convolution, without a bias.
        bounds: bounds of the input cells that it reads.
        index: slices of the weights of the whole layer, for each axis.
    """

    layer: Layer
    bounds: tuple[Bound, ...]
    index: tuple[slice, ...]


Terms = Callable[[Layer], Sequence[Term]]


@dataclass(frozen=True)
class Proposal:
    """A layer as other layers, with the nodes around them.

    Attributes:
        split: name of the rewrite.
        text: for people, as ``2x2 tiles of 16x16``.
        parts: the new layers.
        build: function that writes the nodes; gets the original layer and a builder of parts.
        moved: elements that are sliced, padded, reordered or concatenated.
        summed: partial sums that are added; 0 where the form is exact in int8 too.
        adds_bias: whether the sum adds the bias, which no accumulator includes.
        cascaded: whether one layer reads the rounded results of another.
        bias_channels: whether constant input channels replace the bias.
        accumulated: whether the device adds the sums in int32.
        terms: of the sum that it is, for a layer.
    """

    split: str
    text: str
    parts: tuple[Part, ...]
    build: Build
    moved: int = 0
    summed: int = 0
    adds_bias: bool = False
    cascaded: bool = False
    bias_channels: bool = False
    accumulated: bool = False
    terms: Terms | None = None


@dataclass(frozen=True)
class FitSettings:
    """Bounds of the search, and default costs for targets that state none.

    Attributes:
        most_layers: different layers that are looked at for one convolution.
        most_convolutions: that one convolution may become.
        choices: sizes that one rewrite proposes for one layer.
        convolution: cost to start a convolution, in multiply-accumulates; more than 0, so that
            fewer convolutions are preferred at the same MACs.
        moved_element: of an element that is sliced, padded or concatenated, in MACs.
        sum_share: of partial sums, as a share of the MACs of the layer. Each is rounded to
            int8, which costs up to 1 dB: an exact form may take twice the MACs.
        sum_part: the same, for every part beyond the first.
        added_bias: of an Add of a bias behind, as a share of the MACs of the layer. It costs 2 to
            7 dB (``benchmarks/targets.py splits --only "no bias"``).
        bias_channels: input channels of a constant that replace a bias, per square root of the
            number of weights of an output; one more channel holds the remainder.
    """

    most_layers: int = 4000
    most_convolutions: int = 4096
    choices: int = 3
    convolution: float = 1000.0
    moved_element: float = 1.0
    sum_share: float = 1.0
    sum_part: float = 0.05
    added_bias: float = 3.0
    bias_channels: float = 0.25


DEFAULT = FitSettings()
# A rewrite: proposes forms of a layer that breaks limits, the most promising first.
Split = Callable[[Layer, Demand, FitSettings], Iterator[Proposal]]


def chunks(total: int, size: int) -> list[tuple[int, int]]:
    """Start and stop of each part; the last may be smaller."""
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def even(total: int, parts: int) -> list[tuple[int, int]]:
    """Start and stop of so many parts, none more than one larger than another."""
    edges = [total * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def sizes(total: int, multiple: int = 1) -> Iterator[int]:
    """Sizes of parts, from ``total`` down to 1: the smallest size for each number of parts.

    Sizes are rounded up to a multiple of ``multiple``, at most ``total``.
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
    whole, remainder = divmod(total, size)
    parts = [Part(form(size), whole, 1 if shared else whole)] if whole else []
    return (*parts, *([Part(form(remainder))] if remainder else []))


def add_terms(builder: Builder, piece: Piece, emit: Emit, *, terms: Terms) -> Tensor:
    """Write the convolutions of a sum, the first with the bias, and their Sum."""
    sums, all_terms = [], list(terms(piece.layer))
    for number, term in enumerate(all_terms):
        form = replace(term.layer, bias=piece.layer.bias and number == 0)
        weight = builder.weights(piece, ("term", repr(term.index)), itemgetter(term.index))
        source = builder.slice(piece.source, term.bounds)
        part = replace(
            piece, layer=form, source=source, weight=weight, bias=piece.bias if form.bias else None
        )
        sums.append(emit(replace(part, summed=piece.summed or len(all_terms) > 1)))
    return builder.add(sums)


def with_bias_once(parts: Sequence[Part], *, bias: bool) -> tuple[Part, ...]:
    """The parts of a sum: a bias, if there is one, is added by the first alone."""
    first, *later = [replace(p, layer=replace(p.layer, bias=False)) for p in parts]
    if not bias:
        return (first, *later)
    biased = Part(replace(first.layer, bias=True))
    fewer = (replace(first, count=first.count - 1, weights=first.weights - 1),)
    return (biased, *(fewer if first.count > 1 else ()), *later)
