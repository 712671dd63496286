"""Second moments of the im2col windows of every convolution: the Hessians of its rows.

The squared error of a row of weights is ``dw' H dw`` with H the mean of ``x x'`` over the
windows x that the row is multiplied with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.whole import ceil_div
from npuconv.arithmetic.windows import im2col
from npuconv.data.samples import Feed
from npuconv.model import Node, query, window
from npuconv.model.conv import diagonal_groups, flat_pads
from npuconv.quantize import settings
from npuconv.records import dataclass

_LARGEST = 1e9  # largest value in units: float32 holds sums of many products of such values
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


class Hessian:
    """Second moments of G groups of windows of K values.

    Attributes:
        groups: G.
        length: K.
        blocks: blocks of K values, of nearly equal length; only products within a block are kept.
        count: number of windows.
    """

    def __init__(self, groups: int, length: int) -> None:
        self.groups, self.length = groups, length
        size = ceil_div(length, ceil_div(length, settings.HESSIAN_BLOCK))
        self.blocks = [slice(k, min(k + size, length)) for k in range(0, length, size)]
        self.count = 0
        self._sums = np.zeros((groups, length))
        self._products = [
            np.zeros((groups, b.stop - b.start, b.stop - b.start), np.float32) for b in self.blocks
        ]
        self._held_out: list[Floats] = []
        self._unit = 0.0  # divisor of values, so that their squares fit float32

    def add(self, windows: Floats, *, held_out: bool = False) -> None:
        """Add windows [G,K,P].

        Args:
            windows: windows of one sample.
            held_out: keep some of them to compare roundings on, and leave them out of H; ignored
                for the first sample, so that H is never empty.
        """
        if held_out and self.count:
            room = settings.HESSIAN_HELD_OUT_WINDOWS
            step = max(1, windows.shape[2] // room)
            self._held_out.append(np.array(windows[:, :, ::step][:, :, :room]))
            return
        self.count += windows.shape[2]
        self._fit(windows)
        self._sums += windows.sum(axis=2)
        scaled = windows if self._unit == 1 else windows / np.float32(self._unit)
        for block, total in zip(self.blocks, self._products, strict=True):
            part = scaled[:, block]
            total += part @ part.transpose(0, 2, 1)

    def _fit(self, windows: Floats) -> None:
        """Choose the unit by the first windows, and enlarge it if later windows need that."""
        largest = max(float(windows.max(initial=0.0)), -float(windows.min(initial=0.0)))
        if not self._unit:
            self._unit = 1.0 if 1e-6 < largest < _LARGEST or not largest else largest
        elif largest > _LARGEST * self._unit:
            for total in self._products:
                total *= np.float32((self._unit / largest) ** 2)
            self._unit = largest

    @property
    def means(self) -> Doubles:
        """Mean windows, float64 [G,K]."""
        return self._sums / max(self.count, 1)

    def products(self, block: int) -> Doubles:
        """Return the mean products of the values of a block, uncentred, float64 [G,B,B]."""
        return self._products[block].astype(np.float64) * (self._unit**2 / max(self.count, 1))

    @property
    def held_out(self) -> Floats | None:
        """Windows that are not in H, [G,K,P]; None if there are none."""
        return np.concatenate(self._held_out, axis=2) if self._held_out else None


@dataclass(frozen=True)
class WindowedConv:
    """Parameters of a convolution that im2col needs."""

    name: str
    tensor: str
    group: int
    length: int  # values that one output value is made of, K
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    output: tuple[int, ...] | None  # spatial extents, where they are known


def windows_of(conv: Node) -> WindowedConv | None:
    """Return the parameters for im2col; None without constant weights, or for a mean."""
    weight, win = query.constant_input(conv, 1), window(conv)
    if weight is None or win is None or win.kernel is None:
        return None
    if math.prod(win.kernel) > settings.HESSIAN_LARGEST_KERNEL or _is_mean(weight):
        return None
    # Zeros between groups stay zeros.
    group = diagonal_groups(weight) if win.group == 1 else win.group
    output = tuple(n for n in (win.output or ())[2:] if isinstance(n, int))
    return WindowedConv(
        name=conv.name,
        tensor=conv.inputs[0].name,
        group=group,
        length=weight[0].size * win.group // group,
        kernel=win.kernel,
        strides=win.strides,
        dilations=win.dilations,
        pads=tuple(flat_pads(win.pads)),
        output=output if len(output) == len(win.kernel) else None,
    )


def _is_mean(weight: Floats) -> bool:
    """Return whether each row repeats one number for one channel: it rounds without error."""
    rows = weight.reshape(len(weight), -1)
    return weight.shape[1] == 1 and bool((rows == rows[:, :1]).all()) and rows.shape[1] > 1


class HessianReader:
    """Reader of the Hessian of every layer, on the first samples of a float pass.

    Attributes:
        hessians: Hessian by name of the layer.
        tensors: inputs of the layers.
    """

    def __init__(self, layers: Sequence[WindowedConv], samples: int) -> None:
        self.hessians = {layer.name: Hessian(layer.group, layer.length) for layer in layers}
        self.tensors = {layer.tensor for layer in layers}
        self._samples = min(settings.HESSIAN_SAMPLES, samples)
        counts = [_window_count(layer, self._samples) for layer in layers]
        intervals = map(_position_intervals, layers, counts)
        self._layers = list(zip(layers, counts, intervals, strict=True))

    def read(self, number: int, arrays: Feed) -> Callable[[], None]:
        """Return a function that adds the windows of a sample; none behind the first samples."""
        layers = self._layers if number < self._samples else ()
        parts = [
            (self.hessians[layer.name], _windows(layer, arrays[layer.tensor], count, intervals))
            for layer, count, intervals in layers
        ]
        held_out = number % settings.HESSIAN_HELD_OUT_EVERY == settings.HESSIAN_HELD_OUT_EVERY - 1

        def add() -> None:
            for hessian, windows in parts:
                hessian.add(windows, held_out=held_out)

        return add


def _windows(layer: WindowedConv, values: Floats, count: int, intervals: Sequence[int]) -> Floats:
    """Return about ``count`` windows of a layer, at intervals of its positions, [G,K,P]."""
    strides = [stride * step for stride, step in zip(layer.strides, intervals, strict=True)]
    windows = im2col(values, layer.kernel, strides, layer.dilations, layer.pads)
    # Pads behind the values may make room for more positions than the layer has.
    extents = map(ceil_div, layer.output or (), intervals)
    windows = windows[(slice(None), slice(None), *map(slice, extents))]
    # [N,C,*positions,*kernel] -> [C,*kernel,N,*positions]
    rank = len(layer.kernel)
    order = (1, *range(2 + rank, 2 + 2 * rank), 0, *range(2, 2 + rank))
    columns = windows.transpose(order).reshape(layer.group, layer.length, -1)
    interval = max(columns.shape[2] // max(count * len(values), 1), 1)
    return np.ascontiguousarray(columns[:, :, ::interval])


def _window_count(layer: WindowedConv, sample_count: int) -> int:
    total = max(settings.HESSIAN_WINDOWS_PER_WEIGHT * layer.length, settings.HESSIAN_FEWEST_WINDOWS)
    return ceil_div(min(total, settings.HESSIAN_MOST_WINDOWS), sample_count)


def _position_intervals(layer: WindowedConv, count: int) -> tuple[int, ...]:
    """Return the interval of the positions by axis; odd, to avoid the period of a pattern."""
    if layer.output is None:
        return (3,) * len(layer.kernel)
    intervals = [1] * len(layer.kernel)
    while True:
        counts = list(map(ceil_div, layer.output, intervals))
        if math.prod(counts) <= 1.5 * count:
            return tuple(intervals)
        axis = counts.index(max(counts))  # the axis with the most positions
        intervals[axis] += 2
