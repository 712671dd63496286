"""Data movement by Reshapes, Transposes, Squeezes in a row, and the operators that do the same.

A movement is like the strides of an array: runs of places in the source, each with an extent and a
stride, from the slowest to the fastest. A Reshape changes the extents of the result only, a
Transpose the order of the runs. An extent that is not a number is a factor with a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice, pairwise, permutations, product
from typing import NamedTuple

from npuconv.legalize.tools.layout import perm_of
from npuconv.model import Node, Tensor, query
from npuconv.records import dataclass, replace

CHANNELS, MIN_RANK = 1, 3
USUAL_RANK = 4  # largest rank that devices with a Transpose take
_UNNAMED = "axis "


class Size(NamedTuple):
    """Product of a positive number and named extents."""

    number: int
    names: tuple[str, ...] = ()

    @classmethod
    def from_extent(cls, dim: int | str) -> Size:
        """Return the size of an extent."""
        return cls(dim) if isinstance(dim, int) else cls(1, (dim,))

    @property
    def name(self) -> str | None:
        """Return the name of an extent that has one, and no factor."""
        is_named = self.number == 1 and len(self.names) == 1
        return self.names[0] if is_named and not self.names[0].startswith(_UNNAMED) else None

    def times(self, factor: Size) -> Size:
        """Return the product."""
        return Size(self.number * factor.number, tuple(sorted(self.names + factor.names)))

    def over(self, divisor: Size) -> Size | None:
        """Return the quotient; None if it is not known to be a whole number."""
        names, divisors = Counter(self.names), Counter(divisor.names)
        if self.number % divisor.number or divisors - names:
            return None
        return Size(self.number // divisor.number, tuple(sorted((names - divisors).elements())))


class Run(NamedTuple):
    """Elements at equal distances: an axis, or a part of an axis."""

    extent: Size
    stride: Size

    @property
    def end(self) -> Size:
        """Return the stride of the next slower run of a contiguous tensor."""
        return self.extent.times(self.stride)

    def covers(self, axis: Run) -> bool:
        """Return whether the elements of an axis lie in this run."""
        return axis.stride.over(self.stride) is not None and self.end.over(axis.end) is not None


class Step(NamedTuple):
    """An operator that moves data.

    Attributes:
        op: Reshape, Transpose or Gather.
        values: target of a Reshape, permutation of a Transpose, channels of a Gather.
        source: extents before it.
        dims: extents of its result.
    """

    op: str
    values: tuple[int, ...]
    source: Sizes
    dims: Sizes


ONE = Size(1)
UNIT = Run(ONE, ONE)  # an axis of extent 1
Sizes = tuple[Size, ...]


@dataclass(frozen=True)
class Movement:
    """A tensor whose elements are elements of a source, in another order.

    Attributes:
        source: extents of the source.
        dims: extents of the tensor.
        runs: places of its elements in the source; contiguous neighbours are one run.
        offset: place of its first element.
    """

    source: Sizes
    dims: Sizes
    runs: tuple[Run, ...]
    offset: int = 0

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Movement | None:
        """Return the movement of a tensor to itself; None if its rank is not known."""
        dims = query.shape(tensor)
        if dims is None:
            return None
        sizes = tuple(Size.from_extent(dim or f"{_UNNAMED}{axis}") for axis, dim in enumerate(dims))
        return cls(sizes, sizes, _contiguous(sizes))

    def through(self, node: Node) -> Movement | None:
        """Return the movement to the result of a node that reads this tensor; None if not known."""
        if not query.is_standard(node) or len(node.outputs) != 1:
            return None
        if node.op == "Transpose":
            perm, groups = perm_of(node), self._groups()
            if perm is None or groups is None or sorted(perm) != list(range(len(self.dims))):
                return None
            runs = _joined(run for axis in perm for run in groups[axis])
            return replace(self, dims=tuple(self.dims[axis] for axis in perm), runs=runs)
        if node.op == "Gather":
            return self._selected(node)
        return self._reshaped(node)

    def _reshaped(self, node: Node) -> Movement | None:
        """Return the movement with the extents of the result; one extent may be unknown."""
        dims = query.shape(node.outputs[0])
        target = query.constant_input(node, 1) if node.op == "Reshape" else None
        if dims is None and target is not None and not (target == 0).any():
            dims = tuple(int(extent) if extent > 0 else None for extent in target)
        if dims is None:
            return None
        names = total(self.dims).names
        sizes = [Size.from_extent(d) if isinstance(d, int) or d in names else None for d in dims]
        quotient = total(self.dims).over(total(size for size in sizes if size is not None))
        if quotient is None or sizes.count(None) > 1 or (None not in sizes and quotient != ONE):
            return None
        return replace(self, dims=tuple(quotient if size is None else size for size in sizes))

    def _selected(self, node: Node) -> Movement | None:
        """Return the movement to one place along an axis."""
        index, groups = query.constant_input(node, 1), self._groups()
        axis, rank = int(query.attribute(node, "axis", 0)), len(self.dims)
        if index is None or index.ndim or groups is None or not -rank <= axis < rank:
            return None
        axis, place, extent = axis % rank, int(index), self.dims[axis]
        if extent.names or not -extent.number <= place < extent.number:
            return None
        place, offset = place % extent.number, self.offset
        for run in reversed(groups[axis]):
            if run.stride.names:
                return None
            place, digit = divmod(place, run.extent.number)
            offset += digit * run.stride.number
        axes = [number for number in range(rank) if number != axis]
        runs = _joined(run for number in axes for run in groups[number])
        return Movement(self.source, tuple(self.dims[number] for number in axes), runs, offset)

    def _groups(self) -> list[list[Run]] | None:
        """Return the runs of each axis; None if axes and runs overlap in parts."""
        waiting, groups = list(reversed(self.runs)), list[list[Run]]()
        for size in self.dims:
            groups.append([])
            while size != ONE:
                run = waiting.pop()
                quotient = size.over(run.extent)
                if quotient is None:
                    inner, quotient = run.extent.over(size), ONE
                    if inner is None:
                        return None
                    waiting.append(Run(inner, run.stride))
                    run = Run(size, run.stride.times(inner))
                groups[-1].append(run)
                size = quotient
        return groups

    def forms(self, transposes: int = 1, longest: int = 3) -> Iterator[list[Step]]:
        """Yield sequences of operators that turn the source into the tensor.

        Args:
            transposes: number of Transposes, 1 or 2.
            longest: length up to which all are wanted; longer sequences may be left out.
        """
        if self.offset == 0 and self.runs == _contiguous(self.source):
            yield from _sequences(_reshapes(self.source, self.dims))
            if self.dims == self.source:  # a node that copies, between an input and an output
                yield [Step("Transpose", tuple(range(len(self.dims))), self.dims, self.dims)]
            return
        if longest < 1:
            return
        is_part = total(run.extent for run in self.runs) != total(self.source)
        samples, cells, by_channel = self.source[:CHANNELS], self.source[CHANNELS + 1 :], self
        size = total(self.dims).over(total(samples + cells)) if is_part else None
        if size is not None:  # to the axes of the source with other channels
            by_channel = replace(self, dims=(*samples, size, *cells))
        channels = by_channel._channels()
        if channels:
            select = [Step("Gather", channels, self.source, by_channel.dims)]
            yield from _sequences(select, _reshapes(by_channel.dims, self.dims))
        arrangements = () if is_part else self._arrangements()
        # A single Transpose, without any Reshape, is in the first arrangement.
        for before, after in islice(arrangements, 1 if longest == 1 else None):
            for between in permutations(before) if transposes > 1 else [before]:
                orders = [before, between, after][2 - transposes :]
                moves = [_transpose(*pair) for pair in pairwise(orders)]
                reshapes = _reshapes(self.source, moves[0].source)
                yield from _sequences(reshapes, moves, _reshapes(moves[-1].dims, self.dims))

    def _arrangements(self) -> Iterator[tuple[list[Run], list[Run]]]:
        """Yield the axes before and behind a Transpose that puts the runs in order."""
        strides = [total(self.source[axis + 1 :]) for axis in range(len(self.source))]
        axes = [UNIT if a == ONE else Run(a, b) for a, b in zip(self.source, strides, strict=True)]
        long_axes, units = [axis for axis in axes if axis != UNIT], axes.count(UNIT)
        groups = self._groups()
        if groups is not None and all(len(group) < 2 for group in groups):  # no Reshape behind
            after = [group[0] if group else UNIT for group in groups]
            before = _source_order([run for run in after if run != UNIT])
            is_source = before == long_axes and after.count(UNIT) == units
            yield axes if is_source else _widened(before, after, after.count(UNIT)), after
        fine = [axis for run in self.runs for axis in long_axes if run.covers(axis)]
        if len(fine) == len(long_axes):  # no Reshape before
            yield axes, _widened(fine, axes, units)
        after = list(self.runs)
        before = _source_order(after)
        for units in sorted({0, max(0, USUAL_RANK - len(after))}):
            yield _widened(before, after, units), _widened(after, before, units)
        yield from product(_placements(before), _placements(after))

    def _channels(self) -> tuple[int, ...]:
        """Return the channels of the source in the tensor; empty if it has no complete channels."""
        groups, last = self._groups(), CHANNELS + 1
        if groups is None or len(self.dims) < MIN_RANK or len(self.dims) != len(self.source):
            return ()
        cells = total(self.source[last:])
        samples = Run(self.source[0], cells.times(self.source[CHANNELS]))
        inside = [run for group in groups[last:] for run in group]
        steps = [run.stride.over(cells) for run in groups[CHANNELS]]
        start = Size(self.offset).over(cells) if self.offset else Size(0)
        if self.dims[last:] != self.source[last:] or _joined(groups[0]) != _joined([samples]):
            return ()
        if _joined(inside) != _joined([Run(cells, ONE)]) or self.dims[CHANNELS].names:
            return ()
        numbers = [step.number for step in [start, *steps] if step is not None and not step.names]
        if len(numbers) != 1 + len(steps):
            return ()
        digits = product(*(range(run.extent.number) for run in groups[CHANNELS]))
        return tuple(
            numbers[0] + sum(a * b for a, b in zip(numbers[1:], d, strict=True)) for d in digits
        )


def total(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes."""
    result = ONE
    for size in sizes:
        result = result.times(size)
    return result


