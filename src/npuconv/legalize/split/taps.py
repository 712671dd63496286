"""The taps of a window as input channels of a 1x1 convolution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from npuconv.legalize.split import limits
from npuconv.legalize.split.builder import Builder, Piece
from npuconv.legalize.split.layer import Layer, elements
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import Emit, FitSettings, LayerSplit, Part, Proposal
from npuconv.model import Tensor

_MOST_TAPS = 64  # number of Slices


@LayerSplit("taps as channels", (limits.KERNEL, limits.DILATION), after=("split-kernel",))
def join_taps(layer: Layer, demand: Demand, _settings: FitSettings) -> Iterator[Proposal]:
    """Convolve the cells under all taps at once: a Slice for each tap, side by side.

    The MACs stay the same, and nothing is rounded in between. Only if the device takes the Slices
    and the Concat: on the host every cell would cross once for each tap.
    """
    taps = math.prod(layer.kernel)
    if layer.group > 1 or layer.padded or not layer.sized or not 1 < taps <= _MOST_TAPS:
        return
    if demand.joins_slices:
        form = _form(layer)
        text = f"{taps} taps as {form.in_channels} channels"
        yield Proposal(text, (Part(form),), _build, moved=2 * elements(form.source))


def _form(layer: Layer) -> Layer:
    """Return the 1x1 convolution, with the strides of the layer."""
    inputs = layer.in_channels * math.prod(layer.kernel)
    extents = [((layer.cells(a) or 1) - 1) * layer.strides[a] + 1 for a in layer.axes]
    pointwise = replace(layer.with_kernel([1] * len(extents)), dilations=(1,) * len(extents))
    return pointwise.with_channels(inputs, layer.out_channels, 1).with_extents(extents)


def _build(builder: Builder, piece: Piece, emit: Emit) -> Tensor:
    layer, form = piece.layer, _form(piece.layer)
    slices = []
    for tap in product(*map(range, layer.kernel)):
        starts = [t * d for t, d in zip(tap, layer.dilations, strict=True)]
        extents = zip(starts, form.extents, strict=True)
        bounds = [(a + 2, start, start + (n or 1), 1) for a, (start, n) in enumerate(extents)]
        slices.append(builder.slice(piece.source, bounds))

    def taps_first(array: np.ndarray) -> np.ndarray:
        """Return weights [O, I, ...] as [O, taps * I, 1, ...]."""
        return np.moveaxis(array, 1, -1).reshape(form.weight)

    weight = builder.weights(piece, ("taps", layer.kernel), taps_first)
    return emit(replace(piece, layer=form, source=builder.concat(slices, 1), weight=weight))
