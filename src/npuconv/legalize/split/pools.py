"""Pools that break a limit: in turn, with some channels at a time, in tiles.

A pool has no weights, so its tiles need not be of one shape: each tile has the pads of
its edges of the image, and no operator pads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import ceil, prod

from npuconv.legalize.split import limits
from npuconv.legalize.split.builder import Builder, Piece
from npuconv.legalize.split.channels import fewer_groups, groups_side_by_side
from npuconv.legalize.split.layer import Layer, elements, times
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import (
    MOST_CONVOLUTIONS,
    POOLS,
    Emit,
    LayerSplit,
    Part,
    Proposal,
    cut,
    even,
    sizes,
)
from npuconv.legalize.split.tiles import Tile, tile_of, write_tiles
from npuconv.model import Tensor
from npuconv.records import replace

_MOST_IN_TURN = 32  # largest number of pools in the place of a pool
_WINDOW = (limits.KERNEL, limits.PADS, limits.DILATION)


@LayerSplit("in turn", _WINDOW, after=("undo-stride",), ops=("MaxPool",))
def pools_in_turn(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Write max pools that follow each other: 13x13 is 7x7 and 7x7.

    The largest of the largest is the largest of all. As few as possible are written; the last
    has the stride, and each a share of the pads. Not with pads around a dilated kernel: what
    the second pool would need of them, the first has not made. A window as large as the image is
    divided into blocks: 100x100 is 10x10 with stride 10, and 10x10.
    """
    if max(layer.kernel) < 3 or (max(layer.dilations) > 1 and layer.padded):
        return
    is_global = not layer.padded and layer.extents == layer.kernel
    for count in range(2, min(max(layer.kernel), _MOST_IN_TURN + 1)):
        pools = _blocks(layer, count) if is_global else _in_turn(layer, count)
        if any(demand.breaks(pool, *_WINDOW, *(limits.STRIDE,) * is_global) for pool in pools):
            continue
        text = f"in turn {', '.join(times(pool.kernel) for pool in pools)}"
        parts = tuple(Part(pool, pools.count(pool)) for pool in dict.fromkeys(pools))
        yield Proposal(text, parts, partial(_one_after_another, pools=pools))
        return


def _in_turn(layer: Layer, count: int) -> list[Layer]:
    """Return so many pools, which together read as many cells as the window."""
    # Each pool reads one cell and a part of the other cells of the window.
    quotients = [divmod(kernel - 1, count) for kernel in layer.kernel]
    kernels = [[1 + cells + (i < more) for cells, more in quotients] for i in range(count)]
    begins, stops = (
        [_divided_pads(layer.pads[a][side], [k[a] for k in kernels]) for a in layer.axes]
        for side in (0, 1)
    )
    extents, pools = layer.extents, list[Layer]()
    for number, kernel in enumerate(kernels):
        pads = tuple((begins[a][number], stops[a][number]) for a in layer.axes)
        strides = layer.strides if number == count - 1 else (1,) * len(kernel)
        pool = replace(layer.with_kernel(kernel).with_extents(extents), pads=pads, strides=strides)
        extents = tuple(map(pool.cells, pool.axes))
        pools.append(pool)
    return pools


def _blocks(layer: Layer, count: int) -> list[Layer]:
    """Return so many pools of blocks, the last as large as its input."""
    pools = list[Layer]()
    for number in range(count, 0, -1):
        strides = [ceil(extent ** (1 / number)) for extent in layer.kernel]
        cells = [extent // s for extent, s in zip(layer.kernel, strides, strict=True)]
        covered = [(n - 1) * s for n, s in zip(cells, strides, strict=True)]
        kernel = [extent - c for extent, c in zip(layer.kernel, covered, strict=True)]
        steps = tuple(s if n > 1 else 1 for n, s in zip(cells, strides, strict=True))
        pools.append(replace(layer.with_kernel(kernel), strides=steps))
        layer = layer.with_kernel(cells).with_extents(cells)
    return pools


def _divided_pads(pad: int, kernels: Sequence[int]) -> list[int]:
    """Divide the pads of one end in proportion to the kernels minus one."""
    pads, room = list[int](), sum(kernels) - len(kernels)
    for kernel in kernels:
        pads.append(-(-pad * (kernel - 1) // max(room, 1)))
        pad, room = pad - pads[-1], room - (kernel - 1)
    return pads


def _one_after_another(_: Builder, piece: Piece, emit: Emit, *, pools: list[Layer]) -> Tensor:
    result = piece.source
    for pool in pools:
        result = emit(piece.with_layer(pool, result))
    return result


@LayerSplit(
    "channels",
    (limits.INPUTS, limits.OUTPUTS),
    after=("pools-in-turn",),
    ops=POOLS,
    inserts=("Slice", "Concat"),
)
def split_pool_channels(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Pool some channels at a time."""
    channels, form = layer.in_channels, partial(fewer_groups, layer)
    for size in sizes(channels, demand.multiple("in_c")):
        if size < channels and not demand.breaks(form(size), limits.INPUTS, limits.OUTPUTS):
            moved = elements(layer.source) + elements(layer.output)
            text = f"{size} of {channels} channels at a time"
            build = partial(groups_side_by_side, size=size)
            yield Proposal(text, cut(channels, size, form), build, moved)
            return


@LayerSplit(
    "pool tiles",
    (limits.EXTENT,),
    after=("split-pool-channels",),
    ops=POOLS,
    inserts=("Slice", "Concat"),
)
def split_pool_image(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Pool parts of the image, each with the border that its kernel reaches.

    The fewest that fit; of as many parts those are taken that move the least.
    """
    if not layer.sized:
        return
    options = [_counts(layer, demand, axis) for axis in layer.axes]
    for counts in sorted(product(*options), key=lambda n: (prod(n), max(n))):
        if prod(counts) > MOST_CONVOLUTIONS:
            return
        rows = [_tiles(layer, axis, count) for axis, count in enumerate(counts)]
        forms = [tile_of(layer, tiles) for tiles in product(*rows)]
        if any(demand.breaks(form, limits.EXTENT) for form in set(forms)):
            continue
        moved = sum(elements(form.source) for form in forms) + elements(layer.output)
        parts = tuple(Part(form, forms.count(form)) for form in dict.fromkeys(forms))
        text = f"{times(counts)} tiles of at most {times(forms[0].extents)}"
        yield Proposal(text, parts, partial(write_tiles, rows=rows), moved)
        return


def _counts(layer: Layer, demand: Demand, axis: int) -> list[int]:
    """Return numbers of tiles along an axis whose tiles keep the limit on the extent."""
    cells, counts = layer.cells(axis) or 1, list[int]()
    for count in dict.fromkeys(-(-cells // size) for size in sizes(cells)):
        tiles = _tiles(layer, axis, count)
        largest = max(stop - start for start, stop, _ in tiles)
        if not demand.exceeds(f"in_{layer.side(axis)}", largest):
            counts.append(count)
    return counts


def _tiles(layer: Layer, axis: int, count: int) -> list[Tile]:
    """Return start, stop and pads of each tile along an axis."""
    extent, (before, _), stride = layer.extents[axis] or 1, layer.pads[axis], layer.strides[axis]
    tiles = []
    for first, end in even(layer.cells(axis) or 1, count):
        start, stop = first * stride - before, (end - 1) * stride - before + layer.reach(axis)
        pads = max(-start, 0), max(stop - extent, 0)
        tiles.append((max(start, 0), min(stop, extent), pads))
    return tiles
