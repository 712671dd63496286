"""Convolutions whose results are added, as the one convolution that they are.

Each reads some channels of one tensor, or the cells that some taps of a window meet. Where these
are in the tensor says where its weights are in those of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuconv.model import query
from npuconv.model.conv import Dims, Window, conv_output, flat_pads, window
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    import numpy as np

SUMS = ("Add", "Sum")
_PASSED = ("Slice", "DequantizeLinear")
Cells = tuple[range | None, ...]  # of every axis behind the batch; None: all


@dataclass(frozen=True)
class Part:
    """A convolution whose result is added to those of others."""

    # Axis, start, stop and step of the slices of the tensor that it reads; empty for all of it.
    bounds: tuple[tuple[int, int, int, int], ...]
    index: tuple[slice, ...]  # of its weights in those of the whole
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


@dataclass(frozen=True)
class PartialSum:
    """Convolutions whose results are added."""

    convs: tuple[Node, ...]
    constants: tuple[np.ndarray, ...]  # that are added to them
    source: Tensor  # what all of them read, or slices of it
    weight: tuple[int, ...]  # shape of the weights of the whole
    attrs: dict[str, Any]  # of the whole
    parts: tuple[Part, ...]  # one for each convolution

    def nodes(self, total: Tensor) -> list[Node]:
        """Return all nodes from what is read to the sum, slices that others read too included."""
        found: dict[int, Node] = {}
        waiting = [total]
        while waiting:
            tensor = waiting.pop()
            maker = None if tensor is self.source else query.producer(tensor)
            if maker is not None and id(maker) not in found:
                found[id(maker)] = maker
                waiting += list(maker.inputs)
        return list(found.values())[::-1]

    def joined(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Put together the parts of each weight."""
        import numpy as np

        whole = np.zeros(self.weight, arrays[0].dtype)
        for part, array in zip(self.parts, arrays, strict=True):
            whole[part.index] = array
        return whole


def partial_sum(model: Model, total: Tensor, op: str = "Conv") -> PartialSum | None:
    """Return the sum of convolutions that makes a tensor.

    Args:
        model: with the shapes of its tensors.
        total: result of an Add or a Sum.
        op: Conv or ConvInteger. Between a Conv and what it reads may be conversions, which are
            for the caller to compare.

    Returns:
        None where something else is added, or where no one convolution has these weights.
    """
    convs, constants = list[Node](), list["np.ndarray"]()
    if not _collect(model, total, op, convs, constants) or len(convs) < 2:
        return None
    source, wins = _common_source(convs), [window(conv, "Conv") for conv in convs]
    dims, first = query.shape(source), wins[0]
    if source is None or dims is None or first is None or not isinstance(dims[1], int):
        return None
    cells = [_cells(conv.inputs[0], source) for conv in convs]
    terms = [
        _Term(win, win.weight, own)
        for win, own in zip(wins, cells, strict=True)
        if win is not None and win.weight is not None and own is not None
        if win.is_consistent and len(win.weight) == len(dims)
        if min(*win.strides, *win.dilations, *win.weight) > 0
    ]
    parts = _parts(terms, dims, query.shape(total)) if len(terms) == len(convs) else None
    if parts is None:
        return None
    shape, attrs, found = parts
    return PartialSum(tuple(convs), tuple(constants), source, shape, attrs, found)


def _collect(
    model: Model, tensor: Tensor, op: str, convs: list[Node], constants: list[np.ndarray]
) -> bool:
    """Collect the terms of a sum; return whether they are convolutions and constants alone."""
    maker = query.producer(tensor)
    if maker is None or maker.op not in (op, *SUMS):
        return False
    if maker.op == op:
        convs.append(maker)
        return True
    for term in maker.inputs:
        if (value := query.value(term)) is not None:
            constants.append(value)
            continue
        alone = query.sole_consumer(model, term) is not None
        if not alone or not _collect(model, term, op, convs, constants):
            return False
    return True


def _sources(tensor: Tensor) -> Iterator[Tensor]:
    """Yield a tensor, what it is sliced of, or the integers it stands for, and so on."""
    yield tensor
    while (maker := query.producer(tensor)) is not None and maker.op in _PASSED:
        tensor = maker.inputs[0]
        yield tensor


def _common_source(convs: Sequence[Node]) -> Tensor | None:
    """Return the tensor that all convolutions read slices of: the last that is made."""
    others = [{id(t) for t in _sources(conv.inputs[0])} for conv in convs[1:]]
    first = _sources(convs[0].inputs[0])
    return next((t for t in first if all(id(t) in ids for ids in others)), None)


def _cells(tensor: Tensor, source: Tensor) -> Cells | None:
    """Return the cells of a tensor that slices of it leave; None where these are not known."""
    slices = list[Node]()
    while tensor is not source:
        slices.append(query.producer(tensor))
        tensor = slices[-1].inputs[0]
    dims = query.shape(source) or ()
    found: list[range | None] = [None] * len(dims)
    for node in (one for one in reversed(slices) if one.op == "Slice"):
        for axis, bounds in _bounds(node, len(dims)):
            extent, own = dims[axis], found[axis]
            if not isinstance(extent, int) or axis == 0 or bounds.step < 1:
                return None
            found[axis] = (range(extent) if own is None else own)[bounds]
    pairs = zip(found[1:], dims[1:], strict=True)
    return tuple(None if isinstance(n, int) and own == range(n) else own for own, n in pairs)


