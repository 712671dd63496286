"""Fewer channels at a time, fewer groups, or more of either with zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter

import numpy as np

from npuconv.legalize.split import limits
from npuconv.legalize.split.builder import Builder, Piece
from npuconv.legalize.split.layer import Layer, elements
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import (
    MOST_ADDED,
    Emit,
    LayerSplit,
    Part,
    Proposal,
    Rounding,
    Term,
    chunks,
    cut,
    sizes,
    with_bias_once,
)
from npuconv.model import Tensor
from npuconv.model.conv import block_diagonal
from npuconv.records import replace

_GROUPS = (limits.GROUP, limits.INPUTS, limits.OUTPUTS)
_CHANNELS = (limits.INPUTS, limits.OUTPUTS)


@LayerSplit("inputs", (limits.INPUTS,), after=("make-dense",), rounding=Rounding.SUMS)
def split_inputs(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Convolve some input channels at a time and add the sums."""
    if layer.group > 1:
        return
    channels, form = layer.in_channels, partial(_fewer_inputs, layer)
    for size in _sizes(channels, demand, "in_c", lambda s: demand.breaks(form(s), limits.INPUTS)):
        parts = with_bias_once(cut(channels, size, form), bias=layer.bias)
        text = f"{size} of {channels} input channels at a time"
        moved = elements(layer.source)
        yield Proposal(text, parts, moved=moved, terms=partial(_terms, size=size))


def _sizes(
    channels: int, demand: Demand, fact: str, breaks: Callable[[int], object]
) -> Iterable[int]:
    """The largest size that breaks no limit, and the smallest.

    Where none is enough by itself, the others of a product must give way.
    """
    candidates = [s for s in sizes(channels, demand.multiple(fact)) if s < channels]
    fitting = next((s for s in candidates if not breaks(s)), None)
    return dict.fromkeys(s for s in (fitting, *candidates[-1:]) if s is not None)


def _fewer_inputs(layer: Layer, size: int) -> Layer:
    return layer.with_channels(size, layer.out_channels, 1)


def _terms(layer: Layer, *, size: int) -> list[Term]:
    kernel = (slice(None),) * len(layer.kernel)
    return [
        Term(
            replace(_fewer_inputs(layer, stop - start), bias=False),
            ((1, start, stop, 1),),
            (slice(None), slice(start, stop), *kernel),
        )
        for start, stop in chunks(layer.in_channels, size)
    ]


