"""The window of a convolution: in parts, larger, without dilation, as channels, in averages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np

from npuconv.legalize.split import limits
from npuconv.legalize.split.builder import Bound, Builder, Piece
from npuconv.legalize.split.layer import Layer, elements, times
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import (
    CHOICES,
    MOST_CONVOLUTIONS,
    Emit,
    LayerSplit,
    Part,
    Proposal,
    Rounding,
    Term,
    even,
    sizes,
    with_bias_once,
)
from npuconv.legalize.split.stride import fit_extents
from npuconv.legalize.tools.layout import TO_THE_END
from npuconv.model import Tensor
from npuconv.records import replace

Taps = tuple[int, int, int]  # first, count and distance of taps along an axis
Cuts = tuple[tuple[Taps, ...], ...]  # parts of the kernel along each axis
_ABOUT = (limits.KERNEL, limits.DILATION, limits.STRIDE)
_LONGEST = 32  # largest number of taps along an axis of an enlarged kernel
_MOST_TAPS = 64  # largest number of Slices, one for each tap
_Factors = tuple[tuple[int, int], ...]  # per axis: kernel of the first average, and of the second


@LayerSplit("kernel", (*_ABOUT, limits.EXTENT), after=("undo-dilation",), rounding=Rounding.SUMS)
def split_kernel(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Convolve parts of the window and add the sums.

    Each part reads the cells that its taps meet. One with a single tap along an axis needs
    no dilation there, and where the device takes no stride a Slice with a step feeds it. So
    a convolution of any form is a sum of 1x1 convolutions; the fewest parts that fit are
    taken. Taps a stride apart are one part too: the phase of the input that they read.
    """
    if layer.padded or max(layer.kernel) == 1 == max(layer.strides):
        return
    has_gaps = max(layer.kernel) == 1  # between the cells that it reads
    if not (has_gaps or demand.breaks(layer, *_ABOUT) or _is_too_tall(layer, demand)):
        return
    options = [_cuts(layer.kernel[a], layer.strides[a], layer.dilations[a]) for a in layer.axes]
    most, proposals = MOST_CONVOLUTIONS, 0
    for plan in sorted(product(*options), key=_part_count):
        sliced = _slices_stride(layer, plan, demand)
        if proposals == CHOICES or _part_count(plan) > most:
            break
        if _is_nearer(layer, _part(layer, [axis[0] for axis in plan], sliced), demand):
            text = f"{times([len(a) for a in plan])} parts of the window"
            yield _proposal(layer, plan, sliced, text)
            proposals += 1
    # Single taps without stride: any device with a 1x1 convolution takes them.
    taps = tuple(tuple((tap, 1, 1) for tap in range(k)) for k in layer.kernel)
    sliced = tuple(stride > 1 for stride in layer.strides)
    tap = _part(layer, [axis[0] for axis in taps], sliced)
    if math.prod(layer.kernel) <= most and tap != replace(layer, bias=False):
        yield _proposal(layer, taps, sliced, "single taps of the window")


def _part_count(plan: Cuts) -> int:
    return math.prod(map(len, plan))


def _proposal(layer: Layer, plan: Cuts, sliced: tuple[bool, ...], text: str) -> Proposal:
    kinds = [Counter((0, count, distance) for _, count, distance in axis) for axis in plan]
    unbiased = [
        Part(_part(layer, taps, sliced), *[math.prod(map(Counter.__getitem__, kinds, taps))] * 2)
        for taps in product(*kinds)
    ]
    moved = sum(elements(part.layer.source) * part.count for part in unbiased)
    parts = with_bias_once(unbiased, bias=layer.bias)
    return Proposal(text, parts, moved=moved, terms=partial(_terms, plan=plan, sliced=sliced))


def _is_too_tall(layer: Layer, demand: Demand) -> bool:
    """Return whether even the tile of one output cell breaks a limit on extents."""
    if not demand.breaks(layer, limits.EXTENT) or not layer.sized:
        return False
    smallest = layer.with_extents([layer.reach(axis) for axis in layer.axes])
    return demand.breaks(smallest, limits.EXTENT)


def _is_nearer(layer: Layer, form: Layer, demand: Demand) -> bool:
    about = _ABOUT if demand.breaks(layer, *_ABOUT) else (limits.KERNEL,)
    if demand.breaks(layer, limits.KERNEL) and form.kernel == layer.kernel:
        return False
    return form != layer and not demand.breaks(form, *about) and not _is_too_tall(form, demand)


