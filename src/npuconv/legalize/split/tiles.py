"""An image in tiles with their halo, a batch in images, put together again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from npuconv.legalize.split import limits
from npuconv.legalize.split.builder import Builder, Piece
from npuconv.legalize.split.layer import Layer, elements, times
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import (
    OPERATORS,
    Emit,
    LayerSplit,
    Part,
    Proposal,
    chunks,
    cut,
    sizes,
)
from npuconv.legalize.split.stride import fit_extents
from npuconv.model import Tensor
from npuconv.records import replace

Tile = tuple[int, int, tuple[int, int]]  # start, stop and pads along an axis
_EXTENTS = frozenset({"in_h", "in_w", "out_h", "out_w"})
_MOST_EXTRA = 64  # largest number of cells added to an image, to reach a multiple or a minimum
_FEW_EXTRA = 8  # largest number of cells added to a tile


@LayerSplit("tiles", (limits.EXTENT,), after=("add-channels",))
def split_image(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Convolve tiles of the image, each with the border that its kernel reaches.

    All tiles have one shape, so that they share weights and code: zeros are
    appended to the image until its extents are multiples, and a Slice removes the surplus cells.
    An image that is too small, or no multiple that the device takes, is enlarged the same way.
    """
    if not layer.sized or layer.padded:
        return
    # The largest tile that the device takes: each axis by itself, then both together.
    options = [_sizes(layer, demand, axis) for axis in layer.axes]
    cells = [next(sizes_of_axis, 0) for sizes_of_axis in options]
    while min(cells) > 0 and demand.breaks(_tile(layer, cells), limits.EXTENT):
        axis = max(layer.axes, key=lambda a: cells[a])
        cells[axis] = next(options[axis], 0)
    if min(cells) < 1:
        return
    tile = _tile(layer, cells)
    counts = [-(-(layer.cells(a) or 1) // (tile.cells(a) or 1)) for a in layer.axes]
    number = math.prod(counts)
    moved = number * elements(tile.source) + 2 * elements(layer.output)
    text = f"{times(counts)} tiles of {times(tile.extents)}"
    build = partial(_build, tile=tile, counts=counts)
    yield Proposal(text, (Part(tile, number),), build, moved)


def _tile(layer: Layer, cells: list[int]) -> Layer:
    return layer.with_extents(
        [(c - 1) * layer.strides[a] + layer.reach(a) for a, c in enumerate(cells)]
    )


def _sizes(layer: Layer, demand: Demand, axis: int) -> Iterator[int]:
    """Yield cells of a tile along an axis that break no limit on that axis alone."""
    outputs = [layer.cells(a) or 1 for a in layer.axes]
    side = layer.side(axis)
    facts = frozenset({f"in_{side}", f"out_{side}"})
    most, reach, fewest = demand.most(f"in_{side}"), layer.reach(axis), 1
    if most is not None and most >= reach:  # the largest tile fixes the fewest tiles
        fewest = -(-outputs[axis] // ((most - reach) // layer.strides[axis] + 1))
    last = 0
    for count in range(fewest, outputs[axis] + 1):
        least = -(-outputs[axis] // count)
        if least == last:
            continue
        last = least
        for cells in range(least, least + (_MOST_EXTRA if count == 1 else _FEW_EXTRA)):
            tile = _tile(layer, [cells if a == axis else n for a, n in enumerate(outputs)])
            faults = demand.broken_facts(tile)
            if not any(fault & facts and not (fault & _EXTENTS) - facts for fault in faults):
                yield cells
                break


def _build(builder: Builder, piece: Piece, emit: Emit, *, tile: Layer, counts: list[int]) -> Tensor:
    layer = piece.layer
    strides = [(tile.cells(a) or 1) * layer.strides[a] for a in layer.axes]
    extents = [
        (n - 1) * s + (e or 1) for n, s, e in zip(counts, strides, tile.extents, strict=True)
    ]
    source = fit_extents(builder, piece.source, extents)

    rows: list[list[Tile]] = [
        [(i * step, i * step + (extent or 1), (0, 0)) for i in range(n)]
        for n, step, extent in zip(counts, strides, tile.extents, strict=True)
    ]
    result = write_tiles(builder, replace(piece, source=source), emit, rows=rows)
    return builder.slice(result, [(a + 2, 0, layer.cells(a) or 1, 1) for a in layer.axes])


def tile_of(layer: Layer, tiles: Sequence[Tile]) -> Layer:
    """Return the layer on one tile, by axis."""
    form = layer.with_extents([stop - start for start, stop, _ in tiles])
    return replace(form, pads=tuple(pads for *_, pads in tiles))


def write_tiles(
    builder: Builder, piece: Piece, emit: Emit, *, rows: Sequence[Sequence[Tile]]
) -> Tensor:
    """Write a layer for each combination of the tiles of the axes, and the Concats of results."""

    def row(axis: int, where: list[Tile]) -> Tensor:
        if axis == len(rows):
            bounds = [(a + 2, start, stop, 1) for a, (start, stop, _) in enumerate(where)]
            source = builder.slice(piece.source, bounds)
            return emit(piece.with_layer(tile_of(piece.layer, where), source))
        return builder.concat([row(axis + 1, [*where, tile]) for tile in rows[axis]], axis + 2)

    return row(0, [])


@LayerSplit("batch", (limits.BATCH,), ops=OPERATORS, inserts=("Slice", "Concat"))
def split_batch(layer: Layer, demand: Demand) -> Iterator[Proposal]:
    """Take the images of a batch separately, or a few at a time."""
    batch = layer.source[0]
    if batch is None:
        return
    for size in sizes(batch):
        if size < batch and not demand.breaks(_images(layer, size), limits.BATCH):
            moved = elements(layer.source) + elements(layer.output)
            parts = cut(batch, size, partial(_images, layer), shared=True)
            text = f"{size} of {batch} images at a time"
            yield Proposal(text, parts, partial(_one_by_one, size=size), moved)
            return


def _images(layer: Layer, size: int) -> Layer:
    return replace(layer, source=(size, *layer.source[1:]))


def _one_by_one(builder: Builder, piece: Piece, emit: Emit, *, size: int) -> Tensor:
    results = []
    for start, stop in chunks(piece.layer.source[0] or 0, size):
        source = builder.slice(piece.source, [(0, start, stop, 1)])
        results.append(emit(piece.with_layer(_images(piece.layer, stop - start), source)))
    return builder.concat(results, 0)
