"""One convolution, transposed convolution or pool as a value, and its window arithmetic.

The formulas are from the ONNX operator texts (Conv-11, ConvTranspose-11, pooling),
which every runtime follows also where Conv-1 and ConvTranspose-1 read differently. Functions
that take one kernel extent are about one spatial axis.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import Any

from npuconv.lazy import np
from npuconv.model import nhwc, query
from npuconv.model.core import Node, Tensor
from npuconv.records import dataclass

Pairs = query.Pairs  # (begin, end) of every spatial axis
Dims = tuple[int | str | None, ...]
SAME = ("SAME_UPPER", "SAME_LOWER")
_CHANNEL_AXES = 2  # number of axes of weights before the axes of the kernel
_SLIDING = frozenset(query.CONVOLUTIONS + query.POOLS)
_ATTRIBUTES = (
    "kernel_shape", "strides", "dilations", "pads", "auto_pad", "group",
    "output_padding", "output_shape",
)  # fmt: skip


@dataclass(frozen=True)
class Window:
    """A Conv, ConvTranspose or pool of any opset.

    Spatial tuples have one entry per spatial axis. ``None`` is unknown.
    """

    op: str
    kernel: tuple[int, ...] | None
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pairs  # (begin, end) per axis as written; zeros by default
    auto_pad: str
    group: int
    weight: tuple[int, ...] | None  # O, I/group, k... (ConvTranspose: I, O/group, k...)
    input: Dims | None
    output: Dims | None
    output_padding: tuple[int, ...]
    output_shape: tuple[int, ...] | None

    @property
    def axes(self) -> int | None:
        """Number of spatial axes."""
        if self.kernel is not None:
            return len(self.kernel)
        dims = self.input or self.output
        return len(dims) - 2 if dims else None

    @property
    def is_consistent(self) -> bool:
        """Return whether all attributes have one value per spatial axis; else rules report it."""
        return {len(self.strides), len(self.dilations), len(self.output_padding)} == {self.axes}

    @property
    def in_channels(self) -> int | None:
        """Input channels, from the weight if there is one."""
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

    @property
    def attributes(self) -> dict[str, Any]:
        """All attributes of a Conv."""
        return {
            "auto_pad": self.auto_pad,
            "dilations": list(self.dilations),
            "group": self.group,
            "kernel_shape": list(self.kernel or ()),
            "pads": flat_pads(self.pads),
            "strides": list(self.strides),
        }

    def extent(self, axis: int) -> int | None:
        """Return the input extent of a spatial axis, if known."""
        return _number(self.input, axis + 2)

    def output_extent(self, axis: int) -> int | None:
        """Return the output extent of a spatial axis with explicit pads, if known."""
        extent = self.extent(axis)
        if extent is None or self.kernel is None or self.auto_pad != "NOTSET" or self.output_shape:
            return None
        slide = (self.kernel[axis], self.strides[axis], self.dilations[axis], self.pads[axis])
        if self.op == "ConvTranspose":
            return transpose_output(extent, *slide, self.output_padding[axis])
        return conv_output(extent, *slide)

    def parameters(self) -> int:
        """Return the number of weights."""
        return math.prod(self.weight) if self.weight else 0

    @cached_property
    def reach(self) -> int:
        """Cells that the kernel spans along its longest axis; 1 if it is unknown."""
        if self.kernel is None:
            return 1
        return max(map(effective_kernel, self.kernel, self.dilations), default=1)

    @cached_property
    def macs(self) -> int | None:
        """Multiply-accumulates of one inference, or None with an unknown extent."""
        if not self.weight:
            return 0
        cells = self.input if self.op == "ConvTranspose" else self.output
        if not cells or any(not isinstance(d, int) for d in cells[2:]):
            return None
        batch = cells[0] if isinstance(cells[0], int) else 1
        return self.parameters() * batch * math.prod(int(d or 0) for d in cells[2:])


def window(node: Node) -> Window | None:
    """Return the node as a Window, or None for other operators and an unknown rank.

    Extents are channels first also if the operator has its channels last.
    """
    op = node.op
    if op not in _SLIDING:
        return None
    if not (query.is_standard(node) or nhwc.is_nhwc(node)):
        return None  # an operator of an unknown domain
    lookup, inputs, outputs = node.attrs.get, node.inputs, node.outputs
    attrs = tuple([tuple(v) if type(v) is list else v for v in map(lookup, _ATTRIBUTES)])
    weight = _dims(query.input_of(node, 1)) if op in query.CONVOLUTIONS else None
    source = _dims(inputs[0]) if len(inputs) else None
    result = _dims(outputs[0]) if len(outputs) else None
    return _window(op, nhwc.is_nhwc(node), attrs, weight, source, result)


def _dims(tensor: Tensor | None) -> tuple[Any, ...] | None:
    return None if tensor is None or tensor.shape is None else tuple(tensor.shape)


# Every pass, rule and cost needs windows, and a network has few different windows.
@lru_cache(maxsize=4096)
def _window(
    op: str,
    last: bool,
    attrs: tuple[Any, ...],
    weight: tuple[Any, ...] | None,
    source: tuple[Any, ...] | None,
    result: tuple[Any, ...] | None,
) -> Window | None:
    attributes = dict(zip(_ATTRIBUTES, attrs, strict=True))
    read, dims = _channels_first(source, last), query.dimensions(weight) or ()
    numbers = tuple(d for d in dims if isinstance(d, int))
    fixed = numbers if _CHANNEL_AXES <= len(numbers) == len(dims) else None  # else rules report it
    kernel = _ints(attributes["kernel_shape"]) or (fixed[2:] if fixed else None)
    axes = len(kernel) if kernel else (len(read) - 2 if read else None)
    if axes is None:
        return None
    shape = _ints(attributes["output_shape"])  # a rule reports a wrong length
    return Window(
        op=op,
        kernel=kernel,
        strides=_ints(attributes["strides"]) or (1,) * axes,
        dilations=_ints(attributes["dilations"]) or (1,) * axes,
        pads=_pads(attributes["pads"], axes),
        auto_pad=str(attributes["auto_pad"] or "NOTSET"),
        group=1 if attributes["group"] is None else int(attributes["group"]),
        weight=fixed,
        input=read,
        output=_channels_first(result, last),
        output_padding=_ints(attributes["output_padding"]) or (0,) * axes,
        output_shape=shape if shape and len(shape) == axes else None,
    )


def _channels_first(dims: tuple[Any, ...] | None, last: bool) -> Dims | None:
    extents = query.dimensions(dims)
    return nhwc.channels_first(extents) if extents and last else extents


def resolved_pads(win: Window) -> tuple[Pairs, tuple[int, ...]] | int:
    """Return explicit pads and output padding of every axis.

    Returns:
        (pads, output_padding), or the first axis whose extent is needed but unknown.
    """
    if win.kernel is None:
        return 0
    pads: list[tuple[int, int]] = []
    extra: list[int] = []
    for axis in range(len(win.kernel)):
        amounts = _axis_pads(win, axis)
        if amounts is None:
            return axis
        pads.append(amounts[:2])
        extra.append(amounts[2])
    return tuple(pads), tuple(extra)


def _axis_pads(win: Window, axis: int) -> tuple[int, int, int] | None:
    assert win.kernel is not None
    kernel, stride, dilation = win.kernel[axis], win.strides[axis], win.dilations[axis]
    if win.op == "ConvTranspose":
        output = win.output_shape[axis] if win.output_shape else None
        if output is None and win.auto_pad == "NOTSET":
            return (*win.pads[axis], win.output_padding[axis])
        return transpose_pads(
            win.auto_pad, win.extent(axis), kernel, stride, dilation,
            win.output_padding[axis], output,
        )  # fmt: skip
    if win.auto_pad == "NOTSET":
        return (*win.pads[axis], 0)
    pads = conv_pads(win.auto_pad, win.extent(axis), kernel, stride, dilation)
    return None if pads is None else (*pads, 0)


def flat_pads(pads: Pairs) -> list[int]:
    """Return pads in ONNX's order: all begins, then all ends."""
    return [begin for begin, _ in pads] + [end for _, end in pads]


