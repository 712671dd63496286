"""Input channels in parts, whose sums are added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from npuconv.legalize.fitting import limits
from npuconv.legalize.fitting.chunks import chunks, cut, sizes, with_bias_once
from npuconv.legalize.fitting.layer import elements
from npuconv.legalize.fitting.proposal import Proposal

if TYPE_CHECKING:
    from npuconv.legalize.fitting.builder import Builder, Piece
    from npuconv.legalize.fitting.layer import Layer
    from npuconv.legalize.fitting.limits import Demand
    from npuconv.legalize.fitting.proposal import Emit
    from npuconv.legalize.fitting.settings import FitSettings
    from npuconv.model.types import Tensor


def split_inputs(layer: Layer, demand: Demand, _settings: FitSettings) -> Iterator[Proposal]:
    """Convolve some input channels at a time and add the sums."""
    if layer.group > 1 or not demand.breaks(layer, limits.INPUTS):
        return
    channels = layer.in_channels
    every = [s for s in sizes(channels, demand.multiple("in_c")) if s < channels]
    fitting = next((s for s in every if not demand.breaks(_of(layer, s), limits.INPUTS)), None)
    # Where none is enough by itself, the others of a product must give way.
    for size in dict.fromkeys(s for s in (fitting, *every[-1:]) if s is not None):
        parts = with_bias_once(cut(channels, size, partial(_of, layer)), bias=layer.bias)
        text = f"{size} of {channels} input channels at a time"
        summed = elements(layer.output) * sum(part.count for part in parts)
        build = partial(_build, size=size)
        yield Proposal("inputs", text, parts, build, elements(layer.source), summed)


def _of(layer: Layer, size: int) -> Layer:
    return layer.with_channels(size, layer.out_channels, 1)


def _form(layer: Layer, number: int, size: int) -> Layer:
    return replace(_of(layer, size), bias=layer.bias and number == 0)


def _build(builder: Builder, piece: Piece, emit: Emit, *, size: int) -> Tensor:
    made = []
    for number, (start, stop) in enumerate(chunks(piece.layer.in_channels, size)):
        form = _form(piece.layer, number, stop - start)
        columns = (slice(None), slice(start, stop))
        weight = builder.weights(piece, ("columns", start, stop), itemgetter(columns))
        source = builder.slice(piece.source, [(1, start, stop, 1)])
        bias = piece.bias if form.bias else None
        part = replace(piece, layer=form, source=source, weight=weight, bias=bias)
        made.append(emit(replace(part, first=piece.first and number == 0, summed=True)))
    return builder.add(made)
