"""Turn transposed convolutions into plain ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from npuconv.legalize.forms import Form, choose, chosen
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.conv_forms import objections
from npuconv.legalize.tools.layout import reshape, transpose
from npuconv.model import edit, query
from npuconv.model.conv import effective_kernel, flat_pads, window
from npuconv.partition.costs import Cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from npuconv.legalize.context import PassContext
    from npuconv.model.conv import Window
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

AXES = 2


@dataclass(frozen=True)
class Candidate:
    """One form of a transposed convolution."""

    form: str
    win: Window  # the convolution it needs
    axes: tuple[Axis, Axis]

    @property
    def phases(self) -> tuple[int, int]:
        """Cells of the result in one cell of the convolution, by axis."""
        return self.axes[0].phases, self.axes[1].phases

    @property
    def modulus(self) -> int | None:
        """The Reshapes that unequal phases need hold for their own extents only."""
        return 1 if self.phases[0] == self.phases[1] else None

    def text(self) -> str:
        """``sub-pixel Conv 2x2, 256 channels + DepthToSpace + Slice``."""
        kernel = "x".join(str(axis.kernel) for axis in self.axes)
        parts = [f"Conv {kernel}, {self.win.out_channels} channels"]
        stretched = any(axis.stretch > 1 for axis in self.axes)
        if stretched:
            parts.insert(0, "zeros inserted")
        if max(self.phases) > 1:
            same = self.phases[0] == self.phases[1]
            parts.append("DepthToSpace" if same else "Reshape and Transpose")
        if any(any(axis.crop) for axis in self.axes):
            parts.append("Slice")
        plain = not stretched and max(self.phases) == 1
        return ("" if plain else f"{self.form} form: ") + " + ".join(parts)


@model_pass(Phase.LEGALIZE, after=("resolve-auto-pad", "rewrite-1d-as-2d"), infers=True)
def rewrite_conv_transpose_as_conv(model: Model, ctx: PassContext) -> int:
    """Turn transposed convolutions into plain ones.

    With stride 1 the kernel is turned around and the pads become ``e - 1 - pad``. With a
    larger stride there are two forms, and the cheaper one that the target takes is chosen
    (``--prefer sub-pixel`` or ``zero-insertion`` overrides):

    - sub-pixel: the output cells of one stride are channels of one convolution over the
      input, which DepthToSpace (CRD) puts side by side, and a Slice crops. Strides may
      differ between the axes and need not divide the kernel.
    - zero-insertion: ``s - 1`` zeros behind each cell, then a convolution of stride 1. It
      multiplies with all these zeros, so it has up to ``s * s`` times the MACs. Equal
      strides only.

    Groups stay groups, a depthwise one stays depthwise.
    """
    if model.opset < 13:
        return 0
    return sum(_rewrite(model, ctx, node) for node in model.nodes("ConvTranspose"))


def _rewrite(model: Model, ctx: PassContext, node: Node) -> int:
    win = window(node)
    reason = _obstacle(node, win)
    if reason or win is None:
        ctx.refuse(model, node, reason)
        return 0
    candidates = {c.form: c for c in _candidates(win)}
    forms = choose(ctx.target, ctx.options, [_form(ctx, win, c) for c in candidates.values()])
    best = chosen(forms)
    if best is None:
        ctx.refuse(model, node, "; ".join(f"{f.name}: {f.obstacle}" for f in forms))
        return 0
    candidate = candidates[best.name]
    strides = "x".join(map(str, win.strides))
    before = f"ConvTranspose {'x'.join(map(str, win.kernel or ()))} stride {strides}"
    after, modulus = candidate.text(), candidate.modulus
    with ctx.rewrite(model, [node], before, after, modulus=modulus) as record:
        record.forms = forms if len(forms) > 1 else ()
        _replace(model, node, win, candidate)
    return 1


def _obstacle(node: Node, win: Window | None) -> str:
    if win is None or win.kernel is None or win.weight is None:
        return "the extents of its weights are not known"
    if len(win.kernel) != AXES:
        return f"it has {len(win.kernel)} spatial axes, not {AXES}"
    if win.auto_pad != "NOTSET" or win.output_shape:
        return "its pads are not resolved"
    if query.dtype_name(query.input_of(node, 1)) != "float32":
        return "its weights are not float32"
    if query.constant_input(node, 1) is None:
        return "its weights are not constant"
    if query.input_of(node, 2) is not None and query.constant_input(node, 2) is None:
        return "its bias is not constant"
    return ""


def _candidates(win: Window) -> list[Candidate]:
    first = Candidate("sub-pixel", win, (sub_pixel(win, 0), sub_pixel(win, 1)))
    found = [first]
    if win.strides[0] == win.strides[1] > 1:
        axes = (zero_insertion(win, 0), zero_insertion(win, 1))
        found.append(Candidate("zero-insertion", win, axes))
    return [replace(c, win=_as_conv(win, c.axes)) for c in found]


def _as_conv(win: Window, axes: tuple[Axis, Axis]) -> Window:
    assert win.weight is not None
    kernel = tuple(axis.kernel for axis in axes)
    channels = (win.out_channels or 0) * math.prod(axis.phases for axis in axes)
    dims = win.input or (None,) * (AXES + 2)
    grown = tuple(d * a.stretch if isinstance(d, int) else None for d, a in _spatial(dims, axes))
    cells = tuple(a.cells(d) if isinstance(d, int) else None for d, a in _spatial(dims, axes))
    return replace(
        win,
        op="Conv",
        kernel=kernel,
        strides=(1,) * AXES,
        dilations=tuple(axis.dilation for axis in axes),
        pads=tuple(axis.pads for axis in axes),
        weight=(channels, win.weight[0] // win.group, *kernel),
        input=(dims[0], dims[1], *grown),
        output=(dims[0], channels, *cells),
        output_padding=(0,) * AXES,
    )


def _spatial(
    dims: tuple[int | str | None, ...], axes: tuple[Axis, Axis]
) -> list[tuple[int | str | None, Axis]]:
    return list(zip(dims[2:], axes, strict=True))


def _form(ctx: PassContext, win: Window, candidate: Candidate) -> Form:
    """Return a candidate with its cost; results of phases and inserted zeros are moved."""
    conv = candidate.win
    moved = conv.output if max(candidate.phases) > 1 else conv.input
    known = [d for d in (moved or ())[1:] if isinstance(d, int)]
    cells = math.prod(known) if max(win.strides) > 1 and len(known) == AXES + 1 else 0
    against = objections(ctx, conv)
    cost = Cost(conv.macs, conv.parameters(), 1)
    return Form(candidate.form, cost, cells, against[0] if against else "")


def _replace(model: Model, node: Node, win: Window, candidate: Candidate) -> None:
    source = node.inputs[0]
    if candidate.axes[0].stretch > 1:
        source = _insert_zeros(model, node, win, candidate.axes[0].stretch)
    result = _convolve(model, node, win, candidate.win, candidate.axes, source)
    result = _side_by_side(model, node, candidate.win, candidate.phases, result)
    result = _crop(model, node, candidate.axes, result)
    edit.hand_over(result, node.outputs[0])
    edit.disconnect(node)


FOREVER = 2**63 - 1  # as the end of a Slice: to the end, whatever the extent


def _weights(array: np.ndarray, group: int, axes: tuple[Axis, Axis]) -> np.ndarray:
    """The weights of the convolution.

    Args:
        array: of the ConvTranspose, float32, C x M/group x kH x kW.
        group: number of groups.
        axes: what becomes of height and width.

    Returns:
        float32, (M * phases of height * phases of width) x C/group x taps x taps, the
        phases of one channel beside each other.
    """
    import numpy as np

    inputs, outputs = array.shape[0] // group, array.shape[1]
    grouped = array.reshape(group, inputs, outputs, *array.shape[2:])
    padded = np.pad(grouped, [(0, 0)] * 3 + [(0, 1)] * 2)  # index k is a zero
    rows, columns = (_indices(axis, array.shape[2 + i]) for i, axis in enumerate(axes))
    taps = padded[..., rows[:, :, None, None], columns[None, None]]
    # group, C/group, M/group, phases, taps, phases, taps
    moved = taps.transpose(0, 2, 3, 5, 1, 4, 6)
    return np.ascontiguousarray(moved.reshape(-1, inputs, *moved.shape[-2:]))


def _indices(axis: Axis, extent: int) -> np.ndarray:
    import numpy as np

    return np.array([[extent if tap is None else tap for tap in phase] for phase in axis.taps])


def _convolve(
    model: Model, node: Node, old: Window, new: Window, axes: tuple[Axis, Axis], source: Tensor
) -> Tensor:
    """The convolution; its bias is repeated for each phase."""
    import numpy as np

    array, bias = query.constant_input(node, 1), query.constant_input(node, 2)
    assert array is not None
    inputs = [
        source,
        edit.constant(model, f"{node.name}/weight", _weights(array, old.group, axes)),
    ]
    if bias is not None:
        repeated = np.repeat(bias, axes[0].phases * axes[1].phases)
        inputs.append(edit.constant(model, f"{node.name}/bias", repeated))
    attrs = {
        "auto_pad": "NOTSET",
        "dilations": list(new.dilations),
        "group": new.group,
        "kernel_shape": list(new.kernel or ()),
        "pads": flat_pads(new.pads),
        "strides": list(new.strides),
    }
    return edit.insert(model, "Conv", inputs, origin=[node], shape=new.output, attrs=attrs)


def _side_by_side(
    model: Model, node: Node, win: Window, phases: tuple[int, int], result: Tensor
) -> Tensor:
    """Put the phases that are channels where their cells are."""
    if phases == (1, 1):
        return result
    if phases[0] == phases[1]:
        attrs = {"blocksize": phases[0], "mode": "CRD"}
        return edit.insert(model, "DepthToSpace", [result], origin=[node], attrs=attrs)
    assert win.output is not None
    channels = int(win.output[1] or 0) // (phases[0] * phases[1])
    extents = win.output[2:]
    if all(isinstance(d, int) for d in extents):
        return _interleave(model, node, result, channels, phases, [int(d or 0) for d in extents])
    return _one_axis_at_a_time(model, node, result, channels, phases)


def _interleave(
    model: Model,
    node: Node,
    result: Tensor,
    channels: int,
    phases: tuple[int, int],
    extents: Sequence[int],
) -> Tensor:
    """N, (C, rH, rW), H, W -> N, C, (H, rH), (W, rW) with known H and W."""
    apart = [0, channels, *phases, *extents]
    result = reshape(model, node, result, apart)
    result = transpose(model, node, result, [0, 1, 4, 2, 5, 3])
    whole = [extent * phase for extent, phase in zip(extents, phases, strict=True)]
    return reshape(model, node, result, [0, channels, *whole])


def _one_axis_at_a_time(
    model: Model, node: Node, result: Tensor, channels: int, phases: tuple[int, int]
) -> Tensor:
    """The same with unknown H and W: a Reshape can keep leading extents and find one."""
    rows, columns = phases
    result = transpose(model, node, result, [0, 2, 3, 1])
    result = reshape(model, node, result, [0, 0, 0, channels * rows, columns])
    result = transpose(model, node, result, [0, 1, 2, 4, 3])
    result = reshape(model, node, result, [0, 0, -1, channels * rows])  # N, H, (W, rW), (C, rH)
    if rows == 1:
        return transpose(model, node, result, [0, 3, 1, 2])
    result = transpose(model, node, result, [0, 2, 1, 3])
    result = reshape(model, node, result, [0, 0, 0, channels, rows])
    result = transpose(model, node, result, [0, 1, 2, 4, 3])
    result = reshape(model, node, result, [0, 0, -1, channels])  # N, (W, rW), (H, rH), C
    return transpose(model, node, result, [0, 3, 2, 1])


def _insert_zeros(model: Model, node: Node, win: Window, stretch: int) -> Tensor:
    """Zeros behind each cell: as channels that are zero, which DepthToSpace spreads out."""
    source = node.inputs[0]
    channels = (win.in_channels or 0) * (stretch * stretch - 1)
    amounts = edit.integers(model, f"{node.name}/zeros", [0] * 5 + [channels, 0, 0])
    padded = edit.insert(model, "Pad", [source, amounts], origin=[node])
    attrs = {"blocksize": stretch, "mode": "DCR"}
    return edit.insert(model, "DepthToSpace", [padded], origin=[node], attrs=attrs)


def _crop(model: Model, node: Node, axes: tuple[Axis, Axis], result: Tensor) -> Tensor:
    """Cut off what the pads of the ConvTranspose cut off."""
    wanted = [(i + 2, axis.crop) for i, axis in enumerate(axes) if any(axis.crop)]
    if not wanted:
        return result
    parts = {
        "starts": [begin for _, (begin, _) in wanted],
        "ends": [-end if end else FOREVER for _, (_, end) in wanted],
        "axes": [axis for axis, _ in wanted],
    }
    tensors = [edit.integers(model, f"{node.name}/{key}", v) for key, v in parts.items()]
    return edit.insert(model, "Slice", [result, *tensors], origin=[node])


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a transposed convolution as an axis of a convolution.

    ``taps[phase][u]`` is the index of the original weight that tap ``u`` of that phase
    holds, or None for a zero.
    """

    taps: tuple[tuple[int | None, ...], ...]
    dilation: int
    pads: tuple[int, int]
    crop: tuple[int, int]  # cells cut off the result, the phases side by side
    stretch: int = 1  # zeros are put between the cells: so many cells for each one

    @property
    def phases(self) -> int:
        """Cells of the result that one cell of the convolution holds."""
        return len(self.taps)

    @property
    def kernel(self) -> int:
        """Extent of the convolution's kernel."""
        return len(self.taps[0])

    def cells(self, extent: int) -> int:
        """Cells of the convolution's output for an input of this extent."""
        reach = effective_kernel(self.kernel, self.dilation)
        return extent * self.stretch + sum(self.pads) - reach + 1


