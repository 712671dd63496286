"""Second moments of the im2col windows of every convolution: the Hessians of its rows.

The squared error of a row of weights is ``dw' H dw`` with H the mean of ``x x'`` over the
windows x that the row is multiplied with. A depthwise convolution with kernels of a single 1
is im2col; with a large stride it gives the windows of a coarse grid of positions, and only
those leave the runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npuconv import executor
from npuconv.data.samples import Feed
from npuconv.data.workers import in_order
from npuconv.errors import CalibrationError
from npuconv.model import query
from npuconv.model.types import Node
from npuconv.quantize.settings import HESSIAN

_PREFIX = "npuconv/im2col"
_LARGEST = 1e9  # value, in units, whose products with many others are in float32
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


class Hessian:
    """Second moments of G groups of windows of K values.

    Attributes:
        groups: G.
        length: K.
        blocks: the K values are cut into blocks of equal length; products are kept within
            each of them.
        count: number of windows.
    """

    def __init__(self, groups: int, length: int) -> None:
        """Start empty."""
        self.groups, self.length = groups, length
        parts = -(-length // HESSIAN.block)
        size = -(-length // parts)
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
            windows: of one sample.
            held_out: keep some of them to compare roundings on, and leave them out of H.
        """
        if held_out and self.count:
            room = HESSIAN.held_out_windows // 4
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

    def take(self, groups: Sequence[int]) -> Hessian:
        """Return the Hessian of these groups, in this order."""
        index, selection = list(groups), Hessian(len(groups), self.length)
        selection.count, selection._unit = self.count, self._unit
        selection._sums = self._sums[index]
        selection._products = [products[index] for products in self._products]
        selection._held_out = [windows[index] for windows in self._held_out]
        return selection

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
class Windows:
    """A convolution as im2col needs it."""

    name: str
    tensor: str
    channels: int
    group: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    output: tuple[int, ...] | None  # spatial extents, where they are known

    @property
    def length(self) -> int:
        """Values that one output value is made of, K."""
        return self.channels // self.group * math.prod(self.kernel)


def windows_of(conv: Node) -> Windows | None:
    """Return the windows of a convolution; None without constant weights, or for a mean."""
    weight = query.constant_input(conv, 1)
    if weight is None:
        return None
    kernel = weight.shape[2:]
    if math.prod(kernel) > HESSIAN.largest_kernel or _is_mean(weight):
        return None
    ones = [1] * len(kernel)
    group = int(query.attribute(conv, "group", 1))
    extents = (query.shape(conv.outputs[0]) or (None,) * len(weight.shape))[2:]
    spatial_extents = tuple(n for n in extents if isinstance(n, int))
    return Windows(
        name=conv.name,
        tensor=conv.inputs[0].name,
        channels=weight.shape[1] * group,
        group=group,
        kernel=tuple(kernel),
        strides=tuple(query.attribute(conv, "strides", None) or ones),
        dilations=tuple(query.attribute(conv, "dilations", None) or ones),
        pads=tuple(query.attribute(conv, "pads", None) or [0, 0] * len(kernel)),
        output=spatial_extents
        if len(spatial_extents) == len(kernel)
        else None,  # the batch may be open
    )


def _is_mean(weight: Floats) -> bool:
    """Return whether each row is one number and reads one channel: that rounds exactly."""
    rows = weight.reshape(len(weight), -1)
    return weight.shape[1] == 1 and bool((rows == rows[:, :1]).all()) and rows.shape[1] > 1


def gather(
    model: onnx.ModelProto,
    layers: Sequence[Windows],
    feeds: Iterable[Feed],
    samples: int,
    after_run: Callable[[], None] = lambda: None,
) -> dict[str, Hessian]:
    """Run samples and gather the Hessian of every layer.

    Raises:
        CalibrationError: the model does not run on a sample.
    """
    hessians = {layer.name: Hessian(layer.group, layer.length) for layer in layers}
    cells: list[tuple[Any, ...]] = []  # windows of the layer; an image may be filled up behind
    for layer in layers:
        extents = zip(layer.output or (), _grid(layer, samples), strict=False)
        cells.append((..., *(slice(-(-n // step)) for n, step in extents)))
    try:
        session = executor.Session(_tapped(model, layers, samples), threads=1, eager=True)
        for number, values in enumerate(in_order(session.run, feeds)):
            held_out = number % HESSIAN.held_out_every == HESSIAN.held_out_every - 1
            for index, layer in enumerate(layers):
                columns = values[f"{_PREFIX}/{index}"][cells[index]]  # [N,C*kH*kW,...]
                windows = np.moveaxis(columns, 1, 0).reshape(layer.group, layer.length, -1)
                count = max(_window_count(layer, samples) * len(columns), 1)
                if (stride := windows.shape[2] // count) > 1:
                    windows = np.ascontiguousarray(windows[:, :, ::stride])
                hessians[layer.name].add(windows, held_out=held_out)
            after_run()
    except executor.RuntimeRefusedError as error:
        raise CalibrationError(f"the float model does not run on the samples: {error}") from None
    return hessians


def _window_count(layer: Windows, samples: int) -> int:
    """Return the number of windows to take of one sample."""
    total = max(HESSIAN.windows_per_weight * layer.length, HESSIAN.fewest_windows)
    total = min(total, HESSIAN.most_windows)
    return -(-total // samples)


def _tapped(model: onnx.ModelProto, layers: Sequence[Windows], samples: int) -> onnx.ModelProto:
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    del tapped.graph.output[:]
    kernels: dict[tuple[int, tuple[int, ...]], str] = {}
    for index, layer in enumerate(layers):
        key = (layer.channels, layer.kernel)
        if key not in kernels:
            kernels[key] = f"{_PREFIX}/kernel/{len(kernels)}"
            # Each kernel picks one value of a window, [C*kH*kW,1,kH,kW].
            size, rank = math.prod(layer.kernel), len(layer.kernel)
            picks = np.eye(size, dtype=np.float32).reshape(size, 1, *layer.kernel)
            picks = np.tile(picks, (layer.channels, *[1] * (rank + 1)))
            tapped.graph.initializer.append(numpy_helper.from_array(picks, kernels[key]))
        name = f"{_PREFIX}/{index}"
        grid = _grid(layer, samples)
        tapped.graph.node.append(
            helper.make_node(
                "Conv",
                [layer.tensor, kernels[key]],
                [name],
                group=layer.channels,
                kernel_shape=layer.kernel,
                strides=[s * g for s, g in zip(layer.strides, grid, strict=True)],
                dilations=layer.dilations,
                pads=layer.pads,
            )
        )
        tapped.graph.output.append(helper.make_empty_tensor_value_info(name))
    return tapped


def _grid(layer: Windows, samples: int) -> tuple[int, ...]:
    """Return the steps between positions; odd, to avoid the period of a pattern."""
    if layer.output is None:
        return (3,) * len(layer.kernel)
    count, steps = _window_count(layer, samples), [1] * len(layer.kernel)
    while True:
        counts = [-(-n // s) for n, s in zip(layer.output, steps, strict=True)]
        if math.prod(counts) <= 1.5 * count:
            return tuple(steps)
        steps[counts.index(max(counts))] += 2
