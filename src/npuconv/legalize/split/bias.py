"""A bias of zeros, an Add behind the convolution, or input channels of a constant."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from npuconv.amounts import count
from npuconv.legalize.split import limits
from npuconv.legalize.split.builder import BiasChannels, Builder, Piece
from npuconv.legalize.split.layer import Layer, elements
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import MOST_ADDED, Emit, LayerSplit, Part, Proposal, Rounding
from npuconv.model import Tensor
from npuconv.records import replace

# Input channels of a constant that replace a bias, per square root of the number of weights of an
# output; one more channel holds the remainder.
_CHANNELS_PER_ROOT = 0.25


@LayerSplit("bias", (limits.BIAS,), after=("split-image",))
def write_zero_bias(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Write a bias of zeros if the device requires a bias."""
    form = replace(layer, bias=True)
    if not layer.bias and not demand.breaks(form, limits.BIAS):
        yield Proposal("bias of zeros", (Part(form),), bias=lambda zeros: zeros)


@LayerSplit("bias", (limits.BIAS,), after=("write-zero-bias",), rounding=Rounding.BIAS)
def add_bias_behind(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Add the bias behind if the device supports none: on the device if it lists Add, or the host.

    In int8 the sum is rounded once more.
    """
    form = replace(layer, bias=False)
    if layer.bias and not demand.breaks(form, limits.BIAS):
        yield Proposal("Add behind", (Part(form),), _add_behind, elements(layer.output))


def _add_behind(builder: Builder, piece: Piece, emit: Emit) -> Tensor:
    shape = (1, -1, *[1] * len(piece.layer.strides))
    bias = builder.biases(piece, "behind", lambda values: values.reshape(shape))
    inner = replace(piece, layer=replace(piece.layer, bias=False), bias=None)
    return builder.add([emit(inner), bias])


@LayerSplit("bias", (limits.BIAS,), after=("add-bias-behind",), rounding=Rounding.BIAS_CHANNELS)
def bias_as_channels(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Add channels of a constant to the input if the device supports no bias.

    One tap reads them, with weights that make up the bias. That tap must never lie in the
    padding. Where none is inside for all outputs, a Pad in front makes the border before the
    channels are added.
    """
    is_open = None in layer.source
    can_add = demand.pads_channels if is_open else demand.joins_constants
    if not layer.bias or layer.group > 1 or not can_add:
        return
    if demand.breaks(replace(layer, bias=False), limits.BIAS):
        return
    taps: tuple[int | None, ...] = (0,) * len(layer.kernel)
    taps, inner = _unpadded_taps(layer) if layer.padded else taps, layer
    if None in taps:
        inner = layer.without_pads()
    tap = tuple(index or 0 for index in taps)
    # A bias grows with the sums, by the square root of their length. A channel of 127 with
    # weights of 127 adds 127 * 127 steps of the accumulator.
    least = 1 + math.ceil(_CHANNELS_PER_ROOT * math.sqrt(math.prod(layer.weight[1:])))
    counts = (*range(least, least + MOST_ADDED + 1), *range(least - 1, 0, -1))  # more first
    wider = (inner.with_channels(inner.in_channels + n, inner.out_channels, 1) for n in counts)
    forms = (replace(form, bias=False, uniform=False) for form in wider)
    form = next((f for f in forms if not demand.breaks(f, limits.INPUTS, limits.BIAS)), None)
    if form is None:
        return
    added = count(form.in_channels - layer.in_channels, "input channel")
    moved = elements(form.source) + (elements(inner.source) if inner.pads != layer.pads else 0)
    build = partial(_build, form=form, tap=int(np.ravel_multi_index(tap, layer.kernel)))
    yield Proposal(f"bias as {added} of a constant", (Part(form),), build, moved)


def _unpadded_taps(layer: Layer) -> tuple[int | None, ...]:
    """Return a tap of each axis that reads no padding for any output; None if all taps do."""
    taps: list[int | None] = []
    if not layer.sized:
        return (None,) * len(layer.kernel)
    for axis in layer.axes:
        step, (before, _) = layer.dilations[axis], layer.pads[axis]
        first, last = -before, ((layer.cells(axis) or 1) - 1) * layer.strides[axis] - before
        spans = ((tap, first + tap * step, last + tap * step) for tap in range(layer.kernel[axis]))
        extent = layer.extents[axis] or 0
        taps.append(next((tap for tap, low, high in spans if low >= 0 and high < extent), None))
    return tuple(taps)


def _build(builder: Builder, piece: Piece, emit: Emit, *, form: Layer, tap: int) -> Tensor:
    layer, source = piece.layer, piece.source
    if form.pads != layer.pads:
        source = builder.pad(source, {a + 2: pair for a, pair in enumerate(layer.pads)})
    added, bias = form.in_channels - layer.in_channels, builder.bias_values(piece)
    if builder.mode == "int8":
        inner = layer if form.pads == layer.pads else layer.without_pads()
        channels = BiasChannels(added, tap, padded=None in layer.source)
        return builder.layer(piece.with_layer(inner, source), bias_channels=channels)

    def extended() -> np.ndarray:
        """Each channel has its share of the bias, at one tap."""
        more = np.zeros((len(bias), added, math.prod(layer.kernel)), bias.dtype)
        more[:, :, tap] = bias[:, None] / added
        more = more.reshape(len(bias), added, *layer.kernel)
        return np.concatenate([piece.array(), more], axis=1)

    key = ("bias channels", added, tap)
    weight = builder.constant(piece, key, extended)
    wide = builder.with_ones(piece, source, added)
    return emit(replace(piece, layer=form, source=wide, weight=weight, bias=None))
