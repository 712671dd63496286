"""Channels of zeros, where the device takes multiples of some number only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from npuconv.legalize.fitting import limits
from npuconv.legalize.fitting.layer import elements
from npuconv.legalize.fitting.proposal import Part, Proposal

if TYPE_CHECKING:
    from npuconv.legalize.fitting.builder import Builder, Piece
    from npuconv.legalize.fitting.layer import Layer
    from npuconv.legalize.fitting.limits import Demand
    from npuconv.legalize.fitting.proposal import Emit
    from npuconv.legalize.fitting.settings import FitSettings
    from npuconv.model.types import Tensor


_ABOUT = (limits.INPUTS, limits.OUTPUTS)
_MOST = 64  # channels that are added


def add_channels(layer: Layer, demand: Demand, _settings: FitSettings) -> Iterator[Proposal]:
    """Add channels of zeros to the input, and to the output, where a Slice cuts them off; exact.

    Of a depthwise convolution whole groups are added.
    """
    if not demand.breaks(layer, *_ABOUT) or layer.group not in (1, layer.in_channels):
        return
    inputs, outputs = layer.in_channels, layer.out_channels
    sizes = {"in_c": inputs, "weight_c": layer.weight[1], "out_c": outputs, "weight_n": outputs}
    if any(demand.exceeds(fact, size) for fact, size in sizes.items()):
        return
    form = _grouped(layer, demand) if layer.group > 1 else _plain(layer, demand)
    if form is None or form == layer:
        return
    more, made = form.in_channels - layer.in_channels, form.out_channels - layer.out_channels
    moved = (elements(form.source) if more else 0) + (elements(form.output) if made else 0)
    text = f"{more} input and {made} output channels of zeros"
    build = partial(_build, form=form)
    yield Proposal("zero channels", text, (Part(form),), build, moved)


def _plain(layer: Layer, demand: Demand) -> Layer | None:
    """The next larger numbers of channels that the device takes, each by itself."""
    form: Layer | None = layer
    if demand.breaks(layer, limits.INPUTS):
        every = (layer.with_channels(layer.in_channels + n, layer.out_channels, 1)
                 for n in range(_MOST + 1))  # fmt: skip
        form = next((f for f in every if not demand.breaks(f, limits.INPUTS)), None)
    if form is not None and demand.breaks(form, limits.OUTPUTS):
        wide = form
        every = (wide.with_channels(wide.in_channels, wide.out_channels + n, 1)
                 for n in range(_MOST + 1))  # fmt: skip
        form = next((f for f in every if not demand.breaks(f, limits.OUTPUTS)), None)
    return form


def _grouped(layer: Layer, demand: Demand) -> Layer | None:
    each = layer.out_channels // layer.group
    every = (layer.with_channels(n, n * each, n)
             for n in range(layer.group, layer.group + _MOST + 1))  # fmt: skip
    return next((f for f in every if not demand.breaks(f, *_ABOUT)), None)


def _build(builder: Builder, piece: Piece, emit: Emit, *, form: Layer) -> Tensor:
    layer = piece.layer
    grown = [(0, b - a) for a, b in zip(layer.weight, form.weight, strict=True)]
    key = ("channels", form.weight, form.group)
    weight = builder.weights(piece, key, partial(np.pad, pad_width=grown))
    bias = piece.bias
    if bias is not None:
        values, last = builder.bias_values(piece), grown[0]
        bias = builder.biases(piece, key, lambda: np.pad(values, last))
    source = builder.pad(piece.source, {1: (0, form.in_channels - layer.in_channels)})
    result = emit(replace(piece, layer=form, source=source, weight=weight, bias=bias))
    return builder.slice(result, [(1, 0, layer.out_channels, 1)])
