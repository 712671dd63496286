"""Padding by a Pad in front, or equal pads with a Slice behind."""

from __future__ import annotations

from collections.abc import Iterator

from npuconv.legalize.split import limits
from npuconv.legalize.split.builder import Bound
from npuconv.legalize.split.layer import Layer, elements, times
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import OPERATORS, LayerSplit, Part, Proposal
from npuconv.legalize.tools.layout import TO_THE_END
from npuconv.records import replace

# Topics of the ways that need an input without pads.
_NEED_NO_PADS = (limits.PADS, limits.STRIDE, limits.DILATION, limits.KERNEL, limits.EXTENT)


@LayerSplit("pads", _NEED_NO_PADS, after=("split-batch",))
def move_pads(layer: Layer, _demand: Demand) -> Iterator[Proposal]:
    """Pad in front of the convolution, with zeros.

    The Pad runs where the target lists it, else on the host. It is the first step of most other
    rewrites.
    """
    if layer.padded:
        bare = layer.without_pads()
        moved, pads = elements(bare.source), dict(enumerate(layer.pads, 2))
        yield Proposal("Pad in front", (Part(bare),), moved=moved, pads=pads)


@LayerSplit("pads", (limits.PADS,), after=("move-pads",), ops=OPERATORS, inserts=("Slice",))
def even_pads(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Pad each axis by the larger of its pads, or all by the largest, and cut off."""
    if not layer.padded:
        return
    largest = max(map(max, layer.pads))
    by_axis = tuple(max(pair) for pair in layer.pads)
    for pads in dict.fromkeys((by_axis, (largest,) * len(by_axis))):
        even = replace(layer, pads=tuple((pad, pad) for pad in pads))
        rows = zip(pads, layer.pads, layer.strides, strict=True)
        starts = [divmod(pad - begin, stride) for pad, (begin, _), stride in rows]
        can_cut = layer.sized or set(layer.strides) == {1}
        can_cut = can_cut and not any(remainder for _, remainder in starts)
        if even == layer or demand.breaks(even, limits.PADS) or not can_cut:
            continue
        bounds = list[Bound]()
        for axis, (start, _) in enumerate(starts):
            cells, end = layer.cells(axis), layer.pads[axis][1]
            stop = (end - pads[axis]) or TO_THE_END if cells is None else start + cells
            bounds.append((axis + 2, start, stop, 1))
        moved = elements(even.output) + elements(layer.output)
        text = f"pads {times(pads)}, then a Slice"
        yield Proposal(text, (Part(even),), moved=moved, bounds=bounds)
