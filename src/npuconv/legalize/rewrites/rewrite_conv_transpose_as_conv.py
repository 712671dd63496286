"""Turn transposed convolutions into plain convolutions.

With ``e = (k - 1) * d + 1`` a ConvTranspose computes, before anything is cut off, along
each axis

    full[f] = sum over i, t with i * s + t = f of  x[i] * w[t],   0 <= t < e

(``w[t]`` is 0 where the dilation skips ``t``) and its output is ``y[o] = full[o + begin]``.
Let ``o + c = q * s + r`` with a crop ``c`` to be chosen. Then ``t = m * s + r + begin - c``
with ``m = q - i``: for each phase ``r`` a plain convolution over ``x`` with taps ``m``, and
the phases of a cell lie side by side, as DepthToSpace puts them.
"""

from __future__ import annotations

import math

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.split.layer import constants_obstacle, times
from npuconv.legalize.tools.layout import TO_THE_END, reshape, transpose
from npuconv.model import Model, Node, Tensor, Window, edit, query, window
from npuconv.model.conv import effective_kernel
from npuconv.partition.costs import Form, choose, size
from npuconv.records import dataclass, replace

AXES = 2


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a transposed convolution as an axis of a convolution.

    ``taps[phase][u]`` is the index of the original weight that tap ``u`` of that phase
    holds, or None for a zero.
    """

    taps: tuple[tuple[int | None, ...], ...]
    dilation: int
    pads: tuple[int, int]
    crop: tuple[int, int]  # cells removed at each end of the result, after DepthToSpace
    stretch: int = 1  # distance of input cells, with zeros between them

    @property
    def phases(self) -> int:
        """Return the number of cells of the result in one cell of the convolution."""
        return len(self.taps)

    @property
    def kernel(self) -> int:
        """Return the extent of the convolution's kernel."""
        return len(self.taps[0])

    def cells(self, extent: int) -> int:
        """Return the extent of the convolution's output for an input of this extent."""
        reach = effective_kernel(self.kernel, self.dilation)
        return extent * self.stretch + sum(self.pads) - reach + 1


@dataclass(frozen=True)
class Candidate:
    """One form of a transposed convolution."""

    form: str
    axes: tuple[Axis, Axis]
    win: Window  # window of the convolution

    @property
    def phases(self) -> tuple[int, int]:
        """Return the number of cells of the result in one cell of the convolution, by axis."""
        return self.axes[0].phases, self.axes[1].phases

    def text(self) -> str:
        """Describe the form: ``sub-pixel form: Conv 2x2, 256 channels + DepthToSpace``."""
        kernel = times([axis.kernel for axis in self.axes])
        parts = [f"Conv {kernel}, {self.win.out_channels} channels"]
        stretched = any(axis.stretch > 1 for axis in self.axes)
        if stretched:
            parts.insert(0, "zeros inserted")
        if max(self.phases) > 1:
            is_square = self.phases[0] == self.phases[1]
            parts.append("DepthToSpace" if is_square else "Reshape and Transpose")
        if any(any(axis.crop) for axis in self.axes):
            parts.append("Slice")
        plain = not stretched and max(self.phases) == 1
        return ("" if plain else f"{self.form} form: ") + " + ".join(parts)