def _cuts(kernel: int, stride: int, dilation: int) -> list[tuple[Taps, ...]]:
    """Ways to cut an axis: into the fewest runs of each length, and into phases of the stride."""
    cuts: dict[tuple[Taps, ...], None] = {}
    for size in sizes(kernel):
        runs = ((start, stop - start, 1) for start, stop in even(kernel, -(-kernel // size)))
        cuts[tuple(sorted(runs, key=lambda run: -run[1]))] = None
    if stride > 1 and dilation == 1 and kernel > 1:
        phases = range(min(stride, kernel))
        cuts[tuple((p, -(-(kernel - p) // stride), stride) for p in phases)] = None
    return list(cuts)


def _slices_stride(layer: Layer, plan: Cuts, demand: Demand) -> tuple[bool, ...]:
    """Return for each axis whether a Slice takes the stride from all its parts.

    Phases always do; single taps where the device takes no such stride.
    """
    refused = demand.breaks(layer, limits.STRIDE)
    return tuple(
        stride > 1 and (axis[0][2] > 1 or (refused and all(taps[1] == 1 for taps in axis)))
        for axis, stride in zip(plan, layer.strides, strict=True)
    )


def _part(layer: Layer, taps: Sequence[Taps], sliced: tuple[bool, ...]) -> Layer:
    kernel = [count for _, count, _ in taps]
    strides = [1 if cut else s for cut, s in zip(sliced, layer.strides, strict=True)]
    dense = [k == 1 or t[2] > 1 for k, t in zip(kernel, taps, strict=True)]
    dilations = [1 if d else dilation for d, dilation in zip(dense, layer.dilations, strict=True)]
    form = replace(
        layer.with_kernel(kernel), strides=tuple(strides), dilations=tuple(dilations), bias=False
    )
    cells = [layer.cells(axis) for axis in layer.axes]
    return form.with_extents(
        [None if n is None else (n - 1) * strides[a] + form.reach(a) for a, n in enumerate(cells)]
    )


def _terms(layer: Layer, *, plan: Cuts, sliced: tuple[bool, ...]) -> list[Term]:
    terms = []
    for taps in product(*plan):
        form, bounds = _part(layer, taps, sliced), list[Bound]()  # cells that the taps read
        for axis, (first, count, distance) in enumerate(taps):
            start, needed = first * layer.dilations[axis], form.extents[axis]
            step = layer.strides[axis] if sliced[axis] else 1
            if needed is not None:
                stop = start + (needed - 1) * step + 1
            else:
                last = (first + (count - 1) * distance) * layer.dilations[axis]
                stop = last + 1 - layer.reach(axis) or TO_THE_END
            bounds.append((axis + 2, start, stop, step))
        cut = (slice(first, first + count * step, step) for first, count, step in taps)
        terms.append(Term(form, tuple(bounds), (slice(None), slice(None), *cut)))
    return terms


@LayerSplit("zero taps", (limits.KERNEL,), after=("split-kernel",))
def enlarge_kernel(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Add taps with zeros if the device takes larger or square kernels.

    The cells that they meet are zeros as well: pads of the convolution or, where these are
    limited, a Pad in front.
    """
    if any(demand.exceeds(f"kernel_{layer.side(a)}", layer.kernel[a]) for a in layer.axes):
        return
    options = [range(k, max(min(2 * k + 1, _LONGEST), k) + 1) for k in layer.kernel]
    options = [range(o.start, max(o[-1] for o in options) + 1) for o in options]
    for kernel in sorted(product(*options), key=lambda k: (int(np.prod(k)), max(k))):
        form = replace(layer.with_kernel(kernel), uniform=False)
        growth = [form.reach(axis) - layer.reach(axis) for axis in layer.axes]
        pads = tuple((b, e + more) for (b, e), more in zip(layer.pads, growth, strict=True))
        form = replace(form, pads=pads)
        if kernel == layer.kernel or demand.breaks(form, limits.KERNEL):
            continue
        text = f"kernel {times(kernel)} with zeros"
        taps = [(0, n - k) for k, n in zip(layer.kernel, kernel, strict=True)]
        weights = partial(np.pad, pad_width=[(0, 0), (0, 0), *taps])
        if not demand.breaks(form, limits.PADS):
            yield Proposal(text, (Part(form),), weights=weights)
        extents = zip(layer.extents, growth, strict=True)
        larger = form.with_extents([None if e is None else e + more for e, more in extents])
        outside = replace(larger, pads=layer.pads)
        yield Proposal(
            f"{text}, Pad in front",
            (Part(outside),),
            moved=elements(outside.source),
            pads={axis: (0, more) for axis, more in enumerate(growth, 2)},
            weights=weights,
        )
        return


@LayerSplit("dilation", (limits.DILATION,), after=("undo-stride",))
def undo_dilation(layer: Layer, _demand: Demand) -> Iterator[Proposal]:
    """Write zeros between the taps, or convolve every ``d``-th cell by itself.

    The dense kernel has ``d * d`` times the MACs. Where the stride is 1, the ``d`` phases
    of the image do not meet: each is convolved without dilation, and the results are put
    back in between each other.
    """
    kernel = tuple(layer.reach(axis) for axis in layer.axes)
    uniform = layer.uniform and kernel == layer.kernel
    dense = replace(layer.with_kernel(kernel), dilations=(1,) * len(kernel), uniform=uniform)
    if dense != layer:
        text = f"kernel {times(dense.kernel)} with zeros between the taps"

        def spread(array: np.ndarray) -> np.ndarray:
            result = np.zeros(dense.weight, array.dtype)
            positions = tuple(slice(None, None, d) for d in layer.dilations)
            result[(slice(None), slice(None), *positions)] = array
            return result

        yield Proposal(text, (Part(dense),), weights=spread)
    factors = tuple(
        d if s == 1 and k > 1 else 1
        for d, s, k in zip(layer.dilations, layer.strides, layer.kernel, strict=True)
    )
    if max(factors) > 1 and layer.sized and not layer.padded:
        parts = (Part(_phase(layer, factors), math.prod(factors)),)
        moved = 2 * elements(layer.source) + 2 * elements(layer.output)
        text = f"{times(factors)} phases without dilation"
        yield Proposal(text, parts, partial(_phases, factors=factors), moved)


def _phase(layer: Layer, factors: tuple[int, ...]) -> Layer:
    dilations = tuple(d // f for d, f in zip(layer.dilations, factors, strict=True))
    inner = replace(layer, dilations=dilations)
    cells = [-(-(layer.cells(a) or 1) // f) for a, f in enumerate(factors)]
    needed = [(c - 1) * layer.strides[a] + inner.reach(a) for a, c in enumerate(cells)]
    return inner.with_extents(needed)


def _phases(builder: Builder, piece: Piece, emit: Emit, *, factors: tuple[int, ...]) -> Tensor:
    layer = piece.layer
    form = _phase(layer, factors)
    extents = [(e or 1) * f for e, f in zip(form.extents, factors, strict=True)]
    source = fit_extents(builder, piece.source, extents)
    phases = []
    for phase in product(*map(range, factors)):
        bounds = [(a + 2, phase[a], TO_THE_END, f) for a, f in enumerate(factors)]
        phases.append(emit(piece.with_layer(form, builder.slice(source, bounds))))
    result = builder.from_channels(builder.concat(phases, 1), factors)
    return builder.slice(result, [(a + 2, 0, layer.cells(a) or 1, 1) for a in layer.axes])


@LayerSplit("taps as channels", (limits.KERNEL, limits.DILATION), after=("split-kernel",))
def join_taps(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Convolve the cells under all taps at once: a Slice for each tap, side by side.

    The MACs stay the same, and nothing is rounded in between. Only if the device takes the Slices
    and the Concat: on the host every cell would cross once for each tap.
    """
    taps = math.prod(layer.kernel)
    if layer.group > 1 or layer.padded or not layer.sized or not 1 < taps <= _MOST_TAPS:
        return
    extents = [((layer.cells(a) or 1) - 1) * layer.strides[a] + 1 for a in layer.axes]
    pointwise = replace(layer.with_kernel([1] * len(extents)), dilations=(1,) * len(extents))
    wide = pointwise.with_channels(layer.in_channels * taps, layer.out_channels, 1)
    form = wide.with_extents(extents)

    def build(builder: Builder, piece: Piece, emit: Emit) -> Tensor:
        slices = []
        for tap in product(*map(range, layer.kernel)):
            starts = [t * d for t, d in zip(tap, layer.dilations, strict=True)]
            stops = [start + n for start, n in zip(starts, extents, strict=True)]
            bounds = [(a + 2, starts[a], stops[a], 1) for a in layer.axes]
            slices.append(builder.slice(piece.source, bounds))
        weight = builder.weights(  # [O, I, ...] becomes [O, taps * I, 1, ...]
            piece,
            ("taps", layer.kernel),
            lambda array: np.moveaxis(array, 1, -1).reshape(form.weight),
        )
        return emit(replace(piece, layer=form, source=builder.concat(slices, 1), weight=weight))

    if demand.joins_slices:
        text = f"{taps} taps as {form.in_channels} channels"
        yield Proposal(text, (Part(form),), build, moved=2 * elements(form.source))


@LayerSplit(
    "cascade", (limits.KERNEL,), after=("even-pads",), rounding=Rounding.RESULTS, repeats=True
)
def cascade_average(layer: Layer, demand: Demand) -> Iterator[Proposal]:
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
    for factors in fitting[:CHOICES]:
        first, second = pairs[factors]
        text = f"average of {times([a for a, _ in factors])}, then of {times(second.kernel)}"
        parts = (Part(first), Part(second))
        build = partial(_build_averages, factors=factors, first=first, second=second)
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


def _build_averages(
    builder: Builder, piece: Piece, emit: Emit, *, factors: _Factors, first: Layer, second: Layer
) -> Tensor:
    layer, array = piece.layer, piece.array()
    count = int(np.prod([a for a, _ in factors]))
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
