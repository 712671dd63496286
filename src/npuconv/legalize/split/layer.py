"""Convolutions and pools without a graph: the search space of the planner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from npuconv.model import Node, Tensor, Window, query, window
from npuconv.model.conv import Dims, Pairs, conv_output, effective_kernel
from npuconv.partition.operators import CUTTING, takes_as
from npuconv.records import dataclass, replace

if TYPE_CHECKING:
    from npuconv.target import Target


@dataclass(frozen=True)
class Layer:
    """A Conv or pool with resolved pads; extents of the input may be unknown (None).

    Attributes:
        source: N, C and the spatial extents of the input.
        weight: O, I/group and the kernel; of a pool C, 1 and the kernel, as if it were depthwise.
        strides: per axis.
        dilations: per axis.
        pads: (begin, end) per axis.
        group: number of groups.
        bias: whether there is one.
        uniform: whether all weights are one number.
        op: ``Conv``, or the operator of a pool.
        counted: whether an average divides by its pads, too.
        from_host: whether its source comes from the host.
    """

    source: tuple[int | None, ...]
    weight: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pairs
    group: int = 1
    bias: bool = False
    uniform: bool = False
    op: str = "Conv"
    counted: bool = False
    from_host: bool = False

    @property
    def axes(self) -> range:
        """The spatial axes, from 0."""
        return range(len(self.strides))

    @property
    def kernel(self) -> tuple[int, ...]:
        """Extents of the kernel."""
        return self.weight[2:]

    @property
    def extents(self) -> tuple[int | None, ...]:
        """Spatial extents of the input."""
        return self.source[2:]

    @property
    def in_channels(self) -> int:
        """Input channels."""
        return self.weight[1] * self.group

    @property
    def out_channels(self) -> int:
        """Output channels."""
        return self.weight[0]

    @property
    def padded(self) -> bool:
        """Return whether any pad is not 0."""
        return any(map(any, self.pads))

    def side(self, axis: int) -> str:
        """Name of an axis in facts: ``h``, ``w``, or ``?`` for any before these."""
        return {-2: "h", -1: "w"}.get(axis - len(self.strides), "?")

    def reach(self, axis: int) -> int:
        """Cells that the dilated kernel covers along an axis."""
        return effective_kernel(self.kernel[axis], self.dilations[axis])

    def cells(self, axis: int) -> int | None:
        """Output extent along an axis; None where the input's is not known."""
        extent = self.extents[axis]
        if extent is None:
            return None
        kernel, dilation = self.kernel[axis], self.dilations[axis]
        return conv_output(extent, kernel, self.strides[axis], dilation, self.pads[axis])

    @property
    def output(self) -> tuple[int | None, ...]:
        """N, C and the spatial extents of the output."""
        return (self.source[0], self.weight[0], *map(self.cells, self.axes))

    @property
    def sized(self) -> bool:
        """Return whether all spatial extents are known."""
        return None not in self.extents

    @property
    def empty(self) -> bool:
        """Return whether an output extent is below one: no layer at all."""
        return any(c is not None and c < 1 for c in map(self.cells, self.axes))

    def with_kernel(self, kernel: Sequence[int]) -> Layer:
        """Return the layer with another kernel."""
        return replace(self, weight=(*self.weight[:2], *kernel))

    def with_extents(self, extents: Sequence[int | None]) -> Layer:
        """Return the layer for an input of other extents."""
        return replace(self, source=(*self.source[:2], *extents))

    def with_channels(self, inputs: int, outputs: int, group: int) -> Layer:
        """Return the layer with other channels."""
        weight = (outputs, inputs // group, *self.kernel)
        source = (self.source[0], inputs, *self.extents)
        return replace(self, source=source, weight=weight, group=group)

    def without_pads(self) -> Layer:
        """Return the layer without pads, for a padded input."""
        pairs = zip(self.extents, self.pads, strict=True)
        extents = [None if n is None else n + sum(p) for n, p in pairs]
        return replace(self.with_extents(extents), pads=((0, 0),) * len(self.pads))

    def parameters(self) -> int:
        """Weights; a pool has none."""
        return math.prod(self.weight) if self.op == "Conv" else 0

    def macs(self) -> int:
        """Multiply-accumulates, of a pool values read; an unknown extent counts as one cell."""
        return math.prod(self.weight) * elements((self.source[0], *self.output[2:]))

    def window(self) -> Window:
        """The window that facts are measured on."""
        weighted = self.op == "Conv"
        return Window(
            self.op, self.kernel, self.strides, self.dilations, self.pads, "NOTSET",
            self.group if weighted else 1, self.weight if weighted else None, self.source,
            self.output, (0,) * len(self.strides), None,
        )  # fmt: skip

    def text(self) -> str:
        """``Conv 3x3, 8 -> 16 channels, stride 2x2, input 32x32``."""
        channels = f"{self.in_channels} -> {self.out_channels}"
        parts = [f"{self.op} {times(self.kernel)}"]
        parts[0] += f", {channels if self.op == 'Conv' else self.in_channels} channels"
        parts += [f"stride {times(self.strides)}"] if set(self.strides) != {1} else []
        parts += [f"dilation {times(self.dilations)}"] if set(self.dilations) != {1} else []
        parts += [f"group {self.group}"] if self.group > 1 and self.op == "Conv" else []
        parts += [f"input {times(self.extents)}"] if self.sized else []
        return ", ".join(parts)


def times(values: Sequence[object]) -> str:
    """``3x3``."""
    return "x".join(map(str, values))


def elements(dims: Sequence[int | None]) -> int:
    """Elements of a tensor; an unknown extent counts as one."""
    return math.prod(1 if d is None else d for d in dims)


def of_window(win: Window, *, bias: bool, uniform: bool = False) -> Layer | None:
    """The layer of a window; None unless it is a Conv with known weights and explicit pads."""
    if win.op != "Conv" or win.kernel is None or win.weight is None or win.auto_pad != "NOTSET":
        return None
    dims: Dims = win.input or (None,) * len(win.weight)
    if len(dims) != len(win.weight) or len(win.strides) != len(win.kernel):
        return None
    numbers = tuple(d if isinstance(d, int) else None for d in dims)
    return Layer(
        (numbers[0], win.weight[1] * win.group, *numbers[2:]), win.weight, win.strides,
        win.dilations, win.pads, win.group, bias, uniform,
    )  # fmt: skip


def constants_obstacle(node: Node) -> str:
    """Return why weights or bias of a convolution cannot be rewritten, or ''."""
    if query.constant_input(node, 1) is None:
        return "its weights are not constant"
    if query.input_of(node, 2) is not None and query.constant_input(node, 2) is None:
        return "its bias is not constant"
    return ""


def layer_of(node: Node, target: Target) -> Layer | str:
    """Return the layer of a node, or why it cannot be rewritten."""
    win, weight, reason = window(node), query.constant_input(node, 1), constants_obstacle(node)
    if weight is None or reason:
        return reason
    bias = query.input_of(node, 2) is not None
    uniform = weight.size > 0 and bool((weight == weight.reshape(-1)[0]).all())
    layer = None if win is None else of_window(win, bias=bias, uniform=uniform)
    if layer is None:
        return "its pads or the extents of its weights are not known"
    return replace(layer, from_host=is_from_host(node.inputs[0], target))


def is_from_host(tensor: Tensor, target: Target) -> bool:
    """Return whether no convolution is before a tensor, other than before nodes of the host.

    Without a convolution in front, nodes of the device would save no crossing.
    """
    sources, visited = [tensor], set[int]()
    for source in sources:
        producer = query.producer(source)
        if producer is None or id(producer) in visited:
            continue
        if producer.op == "Conv":
            return False
        visited.add(id(producer))
        if producer.op in CUTTING or takes_as(producer.op, producer, target, after_conv=True):
            sources += producer.inputs
    return True
