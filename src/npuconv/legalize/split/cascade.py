"""An average over many cells as averages of averages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from npuconv.legalize.split import limits
from npuconv.legalize.split.builder import Builder, Piece
from npuconv.legalize.split.layer import Layer, elements, times
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import Emit, FitSettings, LayerSplit, Part, Proposal, Rounding
from npuconv.model import Tensor

_Factors = tuple[tuple[int, int], ...]  # per axis: kernel of the first average, and of the second


@LayerSplit(
    "cascade", (limits.KERNEL,), after=("even-pads",), rounding=Rounding.RESULTS, repeats=True
)
def cascade_average(layer: Layer, demand: Demand, settings: FitSettings) -> Iterator[Proposal]:
    """Average blocks first, then the averages: a large depthwise kernel of equal weights.

    Zeros behind the image make the kernel divisible where the output has one cell. Exact in
    float; in int8 the averages in between are rounded, each at its own scale.
    """
    if not layer.uniform or layer.group != layer.in_channels or layer.padded:
        return
    if layer.weight[1] != 1 or not layer.sized:
        return
    options = [_factors(layer, axis) for axis in layer.axes]
    ways = [s for s in product(*options) if any(first > 1 for first, _ in s)]
    pairs = {factors: _layers(layer, factors) for factors in ways}
    fitting = [factors for factors in ways if not demand.breaks(pairs[factors][0], limits.KERNEL)]
    fitting.sort(key=lambda s: (demand.breaks(pairs[s][1], limits.KERNEL), _rank(s)))
    for factors in fitting[: settings.choices]:
        first, second = pairs[factors]
        text = f"average of {times([a for a, _ in factors])}, then of {times(second.kernel)}"
        parts = (Part(first), Part(second))
        build = partial(_build, factors=factors)
        yield Proposal(text, parts, build, elements(first.source))


def _factors(layer: Layer, axis: int) -> list[tuple[int, int]]:
    kernel, stride = layer.kernel[axis], layer.strides[axis]
    if layer.dilations[axis] != 1:
        return [(1, kernel)]
    if layer.cells(axis) == 1 and kernel == layer.extents[axis]:
        # For each number of blocks, the factors with the fewest cells.
        seconds = dict.fromkeys(-(-kernel // first) for first in range(1, kernel + 1))
        return [(-(-kernel // second), second) for second in seconds]
    common = math.gcd(kernel, stride)
    return [(first, kernel // first) for first in range(1, common + 1) if common % first == 0]


def _rank(factors: _Factors) -> tuple[int, int]:
    """Return the sort key: few added zeros first, then averages of similar sizes."""
    return sum(first * second for first, second in factors), sum(abs(a - b) for a, b in factors)


def _layers(layer: Layer, factors: _Factors) -> tuple[Layer, Layer]:
    """The average of blocks without overlap, and the average of the block averages."""
    firsts, seconds = [a for a, _ in factors], [b for _, b in factors]
    extents = [
        max(e or 1, a * b) if layer.cells(axis) == 1 else e
        for axis, (e, (a, b)) in enumerate(zip(layer.extents, factors, strict=True))
    ]
    blocks = replace(
        layer.with_kernel(firsts).with_extents(extents), strides=tuple(firsts), bias=False,
        weight=(layer.in_channels, 1, *firsts),
    )  # fmt: skip
    strides = tuple(
        1 if layer.cells(axis) == 1 else s // a
        for axis, (s, a) in enumerate(zip(layer.strides, firsts, strict=True))
    )
    cells = [blocks.cells(axis) for axis in layer.axes]
    return blocks, replace(layer.with_kernel(seconds).with_extents(cells), strides=strides)


def _build(builder: Builder, piece: Piece, emit: Emit, *, factors: _Factors) -> Tensor:
    layer = piece.layer
    first, second = _layers(layer, factors)
    count = int(np.prod([a for a, _ in factors]))
    array = piece.array()
    mean = builder.constant(
        piece, ("blocks", factors), lambda: np.full(first.weight, 1 / count, array.dtype)
    )
    amounts = {
        axis + 2: (0, max((w or 0) - (e or 0), 0))
        for axis, (e, w) in enumerate(zip(layer.extents, first.extents, strict=True))
    }
    blocks = emit(replace(
        piece, layer=first, source=builder.pad(piece.source, amounts), weight=mean, bias=None
    ))  # fmt: skip
    factor = array.reshape(-1)[0] * count
    weight = builder.constant(
        piece, ("rest", factors), lambda: np.full(second.weight, factor, array.dtype)
    )
    return emit(replace(piece, layer=second, source=blocks, weight=weight))
