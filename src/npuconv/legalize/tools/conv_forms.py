"""Convolutions that rewrites make: limits on rank, and forms of other operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

from npuconv.lazy import np
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.tools.layout import NEW, AxisMap
from npuconv.model import Model, Node, Tensor, Window, edit
from npuconv.model.conv import Dims, Pairs, conv_output
from npuconv.records import dataclass


def refuses_rank(device: TargetDevice, win: Window) -> bool:
    """Return whether a known limit of the target's Conv excludes the rank of this one."""
    conv = device.target.operator("Conv")
    if conv is None or win.axes is None:
        return False
    rank = conv.limits_for(win.mode).get("rank")
    return rank is not None and rank.allows(win.axes + 2, {}) is False


AXES_AS_INPUT = 13  # first opset in which Squeeze and Unsqueeze read their axes
NO_PADS: Pairs = ((0, 0), (0, 0))


@dataclass(frozen=True)
class Layout:
    """Conversion of a tensor to N x C x H x W for a convolution, and of its result back.

    It only moves values, so it is exact on int8 tensors too.
    """

    into: AxisMap  # order of axes that the convolution sees
    back: AxisMap  # order of axes of the result

    @classmethod
    def from_axes(cls, *axes: int) -> Layout:
        """Return the layout of a convolution over these axes of a tensor; the result has them."""
        into = AxisMap(axes, sum(axis != NEW for axis in axes))
        return cls(into, into.inverse)

    @property
    def transposes(self) -> int:
        """Return the number of Transposes it takes."""
        return self.into.transposes + self.back.transposes

    def apply(self, dims: Dims) -> Dims:
        """Return the shape that the convolution sees."""
        return tuple(self.into.apply(dims, 1))

    def text(self) -> str:
        """Return the text of the operators around the convolution."""
        parts = ["Transpose"] * self.transposes
        parts += ["Unsqueeze", "Squeeze"] if NEW in self.into.axes else []
        return f" with {', '.join(dict.fromkeys(parts))}" if parts else ""


@dataclass(frozen=True)
class ConvForm:
    """A convolution that computes the same as an operator."""

    source: Tensor
    layout: Layout
    win: Window
    weight: np.ndarray  # float32, O x I/group x kH x kW
    bias: np.ndarray | None = None  # float32, one per output channel

    def text(self) -> str:
        """Describe the convolution."""
        kernel = "x".join(map(str, self.win.kernel or ()))
        inputs, outputs = self.win.in_channels, self.win.out_channels
        if self.win.group == 1:
            return f"Conv {kernel}, {inputs} -> {outputs} channels{self.layout.text()}"
        return f"depthwise Conv {kernel}, {outputs} channels{self.layout.text()}"


# Layouts of N x C and up to two more axes, by rank.
CHANNELS_SECOND = {
    2: Layout.from_axes(0, 1, NEW, NEW),
    3: Layout.from_axes(0, 1, NEW, 2),
    4: Layout.from_axes(0, 1, 2, 3),
}


def considered(
    weight: tuple[int, ...],
    source: Dims,
    *,
    group: int = 1,
    strides: tuple[int, ...] = (1, 1),
    dilations: tuple[int, ...] = (1, 1),
    pads: Pairs = NO_PADS,
) -> Window:
    """Return a two-dimensional convolution that is not in the graph."""
    kernel = weight[2:]
    axes = zip(source[2:], kernel, strides, dilations, pads, strict=True)
    output = (source[0], weight[0], *(_extent(*axis) for axis in axes))
    return Window(
        "Conv", kernel, strides, dilations, pads, "NOTSET", group, weight, source, output,
        output_padding=(0, 0), output_shape=None,
    )  # fmt: skip


def _extent(
    dim: int | str | None, kernel: int, stride: int, dilation: int, pads: tuple[int, int]
) -> int | str | None:
    if isinstance(dim, int):
        return conv_output(dim, kernel, stride, dilation, pads)
    return dim if (kernel, stride, pads) == (1, 1, (0, 0)) else None


def obstacle(
    model: Model, device: TargetDevice, layout: Layout, win: Window, *, fits: bool = False
) -> str:
    """Return the reason why this convolution is not possible, or ''.

    With ``fits`` the convolution may itself be rewritten to keep the limits.
    """
    if NEW in layout.into.axes and model.opset < AXES_AS_INPUT:
        return f"opset {model.opset} has no Unsqueeze that reads its axes"
    faults = device.objections(win)
    # A bias that the device does not add would be an Add again, and that a convolution.
    bias = [text for text in faults if text.startswith("bias ")]
    bias = bias if bias and device.adds_bias(win) else []
    return next(iter(bias or (device.lasting_objections(win) if fits else faults)), "")


def type_obstacle(array: np.ndarray) -> str:
    """Return why the type of this constant rules out the device, or ''."""
    return "" if array.dtype.name == "float32" else f"it computes in {array.dtype.name}"


def replace_by_conv(
    model: Model, log: Log, nodes: Sequence[Node], form: ConvForm | str, *, is_whole: bool = False
) -> int:
    """Replace nodes in a row by a convolution; return 1, or 0 if ``form`` is an obstacle.

    With ``is_whole`` the convolution holds for its own extents only.
    """
    if isinstance(form, str):
        return log.refuse(model, nodes[0], form)
    modulus = None if is_whole else math.lcm(*form.win.strides)
    with log.rewrite(model, nodes, " + ".join(n.op for n in nodes), form.text(), modulus=modulus):
        edit.inherit(model, nodes[0], *nodes[1:])
        edit.replace(convolve(model, nodes[0], form), *nodes)
    return 1


def convolve(model: Model, node: Node, form: ConvForm) -> Tensor:
    """Add the convolution, between the nodes of its layout.

    Returns:
        Its result, in the layout of the source.
    """
    layout, win, stem = form.layout, form.win, model.label(node)
    source = layout.into.insert(model, node, form.source)
    inputs = [source, edit.constant(model, f"{stem}/weight", form.weight)]
    if form.bias is not None:
        inputs.append(edit.constant(model, f"{stem}/bias", form.bias))
    attrs, shape = win.attributes, win.output
    result = edit.insert(model, "Conv", inputs, origin=[node], shape=shape, attrs=attrs)
    return layout.back.insert(model, node, result)
