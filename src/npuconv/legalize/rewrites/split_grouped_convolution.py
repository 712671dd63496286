"""Turn convolutions of several groups into plain ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.forms import choose, chosen
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.conv_forms import group_forms, refuses_group
from npuconv.model import edit, query
from npuconv.model.conv import window

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from npuconv.legalize.context import PassContext
    from npuconv.model.conv import Window
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor


@model_pass(
    Phase.LEGALIZE,
    after=("resolve-auto-pad", "rewrite-1d-as-2d", "rewrite-conv-transpose-as-conv"),
)
def split_grouped_convolution(model: Model, ctx: PassContext) -> int:
    """Turn convolutions of several groups into plain ones.

    Where the target refuses the group (between 1 and the channels, mostly), there are two
    forms, and the cheaper one that it takes is chosen by the ``costs`` of the target file
    (``--prefer split`` or ``dense`` overrides):

    - split: one convolution for each group over its slice of the channels, then Concat.
      The same MACs and weights; the slices and the result are moved.
    - dense: one convolution over all channels, whose weights are zero between groups. It
      has ``group`` times the MACs and the weights.

    A depthwise convolution with several outputs for each channel stays one where the
    target takes it.
    """
    if model.opset < 13:
        return 0
    return sum(_rewrite(model, ctx, node) for node in model.nodes("Conv"))


def _rewrite(model: Model, ctx: PassContext, node: Node) -> int:
    if int(query.attribute(node, "group", 1)) < 2:
        return 0
    win = window(node)
    if win is None or not refuses_group(ctx, win):
        return 0
    if reason := _obstacle(node, win):
        ctx.refuse(model, node, reason)
        return 0
    forms = choose(ctx.target, ctx.options, group_forms(ctx, win))
    best = chosen(forms)
    if best is None:
        ctx.refuse(model, node, "; ".join(f"{f.name}: {f.obstacle}" for f in forms))
        return 0
    parts, channels = win.group, win.in_channels
    split = best.name == "split"
    after = f"{parts} Conv + Concat" if split else "Conv with zeros between the groups"
    before = f"Conv, group {parts} of {channels} channels"
    with ctx.rewrite(model, [node], before, after) as record:
        record.forms = forms
        _replace(model, node, win, split=split)
    return 1


def _obstacle(node: Node, win: Window) -> str:
    if win.kernel is None or win.weight is None or win.in_channels is None:
        return "the extents of its weights are not known"
    if query.constant_input(node, 1) is None:
        return "its weights are not constant"
    if query.input_of(node, 2) is not None and query.constant_input(node, 2) is None:
        return "its bias is not constant"
    if win.weight[0] % win.group:
        return f"{win.weight[0]} output channels do not divide into {win.group} groups"
    return ""


def _replace(model: Model, node: Node, win: Window, *, split: bool) -> None:
    if split:
        _split(model, node, win)
    else:
        _make_dense(model, node, win)


def _make_dense(model: Model, node: Node, win: Window) -> None:
    """Write zeros for what the groups leave out."""
    array = query.constant_input(node, 1)
    assert array is not None
    edit.set_input(node, 1, edit.constant(model, node.inputs[1].name, dense(array, win.group)))
    node.attrs["group"] = 1


def dense(array: np.ndarray, group: int) -> np.ndarray:
    """Block-diagonal weights.

    Args:
        array: O x I/group x kernel.
        group: number of groups.

    Returns:
        O x I x kernel, zero where an output channel does not read an input channel.
    """
    import numpy as np

    outputs, inputs = array.shape[0] // group, array.shape[1]
    result = np.zeros((array.shape[0], inputs * group, *array.shape[2:]), array.dtype)
    for number in range(group):
        rows = slice(number * outputs, (number + 1) * outputs)
        result[rows, number * inputs : (number + 1) * inputs] = array[rows]
    return result


def _split(model: Model, node: Node, win: Window) -> None:
    """One convolution for each group, between a Split and a Concat."""
    parts = _slices(model, node, win)
    results = [_convolve(model, node, win, number, part) for number, part in enumerate(parts)]
    result = edit.insert(
        model, "Concat", results, origin=[node], shape=win.output, attrs={"axis": 1}
    )
    edit.hand_over(result, node.outputs[0])
    edit.disconnect(node)


def _slices(model: Model, node: Node, win: Window) -> list[Tensor]:
    source = node.inputs[0]
    each = (win.in_channels or 0) // win.group
    parts = [
        edit.variable(model, f"{node.name}/group_{number}", dtype=source.dtype)
        for number in range(win.group)
    ]
    for part in parts:
        part.shape = _with_channels(win.input, each)
    sizes = edit.integers(model, f"{node.name}/split", [each] * win.group)
    attrs = {"axis": 1}
    edit.add_node(model, "Split", [source, sizes], parts, origin=[node], attrs=attrs)
    return parts


def _convolve(model: Model, node: Node, win: Window, number: int, part: Tensor) -> Tensor:
    weight, bias = query.constant_input(node, 1), query.constant_input(node, 2)
    assert weight is not None
    outputs = weight.shape[0] // win.group
    rows = slice(number * outputs, (number + 1) * outputs)
    stem = f"{node.name}/group_{number}"
    inputs = [part, edit.constant(model, f"{stem}/weight", weight[rows])]
    if bias is not None:
        inputs.append(edit.constant(model, f"{stem}/bias", bias[rows]))
    attrs = {**node.attrs, "group": 1}
    shape = _with_channels(win.output, outputs)
    return edit.insert(
        model, "Conv", inputs, origin=[node], shape=shape, attrs=attrs, name=f"{stem}/Conv"
    )


def _with_channels(
    dims: Sequence[int | str | None] | None, channels: int
) -> list[int | str | None] | None:
    return None if dims is None else [dims[0], channels, *dims[2:]]
