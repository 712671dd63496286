"""Output channels in parts, put together again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from npuconv.legalize.fitting import limits
from npuconv.legalize.fitting.chunks import chunks, cut, sizes
from npuconv.legalize.fitting.layer import elements
from npuconv.legalize.fitting.proposal import Proposal

if TYPE_CHECKING:
    from npuconv.legalize.fitting.builder import Builder, Piece
    from npuconv.legalize.fitting.layer import Layer
    from npuconv.legalize.fitting.limits import Demand
    from npuconv.legalize.fitting.proposal import Emit
    from npuconv.legalize.fitting.settings import FitSettings
    from npuconv.model.types import Tensor


def split_outputs(layer: Layer, demand: Demand, _settings: FitSettings) -> Iterator[Proposal]:
    """Make some output channels at a time; exact."""
    if layer.group > 1 or not demand.breaks(layer, limits.OUTPUTS):
        return
    channels = layer.out_channels
    every = [s for s in sizes(channels, demand.multiple("out_c")) if s < channels]
    fitting = next((s for s in every if not demand.breaks(_of(layer, s), limits.OUTPUTS)), None)
    for size in dict.fromkeys(s for s in (fitting, *every[-1:]) if s is not None):
        text = f"{size} of {channels} output channels at a time"
        build = partial(_build, size=size)
        moved = elements(layer.output)
        yield Proposal("outputs", text, cut(channels, size, partial(_of, layer)), build, moved)


def _of(layer: Layer, size: int) -> Layer:
    return layer.with_channels(layer.in_channels, size, 1)


def _build(builder: Builder, piece: Piece, emit: Emit, *, size: int) -> Tensor:
    made = []
    for start, stop in chunks(piece.layer.out_channels, size):
        rows, key = slice(start, stop), ("rows", start, stop)
        weight = builder.weights(piece, key, itemgetter(rows))
        bias = piece.bias
        if bias is not None:
            values = builder.bias_values(piece)
            bias = builder.biases(piece, key, lambda rows=rows, v=values: v[rows])  # type: ignore[misc]
        form = _of(piece.layer, stop - start)
        made.append(emit(replace(piece, layer=form, weight=weight, bias=bias)))
    return builder.concat(made, 1)