def _pads(values: Any, axes: int) -> Pairs:
    flat = _ints(values) or (0,) * (2 * axes)
    if len(flat) != 2 * axes:
        return ((0, 0),) * axes  # attribute-contradicts-weight reports it
    return tuple(zip(flat[:axes], flat[axes:], strict=True))


def _ints(values: Any) -> tuple[int, ...] | None:
    return tuple(map(int, values)) if values else None


def _number(dims: Dims | None, axis: int) -> int | None:
    if dims is None or axis >= len(dims):
        return None
    dim = dims[axis]
    return dim if isinstance(dim, int) else None


def block_diagonal(array: np.ndarray, group: int) -> np.ndarray:
    """Return the weights of one convolution that computes all groups of another.

    Args:
        array: O x I/group x kernel.
        group: number of groups.

    Returns:
        O x I x kernel, zero where an output channel does not read an input channel.
    """
    outputs, inputs = array.shape[0] // group, array.shape[1]
    result = np.zeros((array.shape[0], inputs * group, *array.shape[2:]), array.dtype)
    for number in range(group):
        rows = slice(number * outputs, (number + 1) * outputs)
        result[rows, number * inputs : (number + 1) * inputs] = array[rows]
    return result


def diagonal_groups(array: np.ndarray) -> int:
    """Return the largest number of groups for which weights are block-diagonal; 1 if not."""
    outputs, inputs = array.shape[:2]
    if not array.size or array[0, -1].any() or array[-1, 0].any():
        return 1
    rows, columns = np.nonzero(array.reshape(outputs, inputs, -1).any(axis=2))
    counts = (n for n in range(math.gcd(outputs, inputs), 1, -1) if not (outputs % n or inputs % n))
    return next((n for n in counts if (rows * n // outputs == columns * n // inputs).all()), 1)


def diagonal_blocks(array: np.ndarray, group: int) -> np.ndarray:
    """Return the weights without the zeros between groups: the inverse of ``block_diagonal``."""
    outputs, inputs = array.shape[0] // group, array.shape[1] // group
    rows = array.reshape(group, outputs, group, inputs, *array.shape[2:])
    return np.concatenate([rows[number, :, number] for number in range(group)])


def effective_kernel(kernel: int, dilation: int) -> int:
    """Return the extent of a dilated kernel: ``(k - 1) * d + 1``."""
    return (kernel - 1) * dilation + 1


def split_total(total: int, mode: str) -> tuple[int, int]:
    """Split a total padding into begin and end; SAME_UPPER puts the odd cell at the end."""
    begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
    return begin, total - begin


def conv_pads(
    mode: str, extent: int | None, kernel: int, stride: int, dilation: int
) -> tuple[int, int] | None:
    """Return the explicit pads of a convolution or pool with ``auto_pad``.

    The mode is SAME_UPPER, SAME_LOWER or VALID; an extent that is not known is None.

    Returns:
        (begin, end), or None if the extent is needed but unknown: with stride 1 the total
        is ``e - 1`` for every extent.
    """
    if mode == "VALID":
        return 0, 0
    if extent is None and stride != 1:
        return None
    extent = extent or 1  # with stride 1 any extent has the same total
    cells = -(-extent // stride)
    total = (cells - 1) * stride + effective_kernel(kernel, dilation) - extent
    return split_total(max(total, 0), mode)


def conv_output(extent: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
    """Return the output extent of a convolution with explicit pads."""
    return (extent + sum(pads) - effective_kernel(kernel, dilation)) // stride + 1


def pool_output(
    extent: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], *, ceil: bool
) -> int:
    """Return the output extent of a pool, without a last window that starts beyond the input."""
    count = conv_output(extent, kernel, stride, dilation, pads)
    partial = (extent + sum(pads) - effective_kernel(kernel, dilation)) % stride
    return count + (ceil and partial > 0 and count * stride < extent + pads[0])


def transpose_total(
    extent: int, kernel: int, stride: int, dilation: int, output_padding: int, output: int
) -> int:
    """Return the total padding of a transposed convolution for a given output extent."""
    full = stride * (extent - 1) + output_padding + effective_kernel(kernel, dilation)
    return full - output


def transpose_pads(
    mode: str,
    extent: int | None,
    kernel: int,
    stride: int,
    dilation: int,
    output_padding: int = 0,
    output: int | None = None,
) -> tuple[int, int, int] | None:
    """Return the explicit pads of a ConvTranspose.

    The mode is NOTSET (with an output extent), SAME_UPPER, SAME_LOWER or VALID; ``output_padding``
    cells are appended at the end.

    Returns:
        (begin, end, output_padding), or None if the extent is needed but unknown. With a
        negative total there are no pads, and the missing cells are appended at the end.
    """
    if output is None and mode not in SAME:
        return 0, 0, output_padding
    if output is None:
        # extent * stride cells: the input extent cancels out of the formula.
        extent = extent or 1
        output = extent * stride
    if extent is None:
        return None
    total = transpose_total(extent, kernel, stride, dilation, output_padding, output)
    if total < 0:
        return 0, 0, output_padding - total
    begin, end = split_total(total, mode)
    return begin, end, output_padding


def transpose_output(
    extent: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], extra: int
) -> int:
    """Return the output extent of a transposed convolution with explicit pads."""
    return transpose_total(extent, kernel, stride, dilation, extra, 0) - sum(pads)
