"""One convolution, transposed convolution or pool as a value: attributes, shapes, costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from npuconv.model import geometry, nhwc, query

if TYPE_CHECKING:
    from npuconv.model.types import Node, Tensor

Pairs = tuple[tuple[int, int], ...]
_SLIDING = frozenset(query.CONVOLUTIONS + query.POOLS)
_ATTRIBUTES = (
    "kernel_shape", "strides", "dilations", "pads", "auto_pad", "group",
    "output_padding", "output_shape",
)  # fmt: skip


@dataclass(frozen=True)
class Window:
    """A node that slides a kernel: Conv, ConvTranspose and the pools, at any version.

    Spatial tuples have one entry per spatial axis. ``None`` is "not known".
    """

    op: str
    kernel: tuple[int, ...] | None
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pairs  # (begin, end) per axis, as written, zeros where not
    auto_pad: str
    group: int
    weight: tuple[int, ...] | None  # O, I/group, k... (ConvTranspose: I, O/group, k...)
    input: tuple[int | str | None, ...] | None
    output: tuple[int | str | None, ...] | None
    output_padding: tuple[int, ...]
    output_shape: tuple[int, ...] | None

    @property
    def axes(self) -> int | None:
        """Number of spatial axes."""
        if self.kernel is not None:
            return len(self.kernel)
        known = self.input or self.output
        return len(known) - 2 if known else None

    @property
    def in_channels(self) -> int | None:
        """Input channels, from the weight where there is one."""
        if self.weight is not None:
            return self.weight[0] if self.op == "ConvTranspose" else self.weight[1] * self.group
        return _number(self.input, 1)

    @property
    def out_channels(self) -> int | None:
        """Output channels."""
        if self.weight is not None:
            return self.weight[1] * self.group if self.op == "ConvTranspose" else self.weight[0]
        return self.in_channels

    @property
    def mode(self) -> str:
        """plain, grouped, depthwise (group = C) or transposed."""
        if self.op == "ConvTranspose":
            return "transposed"
        if self.group == 1:
            return "plain"
        return "depthwise" if self.group == self.in_channels else "grouped"

    def extent(self, axis: int) -> int | None:
        """Input extent of a spatial axis, if known."""
        return _number(self.input, axis + 2)

    def parameters(self) -> int:
        """Number of weights."""
        return math.prod(self.weight) if self.weight else 0

    @cached_property
    def reach(self) -> int:
        """Cells that the kernel spans along its longest axis; 1 where it is not known."""
        if self.kernel is None:
            return 1
        return max(map(geometry.effective_kernel, self.kernel, self.dilations), default=1)

    @cached_property
    def macs(self) -> int | None:
        """Multiply-accumulates of one inference, or None with an unknown extent."""
        if not self.weight:
            return 0
        cells = self.input if self.op == "ConvTranspose" else self.output
        if cells is None or any(not isinstance(d, int) for d in cells[2:]):
            return None
        batch = cells[0] if isinstance(cells[0], int) else 1
        return self.parameters() * batch * math.prod(int(d or 0) for d in cells[2:])


def window(node: Node) -> Window | None:
    """The node as a Window, or None if it is none or its rank cannot be told.

    Extents are in the order of ONNX also where the operator has the channels last.
    """
    if node.op not in _SLIDING:
        return None
    if not (query.is_standard(node) or nhwc.is_nhwc(node)):
        return None  # what an operator of another domain means is not known
    given, inputs, outputs = node.attrs.get, node.inputs, node.outputs
    attrs = tuple([tuple(v) if type(v) is list else v for v in map(given, _ATTRIBUTES)])
    weight = _dims(query.input_of(node, 1)) if node.op in query.CONVOLUTIONS else None
    source = _dims(inputs[0]) if len(inputs) else None
    result = _dims(outputs[0]) if len(outputs) else None
    return _window(node.op, nhwc.is_nhwc(node), attrs, weight, source, result)


def _dims(tensor: Tensor | None) -> tuple[Any, ...] | None:
    """The shape as it is written."""
    return None if tensor is None or tensor.shape is None else tuple(tensor.shape)


# Every pass, rule and cost asks for windows, and a network has few that are different.
@lru_cache(maxsize=4096)
def _window(
    op: str,
    last: bool,
    attrs: tuple[Any, ...],
    weight: tuple[Any, ...] | None,
    source: tuple[Any, ...] | None,
    result: tuple[Any, ...] | None,
) -> Window | None:
    given = dict(zip(_ATTRIBUTES, attrs, strict=True))
    fixed, read = _all_numbers(query.dimensions(weight)), _ordered(source, last)
    kernel = _ints(given["kernel_shape"]) or (fixed[2:] if fixed else None)
    axes = len(kernel) if kernel else (len(read) - 2 if read else None)
    if axes is None:
        return None
    return Window(
        op=op,
        kernel=kernel,
        strides=_ints(given["strides"]) or (1,) * axes,
        dilations=_ints(given["dilations"]) or (1,) * axes,
        pads=_pads(given["pads"], axes),
        auto_pad=str(given["auto_pad"] or "NOTSET"),
        group=1 if given["group"] is None else int(given["group"]),
        weight=fixed,
        input=read,
        output=_ordered(result, last),
        output_padding=_ints(given["output_padding"]) or (0,) * axes,
        output_shape=_output_shape(given["output_shape"], axes),
    )


def _ordered(dims: tuple[Any, ...] | None, last: bool) -> tuple[int | str | None, ...] | None:
    known = query.dimensions(dims)
    return nhwc.channels_first(known) if known and last else known


def resolved_pads(win: Window) -> tuple[Pairs, tuple[int, ...]] | int:
    """Explicit pads and output padding of every axis.

    Returns:
        (pads, output_padding), or the number of the first axis whose extent is needed
        but unknown.
    """
    if win.kernel is None:
        return 0
    pads: list[tuple[int, int]] = []
    extra: list[int] = []
    for axis in range(len(win.kernel)):
        found = _axis_pads(win, axis)
        if found is None:
            return axis
        pads.append(found[:2])
        extra.append(found[2])
    return tuple(pads), tuple(extra)


def _axis_pads(win: Window, axis: int) -> tuple[int, int, int] | None:
    assert win.kernel is not None
    kernel, stride, dilation = win.kernel[axis], win.strides[axis], win.dilations[axis]
    if win.op == "ConvTranspose":
        wanted = win.output_shape[axis] if win.output_shape else None
        if wanted is None and win.auto_pad == "NOTSET":
            return (*win.pads[axis], win.output_padding[axis])
        return geometry.transpose_pads(
            win.auto_pad, win.extent(axis), kernel, stride, dilation,
            win.output_padding[axis], wanted,
        )  # fmt: skip
    if win.auto_pad == "NOTSET":
        return (*win.pads[axis], 0)
    pads = geometry.conv_pads(win.auto_pad, win.extent(axis), kernel, stride, dilation)
    return None if pads is None else (*pads, 0)


def flat_pads(pads: Pairs) -> list[int]:
    """ONNX's order: all begins, then all ends."""
    return [begin for begin, _ in pads] + [end for _, end in pads]


def _pads(values: Any, axes: int) -> Pairs:
    flat = _ints(values) or (0,) * (2 * axes)
    if len(flat) != 2 * axes:
        return ((0, 0),) * axes  # attribute-contradicts-weight reports it
    return tuple(zip(flat[:axes], flat[axes:], strict=True))


def _output_shape(values: Any, axes: int) -> tuple[int, ...] | None:
    shape = _ints(values)
    return shape if shape and len(shape) == axes else None  # else attribute-contradicts-weight


def _ints(values: Any) -> tuple[int, ...] | None:
    return tuple(map(int, values)) if values else None


def _number(dims: tuple[int | str | None, ...] | None, axis: int) -> int | None:
    if dims is None or axis >= len(dims):
        return None
    dim = dims[axis]
    return dim if isinstance(dim, int) else None


def _all_numbers(dims: tuple[int | str | None, ...] | None) -> tuple[int, ...] | None:
    if dims is None or any(not isinstance(d, int) for d in dims):
        return None
    return tuple(d for d in dims if isinstance(d, int))