@LayerSplit("outputs", (limits.OUTPUTS,), after=("split-inputs",))
def split_outputs(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Make some output channels at a time."""
    if layer.group > 1:
        return
    channels, form = layer.out_channels, partial(_fewer_outputs, layer)
    for size in _sizes(channels, demand, "out_c", lambda s: demand.breaks(form(s), limits.OUTPUTS)):
        text = f"{size} of {channels} output channels at a time"
        build = partial(_outputs_side_by_side, size=size)
        parts = cut(channels, size, form)
        yield Proposal(text, parts, build, elements(layer.output))


def _fewer_outputs(layer: Layer, size: int) -> Layer:
    return layer.with_channels(layer.in_channels, size, 1)


def _outputs_side_by_side(builder: Builder, piece: Piece, emit: Emit, *, size: int) -> Tensor:
    results = []
    for start, stop in chunks(piece.layer.out_channels, size):
        form = _fewer_outputs(piece.layer, stop - start)
        results.append(emit(replace(_rows(builder, piece, slice(start, stop)), layer=form)))
    return builder.concat(results, 1)


def _rows(builder: Builder, piece: Piece, rows: slice) -> Piece:
    """Return the weights and the bias of some output channels."""
    key, bias = ("rows", rows.start, rows.stop), piece.bias
    weight = builder.weights(piece, key, itemgetter(rows))
    if bias is not None:
        bias = builder.biases(piece, key, itemgetter(rows))
    return replace(piece, weight=weight, bias=bias)


@LayerSplit("split", (*_GROUPS, limits.BIAS), after=("enlarge-kernel",))
def split_groups(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Convolve some of the groups at a time.

    As many as the device takes at once, as groups or as one convolution with zeros between
    them, or each by itself.
    """
    if layer.group < 2 or not _wants_other_groups(layer, demand, *_GROUPS):
        return
    fewer = [size for size in sizes(layer.group) if size < layer.group]
    grouped = next((n for n in fewer if not demand.breaks(fewer_groups(layer, n), *_GROUPS)), None)
    forms = ((n, _densified(fewer_groups(layer, n))) for n in fewer)
    dense = next((n for n, form in forms if not demand.breaks(form, *_GROUPS)), None)
    for size in dict.fromkeys(n for n in (grouped, dense, 1) if n is not None):
        parts = cut(layer.group, size, partial(fewer_groups, layer))
        moved = elements(layer.source) + elements(layer.output)
        text = f"{size} of {layer.group} groups at a time"
        yield Proposal(text, parts, partial(groups_side_by_side, size=size), moved)


def _wants_other_groups(layer: Layer, demand: Demand, *about: str) -> bool:
    """Return whether groups break a limit, or a bias that only a dense convolution can have."""
    bias = layer.bias and not demand.adds and demand.breaks(layer, limits.BIAS)
    return bias or demand.breaks(layer, *about)


def fewer_groups(layer: Layer, groups: int) -> Layer:
    """Return the layer of some of the groups; each channel of a pool is a group."""
    outputs = layer.out_channels // layer.group
    return layer.with_channels(groups * layer.weight[1], groups * outputs, groups)


def groups_side_by_side(builder: Builder, piece: Piece, emit: Emit, *, size: int) -> Tensor:
    """Write layers of some of the groups each, and the Concat of their results."""
    layer, results, part = piece.layer, [], piece
    inputs, outputs = layer.weight[1], layer.out_channels // layer.group
    for start, stop in chunks(layer.group, size):
        if layer.op == "Conv":  # a pool has no weights
            part = _rows(builder, piece, slice(start * outputs, stop * outputs))
        source = builder.slice(piece.source, [(1, start * inputs, stop * inputs, 1)])
        results.append(emit(part.with_layer(fewer_groups(layer, stop - start), source)))
    return builder.concat(results, 1)


@LayerSplit("dense", (*_GROUPS, limits.BIAS), after=("split-groups",))
def make_dense(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Write zeros between the groups: ``group`` times the MACs."""
    if layer.group < 2 or not _wants_other_groups(layer, demand, *_GROUPS):
        return
    form = _densified(layer)
    if form.parameters() <= demand.most_weights:
        weights = partial(block_diagonal, group=layer.group)
        yield Proposal("zeros between the groups", (Part(form),), weights=weights)


def _densified(layer: Layer) -> Layer:
    dense = layer.with_channels(layer.in_channels, layer.out_channels, 1)
    return replace(dense, uniform=layer.uniform and layer.group == 1)


@LayerSplit("zero channels", _CHANNELS, after=("split-outputs",))
def add_channels(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Add channels of zeros to the input, and to the output, where a Slice cuts them off.

    In a depthwise convolution complete groups are added.
    """
    if layer.group not in (1, layer.in_channels):
        return
    inputs, outputs = layer.in_channels, layer.out_channels
    sizes = {"in_c": inputs, "weight_c": layer.weight[1], "out_c": outputs, "weight_n": outputs}
    if any(demand.exceeds(fact, size) for fact, size in sizes.items()):
        return
    form = _grouped(layer, demand) if layer.group > 1 else _plain(layer, demand)
    if form is None or form == layer:
        return
    more, extra = form.in_channels - layer.in_channels, form.out_channels - layer.out_channels
    moved = (elements(form.source) if more else 0) + (elements(form.output) if extra else 0)
    text = f"{more} input and {extra} output channels of zeros"
    widths = [(0, b - a) for a, b in zip(layer.weight, form.weight, strict=True)]
    yield Proposal(
        text, (Part(form),), moved=moved, pads={1: (0, more)},
        weights=partial(np.pad, pad_width=widths), bias=partial(np.pad, pad_width=widths[0]),
        bounds=[(1, 0, outputs, 1)],
    )  # fmt: skip


def _plain(layer: Layer, demand: Demand) -> Layer | None:
    """The next larger numbers of channels that the device takes, each by itself."""
    added = range(MOST_ADDED + 1)
    forms = (layer.with_channels(layer.in_channels + n, layer.out_channels, 1) for n in added)
    wide = next((f for f in forms if not demand.breaks(f, limits.INPUTS)), None)
    if wide is None:
        return None
    forms = (wide.with_channels(wide.in_channels, wide.out_channels + n, 1) for n in added)
    return next((f for f in forms if not demand.breaks(f, limits.OUTPUTS)), None)


def _grouped(layer: Layer, demand: Demand) -> Layer | None:
    multiplier = layer.out_channels // layer.group
    forms = (layer.with_channels(n, n * multiplier, n)
             for n in range(layer.group, layer.group + MOST_ADDED + 1))  # fmt: skip
    return next((f for f in forms if not demand.breaks(f, *_CHANNELS)), None)
