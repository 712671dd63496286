"""Fewer groups in one convolution."""

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
from npuconv.legalize.fitting.splits.dense import densified

if TYPE_CHECKING:
    from npuconv.legalize.fitting.builder import Builder, Piece
    from npuconv.legalize.fitting.layer import Layer
    from npuconv.legalize.fitting.limits import Demand
    from npuconv.legalize.fitting.proposal import Emit
    from npuconv.legalize.fitting.settings import FitSettings
    from npuconv.model.types import Tensor


_ABOUT = (limits.GROUP, limits.INPUTS, limits.OUTPUTS)


def split_groups(layer: Layer, demand: Demand, _settings: FitSettings) -> Iterator[Proposal]:
    """Convolve some of the groups at a time; exact.

    As many as the device takes at once, as groups or as one convolution with zeros between
    them, or each by itself.
    """
    if layer.group < 2 or not demand.breaks(layer, *_ABOUT):
        return
    fewer = [size for size in sizes(layer.group) if size < layer.group]
    grouped = next((n for n in fewer if not demand.breaks(_of(layer, n), *_ABOUT)), None)
    dense = next((n for n in fewer if not demand.breaks(_dense(layer, n), *_ABOUT)), None)
    for size in dict.fromkeys(n for n in (grouped, dense, 1) if n is not None):
        parts = cut(layer.group, size, partial(_of, layer))
        moved = elements(layer.source) + elements(layer.output)
        text = f"{size} of {layer.group} groups at a time"
        yield Proposal("groups", text, parts, partial(_build, size=size), moved)


def _of(layer: Layer, groups: int) -> Layer:
    outputs = layer.out_channels // layer.group
    return layer.with_channels(groups * layer.weight[1], groups * outputs, groups)


def _dense(layer: Layer, groups: int) -> Layer:
    return densified(_of(layer, groups))


def _build(builder: Builder, piece: Piece, emit: Emit, *, size: int) -> Tensor:
    layer, made = piece.layer, []
    inputs, outputs = layer.weight[1], layer.out_channels // layer.group
    for start, stop in chunks(layer.group, size):
        rows = slice(start * outputs, stop * outputs)
        key = ("rows", rows.start, rows.stop)
        weight = builder.weights(piece, key, itemgetter(rows))
        bias = piece.bias
        if bias is not None:
            values = builder.bias_values(piece)
            bias = builder.biases(piece, key, lambda rows=rows, v=values: v[rows])  # type: ignore[misc]
        source = builder.slice(piece.source, [(1, start * inputs, stop * inputs, 1)])
        form = _of(layer, stop - start)
        made.append(emit(replace(piece, layer=form, source=source, weight=weight, bias=bias)))
    return builder.concat(made, 1)
