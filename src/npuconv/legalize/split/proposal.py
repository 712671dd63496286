"""Ways to split a layer, registered by their decorator, and the forms that they propose."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import itemgetter

from npuconv.legalize.split.builder import Bound, Builder, Move, Piece
from npuconv.legalize.split.layer import Layer, elements
from npuconv.legalize.split.limits import Demand
from npuconv.model import Tensor
from npuconv.records import dataclass, field, replace
from npuconv.registry import Registry, described, in_order

POOLS = ("MaxPool", "AveragePool")
OPERATORS = ("Conv", *POOLS)
Emit = Callable[[Piece], Tensor]
Build = Callable[[Builder, Piece, Emit], Tensor]
MOST_ADDED = 64  # largest number of channels added to reach a number that a device takes
MOST_CONVOLUTIONS = 4096  # largest number of convolutions in the place of a convolution
CHOICES = 3  # largest number of sizes that a way proposes for a layer


@dataclass(frozen=True)
class Part:
    """Layers of one kind in a proposal."""

    layer: Layer
    count: int = 1
    weights: int = 1  # number of different weights: tiles share their weights


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
        text: description, as ``2x2 tiles of 16x16``.
        parts: the new layers.
        build: function that writes the nodes; gets the original layer and a builder of parts.
        moved: elements that are sliced, padded, reordered or concatenated.
        terms: terms of a layer that is a sum, in place of ``build``.
        pads: zeros around the input of a single part, by axis; this and the next fields are in
            place of ``build``, too.
        weights: makes the weights of the part from the weights of the layer; None: no change.
        bias: makes the bias of the part from the bias of the layer, or from zeros.
        bounds: bounds of the result of the part.
    """

    text: str
    parts: tuple[Part, ...]
    build: Build | None = None
    moved: int = 0
    terms: Terms | None = None
    pads: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    weights: Move | None = None
    bias: Move | None = None
    bounds: Sequence[Bound] = ()

    @property
    def count(self) -> int:
        """Number of the new layers."""
        return sum(part.count for part in self.parts)

    def write(self, builder: Builder, piece: Piece, emit: Emit) -> Tensor:
        """Write the nodes; ``emit`` writes a part and returns its result."""
        if self.terms is not None:  # convolutions of a sum, the first with the bias, and their Sum
            sums, terms = [], self.terms(piece.layer)
            for number, term in enumerate(terms):
                form = replace(term.layer, bias=piece.layer.bias and number == 0)
                weight = builder.weights(piece, ("term", repr(term.index)), itemgetter(term.index))
                source = builder.slice(piece.source, term.bounds)
                part = piece.with_layer(form, source)
                bias, summed = piece.bias if form.bias else None, piece.summed or len(terms) > 1
                sums.append(emit(replace(part, weight=weight, bias=bias, summed=summed)))
            return builder.add(sums)
        if self.build is not None:
            return self.build(builder, piece, emit)
        (form,), weight, bias = (part.layer for part in self.parts), piece.weight, piece.bias
        if self.weights is not None:
            weight = builder.weights(piece, self.text, self.weights)
        if self.bias is not None and form.bias:
            bias = builder.biases(piece, self.text, self.bias)
        source = builder.pad(piece.source, self.pads)
        inner = replace(piece, layer=form, source=source, weight=weight, bias=bias)
        return builder.slice(emit(inner), self.bounds)


Propose = Callable[[Layer, Demand], Iterator[Proposal]]


class Rounding(StrEnum):
    """Values that int8 rounds in a split layer, and not in the layer itself."""

    NOTHING = "exact"
    SUMS = "partial sums"  # if there are several parts, and the device adds these in int8
    BIAS = "rounded once more"
    RESULTS = "rounded in between"  # one layer reads the results of another
    BIAS_CHANNELS = "exact, if not split further"


@dataclass(frozen=True)
class LayerSplit:
    """A way to split a layer, and the decorator that registers its function.

    Attributes:
        report_name: name in reports.
        topics: topics of limits; it is tried on layers that break any of these.
        after: names of the ways that are tried before it, of functions in kebab case. It works
            on their results, never the reverse: so the search ends, and no two orders of the
            same ways are looked at.
        ops: operators of its layers.
        rounding: values that int8 rounds once more.
        repeats: whether it is tried on its own results.
        inserts: operators around the parts of a pool, which the target has to list.
        function: proposes forms of a layer, the most promising first.
    """

    report_name: str
    topics: tuple[str, ...]
    after: tuple[str, ...] = ()
    ops: tuple[str, ...] = ("Conv",)
    rounding: Rounding = Rounding.NOTHING
    repeats: bool = False
    inserts: tuple[str, ...] = ()
    function: Propose = lambda *_arguments: iter(())

    def __call__(self, function: Propose) -> LayerSplit:
        """Register a function under its name in kebab case."""
        item = replace(self, function=function)
        SPLITS.add(function.__name__.replace("_", "-"), item)
        return item

    @property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        return " ".join(described(self.function).partition("\n\n")[0].split())

    def propose(self, layer: Layer, demand: Demand) -> Iterator[Proposal]:
        """Yield forms of a layer that breaks limits on the topics."""
        if layer.op in self.ops and demand.breaks(layer, *self.topics):
            yield from self.function(layer, demand)

    def sums(self, layer: Layer, proposal: Proposal) -> int:
        """Return the number of elements of all partial sums of a form."""
        if self.rounding is Rounding.SUMS and proposal.count > 1:
            return elements(layer.output) * proposal.count
        return elements(layer.output) if self.rounding is Rounding.BIAS else 0


SPLITS: Registry[LayerSplit] = Registry("npuconv.legalize.split")


def splits_of(op: str) -> tuple[LayerSplit, ...]:
    """Return the ways to split layers of an operator, in the order in which they are tried."""
    items = {name: item for name in SPLITS.names() if (item := SPLITS.get(name)) is not None}
    ordered = in_order({name: item.after for name, item in items.items()})
    return tuple(items[name] for name in ordered if op in items[name].ops)


def chunks(total: int, size: int) -> list[tuple[int, int]]:
    """Start and stop of each part; the last may be smaller."""
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def even(total: int, parts: int) -> list[tuple[int, int]]:
    """Start and stop of so many parts, whose sizes differ by at most 1."""
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
        total: number of rows, channels or images to divide.
        size: number for each part; the last part may have fewer.
        form: function that returns the layer for a number.
        shared: whether all parts of one size read the same weights.
    """
    quotient, remainder = divmod(total, size)
    parts = [Part(form(size), quotient, 1 if shared else quotient)] if quotient else []
    return (*parts, *([Part(form(remainder))] if remainder else []))


def with_bias_once(parts: Sequence[Part], *, bias: bool) -> tuple[Part, ...]:
    """The parts of a sum: only the first convolution has the bias of the layer."""
    first, *later = [replace(p, layer=replace(p.layer, bias=False)) for p in parts]
    if not bias:
        return (first, *later)
    biased = Part(replace(first.layer, bias=True))
    fewer = (replace(first, count=first.count - 1, weights=first.weights - 1),)
    return (biased, *(fewer if first.count > 1 else ()), *later)
