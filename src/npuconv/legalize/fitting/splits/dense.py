"""One convolution with zeros between the groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from npuconv.legalize.fitting import limits
from npuconv.legalize.fitting.proposal import Part, Proposal
from npuconv.model.conv import block_diagonal

if TYPE_CHECKING:
    from npuconv.legalize.fitting.builder import Builder, Piece
    from npuconv.legalize.fitting.layer import Layer
    from npuconv.legalize.fitting.limits import Demand
    from npuconv.legalize.fitting.proposal import Emit
    from npuconv.legalize.fitting.settings import FitSettings
    from npuconv.model.types import Tensor


_ABOUT = (limits.GROUP,)


def make_dense(layer: Layer, demand: Demand, _settings: FitSettings) -> Iterator[Proposal]:
    """Write zeros for what the groups leave out: ``group`` times the MACs; exact."""
    if layer.group < 2 or not demand.breaks(layer, *_ABOUT):
        return
    yield Proposal("dense", "zeros between the groups", (Part(densified(layer)),), _build)


def densified(layer: Layer) -> Layer:
    """The layer with one group."""
    whole = layer.with_channels(layer.in_channels, layer.out_channels, 1)
    return replace(whole, uniform=layer.uniform and layer.group == 1)


def _build(builder: Builder, piece: Piece, emit: Emit) -> Tensor:
    group = piece.layer.group
    weight = builder.weights(piece, ("dense", group), partial(block_diagonal, group=group))
    return emit(replace(piece, layer=densified(piece.layer), weight=weight))