def _bounds(node: Node, rank: int) -> list[tuple[int, slice]]:
    """Return axes and bounds of a Slice; a bound of the batch where they are not constant."""
    values = [query.constant_input(node, place) for place in range(1, 5)]
    given = [query.input_of(node, place) is not None for place in range(1, 5)]
    if any(there and value is None for there, value in zip(given, values, strict=True)):
        return [(0, slice(0, 0, 1))]
    starts, stops, axes, steps = ([] if v is None else v.reshape(-1).tolist() for v in values)
    axes, steps = axes or list(range(len(starts))), steps or [1] * len(starts)
    alike = len(starts) == len(stops) == len(axes) == len(steps)
    if not alike or not all(-rank <= axis < rank for axis in axes):
        return [(0, slice(0, 0, 1))]
    every = zip(axes, starts, stops, steps, strict=True)
    return [(axis % rank, slice(start, stop, step)) for axis, start, stop, step in every]


@dataclass(frozen=True)
class _Term:
    """A convolution of a sum."""

    win: Window
    weight: tuple[int, ...]
    cells: Cells


@dataclass(frozen=True)
class _Axis:
    """A spatial axis of the whole."""

    kernel: int
    stride: int
    dilation: int
    taps: tuple[slice, ...]  # of each part, among those of the whole


def _axis(terms: Sequence[_Term], axis: int) -> _Axis | None:
    """Return the window of the whole along an axis; None where there is none."""
    offsets, strides = list[range](), set[int]()
    for term in terms:
        read = term.cells[axis + 1] or range(1)
        apart = term.win.dilations[axis] * read.step
        last = read.start + apart * (term.weight[axis + 2] - 1)
        offsets.append(range(read.start, last + 1, apart))
        strides.add(term.win.strides[axis] * read.step)
    every = {offset for own in offsets for offset in own}
    if len(strides) > 1 or min(every) > 0:
        return None
    by = math.gcd(*every) or 1
    # A single tap is as far from the next one as anybody likes.
    taps = [slice(o[0] // by, o[-1] // by + 1, max(o.step // by, 1)) for o in offsets]
    return _Axis(max(every) // by + 1, strides.pop(), by, tuple(taps))


def _parts(
    terms: Sequence[_Term], dims: Dims, result: Dims | None
) -> tuple[tuple[int, ...], dict[str, Any], tuple[Part, ...]] | None:
    """Return weights and attributes of the whole, if it has each weight once, and its parts."""
    import numpy as np

    first, channels = terms[0].win, int(dims[1] or 0)
    found = [_axis(terms, axis) for axis in range(len(first.strides))]
    axes = [axis for axis in found if axis is not None]
    if len(axes) < len(found) or not _makes(terms, axes, dims, result):
        return None
    rows = [term.cells[0] or range(channels // first.group) for term in terms]
    parts = tuple(
        Part(
            tuple((k, r.start, r.stop, r.step) for k, r in enumerate(one.cells, 1) if r),
            (slice(None), slice(row.start, row.stop, row.step), *(a.taps[k] for a in axes)),
            one.win.strides,
            one.win.dilations,
        )
        for k, (one, row) in enumerate(zip(terms, rows, strict=True))
    )
    shape = (terms[0].weight[0], channels // first.group, *(a.kernel for a in axes))
    if math.prod(shape) != sum(math.prod(one.weight) for one in terms):
        return None
    covered = np.zeros(shape, np.int8)
    for part in parts:
        covered[part.index] += 1
    attrs = {
        "kernel_shape": list(shape[2:]), "strides": [a.stride for a in axes],
        "dilations": [a.dilation for a in axes], "pads": flat_pads(first.pads),
        "group": first.group,
    }  # fmt: skip
    return (shape, attrs, parts) if (covered == 1).all() else None


def _makes(terms: Sequence[_Term], axes: Sequence[_Axis], dims: Dims, result: Dims | None) -> bool:
    """Return whether the whole makes as many cells as its parts, which are alike."""
    first = terms[0].win
    alike = {(t.win.group, t.win.pads, t.win.auto_pad, t.weight[0]) for t in terms}
    sliced = any(own is not None for t in terms for own in t.cells[1:])
    if len(alike) > 1 or first.auto_pad != "NOTSET" or (sliced and any(map(any, first.pads))):
        return False
    if first.group > 1 and any(t.cells[0] is not None for t in terms):
        return False
    for axis, extent, pads, made in zip(
        axes, dims[2:], first.pads, (result or dims)[2:], strict=True
    ):
        if not isinstance(extent, int):
            continue  # no Slice is along it, so all parts make what the whole makes
        if made != conv_output(extent, axis.kernel, axis.stride, axis.dilation, pads):
            return False
    return True