def sub_pixel(win: Window, axis: int) -> Axis:
    """The axis with one phase for each cell of a stride; no zero is multiplied in between."""
    stride = win.strides[axis]
    if stride == 1:
        return _in_place(win, axis, 1)
    plans = [_phased(win, axis, crop) for crop in range(stride)]
    return min(plans, key=lambda plan: (plan.kernel, sum(plan.crop)))


def zero_insertion(win: Window, axis: int) -> Axis:
    """The axis with ``s - 1`` zeros behind each cell, as the operator's text describes it."""
    return _in_place(win, axis, win.strides[axis])


def _in_place(win: Window, axis: int, stretch: int) -> Axis:
    """A convolution with the kernel turned around, dilation and all."""
    assert win.kernel is not None
    kernel, dilation = win.kernel[axis], win.dilations[axis]
    begin, end = win.pads[axis]
    reach = effective_kernel(kernel, dilation)
    pads = (reach - 1 - begin, reach - stretch - end + win.output_padding[axis])
    taps = (tuple(range(kernel - 1, -1, -1)),)
    return _clamped(Axis(taps, dilation, pads, (0, 0), stretch))


def _phased(win: Window, axis: int, crop: int) -> Axis:
    assert win.kernel is not None
    stride, dilation = win.strides[axis], win.dilations[axis]
    begin, end = win.pads[axis]
    reach = effective_kernel(win.kernel[axis], dilation)
    shift = begin - crop
    first, last = -((stride - 1 + shift) // stride), (reach - 1 - shift) // stride
    taps = tuple(
        tuple(_tap(m * stride + phase + shift, reach, dilation) for m in range(last, first - 1, -1))
        for phase in range(stride)
    )
    # The output has stride * (in - 1) + beyond cells; so many cells of phases hold them.
    beyond = reach + win.output_padding[axis] - begin - end + crop
    cells = -(-beyond // stride)
    pads = (last, cells - 1 - first)
    return _clamped(Axis(taps, 1, pads, (crop, cells * stride - beyond)))


def _tap(position: int, reach: int, dilation: int) -> int | None:
    inside = 0 <= position < reach and position % dilation == 0
    return position // dilation if inside else None


def _clamped(plan: Axis) -> Axis:
    """Less than no padding becomes none, and what is then too much is cut off."""
    begin, end = plan.pads
    more = tuple(max(-pad, 0) * plan.phases for pad in plan.pads)
    crop = (plan.crop[0] + more[0], plan.crop[1] + more[1])
    return Axis(plan.taps, plan.dilation, (max(begin, 0), max(end, 0)), crop, plan.stretch)
