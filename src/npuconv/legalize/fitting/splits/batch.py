"""One convolution for each image, or for a few of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
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


def split_batch(layer: Layer, demand: Demand, _settings: FitSettings) -> Iterator[Proposal]:
    """Convolve the images of a batch one by one, or a few at a time; exact."""
    batch = layer.source[0]
    if batch is None or batch < 2 or not demand.breaks(layer, limits.BATCH):
        return
    for size in sizes(batch):
        if size < batch and not demand.breaks(_of(layer, size), limits.BATCH):
            moved = elements(layer.source) + elements(layer.output)
            parts = cut(batch, size, partial(_of, layer), shared=True)
            text = f"{size} of {batch} images at a time"
            yield Proposal("batch", text, parts, partial(_build, size=size), moved)
            return


def _of(layer: Layer, size: int) -> Layer:
    return replace(layer, source=(size, *layer.source[1:]))


def _build(builder: Builder, piece: Piece, emit: Emit, *, size: int) -> Tensor:
    """Slice, convolve, put together."""
    made = []
    for start, stop in chunks(piece.layer.source[0] or 0, size):
        source = builder.slice(piece.source, [(0, start, stop, 1)])
        made.append(emit(piece.with_layer(_of(piece.layer, stop - start), source)))
    return builder.concat(made, 0)