@register_pass(
    Phase.LEGALIZE,
    "ConvTranspose",
    least_opset=13,
    after=("resolve-auto-pad", "rewrite-1d-as-2d"),
    infers=True,
)
def rewrite_conv_transpose_as_conv(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    """Turn transposed convolutions into plain convolutions.

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
    win = window(node)
    reason = _obstacle(node, win)
    if reason or win is None:
        return log.refuse(model, node, reason)
    pairs = {"sub-pixel": (sub_pixel(win, 0), sub_pixel(win, 1))}
    if win.strides[0] == win.strides[1] > 1:
        pairs["zero-insertion"] = (zero_insertion(win, 0), zero_insertion(win, 1))
    candidates = {name: Candidate(name, axes, _as_conv(win, axes)) for name, axes in pairs.items()}
    costed = []
    for name, candidate in candidates.items():
        conv = candidate.win
        moved = conv.output if max(candidate.phases) > 1 else conv.input  # in phases, or with zeros
        count = size((1, *moved[1:])) if moved and max(win.strides) > 1 else 0
        cost, obstacle = device.cost(conv), next(iter(device.lasting_objections(conv)), "")
        cost = replace(cost, moved_bytes=(count or 0) + cost.moved_bytes)
        costed.append(Form(name, cost, obstacle))
    forms = choose(device.target, device.options, costed)
    best = next((form for form in forms if form.is_chosen), None)
    if best is None:
        return log.refuse(model, node, "; ".join(f"{f.name}: {f.obstacle}" for f in forms))
    candidate = candidates[best.name]
    before = f"ConvTranspose {times(win.kernel or ())} stride {times(win.strides)}"
    # The Reshapes of unequal phases hold for their own extents only.
    modulus = 1 if candidate.phases[0] == candidate.phases[1] else None
    with log.rewrite(model, [node], before, candidate.text(), modulus=modulus) as record:
        record.forms = forms if len(forms) > 1 else ()
        source, stretch = node.inputs[0], candidate.axes[0].stretch
        if stretch > 1:  # zeros behind each cell: channels of zeros, which DepthToSpace spreads out
            channels = (win.in_channels or 0) * (stretch * stretch - 1)
            amounts = edit.integers(model, f"{node.name}/zeros", [0] * 5 + [channels, 0, 0])
            padded = edit.insert(model, "Pad", [source, amounts], origin=[node])
            attrs = {"blocksize": stretch, "mode": "DCR"}
            source = edit.insert(model, "DepthToSpace", [padded], origin=[node], attrs=attrs)
        array, bias = (query.constant_input(node, index) for index in (1, 2))
        assert array is not None
        weight = _weights(array, win.group, candidate.axes)
        inputs = [source, edit.constant(model, f"{node.name}/weight", weight)]
        if bias is not None:  # repeated for each phase
            repeated = np.repeat(bias, math.prod(candidate.phases))
            inputs.append(edit.constant(model, f"{node.name}/bias", repeated))
        attrs, shape = candidate.win.attributes, candidate.win.output
        result = edit.insert(model, "Conv", inputs, origin=[node], shape=shape, attrs=attrs)
        result = _interleave(model, node, candidate, result)
        crops = {number: axis.crop for number, axis in enumerate(candidate.axes, 2)}
        if crops := {axis: crop for axis, crop in crops.items() if any(crop)}:
            starts = [begin for begin, _ in crops.values()]
            stops = [-end or TO_THE_END for _, end in crops.values()]
            parts = {"starts": starts, "ends": stops, "axes": [*crops]}
            bounds = [edit.integers(model, f"{node.name}/{key}", v) for key, v in parts.items()]
            result = edit.insert(model, "Slice", [result, *bounds], origin=[node])
        edit.replace(result, node)
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
    return constants_obstacle(node)


def _as_conv(win: Window, axes: tuple[Axis, Axis]) -> Window:
    assert win.weight is not None
    kernel = tuple(axis.kernel for axis in axes)
    channels = (win.out_channels or 0) * math.prod(axis.phases for axis in axes)
    dims = win.input or (None,) * (AXES + 2)
    spatial = list(zip(dims[2:], axes, strict=True))
    stretched = (d * a.stretch if isinstance(d, int) else None for d, a in spatial)
    cells = (a.cells(d) if isinstance(d, int) else None for d, a in spatial)
    return replace(
        win,
        op="Conv",
        kernel=kernel,
        strides=(1,) * AXES,
        dilations=tuple(axis.dilation for axis in axes),
        pads=tuple(axis.pads for axis in axes),
        weight=(channels, win.weight[0] // win.group, *kernel),
        input=(dims[0], dims[1], *stretched),
        output=(dims[0], channels, *cells),
        output_padding=(0,) * AXES,
    )


def _weights(array: np.ndarray, group: int, axes: tuple[Axis, Axis]) -> np.ndarray:
    """Return the weights of the convolution.

    Args:
        array: weights of the ConvTranspose, float32, C x M/group x kH x kW.
        group: number of groups.
        axes: height and width.

    Returns:
        float32, (M * phases of height * phases of width) x C/group x taps x taps, the
        phases of one channel beside each other.
    """
    inputs, outputs = array.shape[0] // group, array.shape[1]
    grouped = array.reshape(group, inputs, outputs, *array.shape[2:])
    padded = np.pad(grouped, [(0, 0)] * 3 + [(0, 1)] * 2)  # index k is a zero
    rows, columns = (
        np.array([[extent if tap is None else tap for tap in phase] for phase in axis.taps])
        for axis, extent in zip(axes, array.shape[2:], strict=True)
    )
    taps = padded[..., rows[:, :, None, None], columns[None, None]]
    # group, C/group, M/group, phases, taps, phases, taps
    moved = taps.transpose(0, 2, 3, 5, 1, 4, 6)
    return np.ascontiguousarray(moved.reshape(-1, inputs, *moved.shape[-2:]))


def _interleave(model: Model, node: Node, candidate: Candidate, result: Tensor) -> Tensor:
    """Put the phases, which are channels, side by side: N, (C, rH, rW), H, W -> N, C, ..."""
    (rows, columns), dims = candidate.phases, candidate.win.output
    if rows == columns == 1:
        return result
    if rows == columns:
        attrs = {"blocksize": rows, "mode": "CRD"}
        return edit.insert(model, "DepthToSpace", [result], origin=[node], attrs=attrs)
    assert dims is not None
    channels = int(dims[1] or 0) // (rows * columns)
    extents = [d for d in dims[2:] if isinstance(d, int)]
    if len(extents) == AXES:
        result = reshape(model, node, result, [0, channels, rows, columns, *extents])
        result = transpose(model, node, result, [0, 1, 4, 2, 5, 3])
        spatial = [extents[0] * rows, extents[1] * columns]
        return reshape(model, node, result, [0, channels, *spatial])
    # With unknown H and W one axis after the other: a Reshape can keep leading extents and
    # compute a single extent. Rows and columns change places each time.
    result = transpose(model, node, result, [0, 2, 3, 1])
    for phases, depth in ((columns, channels * rows), (rows, channels)):
        result = reshape(model, node, result, [0, 0, 0, depth, phases])
        result = transpose(model, node, result, [0, 1, 2, 4, 3])
        result = reshape(model, node, result, [0, 0, -1, depth])
        result = transpose(model, node, result, [0, 2, 1, 3])
    return transpose(model, node, result, [0, 3, 1, 2])


def sub_pixel(win: Window, axis: int) -> Axis:
    """Return the axis with one phase for each cell of a stride, and no zeros in between."""
    stride = win.strides[axis]
    if stride == 1:
        return zero_insertion(win, axis)
    plans = [_phase_axis(win, axis, crop) for crop in range(stride)]
    return min(plans, key=lambda plan: (plan.kernel, sum(plan.crop)))


def zero_insertion(win: Window, axis: int) -> Axis:
    """Return the axis with ``s - 1`` zeros behind each cell, as in the operator's text.

    The kernel is reversed, its dilation the same.
    """
    assert win.kernel is not None
    kernel, stretch, dilation = win.kernel[axis], win.strides[axis], win.dilations[axis]
    begin, end = win.pads[axis]
    reach = effective_kernel(kernel, dilation)
    pads = (reach - 1 - begin, reach - stretch - end + win.output_padding[axis])
    taps = (tuple(range(kernel - 1, -1, -1)),)
    return _clamp_pads(Axis(taps, dilation, pads, (0, 0), stretch))


def _phase_axis(win: Window, axis: int, crop: int) -> Axis:
    assert win.kernel is not None
    stride, dilation = win.strides[axis], win.dilations[axis]
    begin, end = win.pads[axis]
    reach = effective_kernel(win.kernel[axis], dilation)
    shift = begin - crop
    first, last = -((stride - 1 + shift) // stride), (reach - 1 - shift) // stride

    def tap(position: int) -> int | None:
        inside = 0 <= position < reach and position % dilation == 0
        return position // dilation if inside else None

    taps = tuple(
        tuple(tap(m * stride + phase + shift) for m in range(last, first - 1, -1))
        for phase in range(stride)
    )
    # The output has stride * (in - 1) + tail cells; ``cells`` cells of phases hold the tail.
    tail = reach + win.output_padding[axis] - begin - end + crop
    cells = -(-tail // stride)
    pads = (last, cells - 1 - first)
    return _clamp_pads(Axis(taps, 1, pads, (crop, cells * stride - tail)))


def _clamp_pads(plan: Axis) -> Axis:
    """Raise negative pads to 0, and crop the surplus cells."""
    begin, end = plan.pads
    more = [max(-pad, 0) * plan.phases for pad in plan.pads]
    crop = (plan.crop[0] + more[0], plan.crop[1] + more[1])
    return replace(plan, pads=(max(begin, 0), max(end, 0)), crop=crop)