def _contiguous(dims: Sizes) -> tuple[Run, ...]:
    return _joined([Run(total(dims), ONE)])


def _joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return runs where contiguous neighbours are merged; extents of 1 go."""
    result: list[Run] = []
    for run in runs:
        if run.extent == ONE:
            continue
        if result and result[-1].stride == run.end:
            run = Run(result.pop().extent.times(run.extent), run.stride)
        result.append(run)
    return tuple(result)


def _source_order(runs: Sequence[Run]) -> list[Run]:
    # The stride of a slower run is a multiple of the strides of faster ones.
    return sorted(runs, key=lambda run: (len(run.stride.names), run.stride.number), reverse=True)


def _widened(runs: Sequence[Run], neighbours: Sequence[Run], units: int) -> list[Run]:
    """Return axes with units in front; a batch that is first on both sides stays there."""
    first = next((run for run in neighbours if run != UNIT), None)
    place = 1 if runs and runs[0] == first and first != UNIT else 0
    return [*runs[:place], *[UNIT] * units, *runs[place:]]


def _placements(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Yield axes of the usual rank, with units in every place."""
    for places in combinations(range(USUAL_RANK), len(runs)):
        by_place = dict(zip(places, runs, strict=True))
        yield [by_place.get(place, UNIT) for place in range(USUAL_RANK)]


def _transpose(before: Sequence[Run], after: Sequence[Run]) -> Step:
    places: dict[Run, list[int]] = {}
    for axis, run in enumerate(before):
        places.setdefault(run, []).append(axis)
    perm = tuple(places[run].pop(0) for run in after)
    source, dims = (tuple(run.extent for run in runs) for runs in (before, after))
    return Step("Transpose", perm, source, dims)


def _reshapes(source: Sizes, dims: Sizes) -> list[Step] | None:
    """Return the Reshape between these extents: at most one; None if no target states it."""
    if source == dims:
        return []
    open_axes = [axis for axis, size in enumerate(dims) if size.names]
    copied = [axis for axis in open_axes if source[axis : axis + 1] == dims[axis : axis + 1]]
    if len(open_axes) == 1:
        copied = []
    if len(open_axes) > len(copied) + 1:
        return None
    target = [size.number for size in dims]
    for axis in open_axes:
        target[axis] = 0 if axis in copied else -1
    return [Step("Reshape", tuple(target), source, dims)]


def _sequences(*parts: list[Step] | None) -> Iterator[list[Step]]:
    if None not in parts:
        yield [step for part in parts for step in part or ()]
