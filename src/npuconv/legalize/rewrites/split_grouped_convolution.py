"""Turn convolutions of several groups into plain ones.

Where the target refuses the group (between 1 and the channels, mostly), there are two
forms (``--prefer split`` or ``dense`` overrides the choice):

- split: one convolution for each group over its slice of the channels, then Concat.
  The same MACs and weights; the slices and the result are moved.
- dense: one convolution over all channels, whose weights are zero between groups. It
  has ``group`` times the MACs and the weights, at most ``max_folded_mib`` of these.

A device without Split or Concat takes the dense form, unless that breaks another limit: the host
would split and join, and every group would cross to the device and back. A device with both takes
the form that is cheaper by the ``costs`` of its target file.

A depthwise convolution with several outputs for each channel stays one where the
target takes it.
"""

from __future__ import annotations

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.conv_forms import (
    constants_obstacle,
    group_forms,
    refuses_group,
    with_channels,
)
from npuconv.model import edit, query
from npuconv.model.conv import Window, block_diagonal, window
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.partition.costs import choose, chosen


@model_pass(
    Phase.LEGALIZE,
    after=(
        "resolve-auto-pad",
        "remove-3d-axis",
        "rewrite-1d-as-2d",
        "rewrite-conv-transpose-as-conv",
    ),
)
def split_grouped_convolution(model: Model, ctx: PassContext) -> int:
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
    replace, after = _split, f"{win.group} Conv + Concat"
    if best.name == "dense":
        replace, after = _make_dense, "Conv with zeros between the groups"
    before = f"Conv, group {win.group} of {win.in_channels} channels"
    with ctx.rewrite(model, [node], before, after) as record:
        record.forms = forms
        replace(model, node, win)
    return 1


def _obstacle(node: Node, win: Window) -> str:
    if win.kernel is None or win.weight is None or win.in_channels is None:
        return "the extents of its weights are not known"
    if reason := constants_obstacle(node):
        return reason
    if win.weight[0] % win.group:
        return f"{win.weight[0]} output channels do not divide into {win.group} groups"
    return ""


def _make_dense(model: Model, node: Node, win: Window) -> None:
    array = query.constant_input(node, 1)
    assert array is not None
    edit.set_input(
        node, 1, edit.constant(model, node.inputs[1].name, block_diagonal(array, win.group))
    )
    node.attrs["group"] = 1


def _split(model: Model, node: Node, win: Window) -> None:
    """Put one convolution for each group between a Split and a Concat."""
    source, each = node.inputs[0], (win.in_channels or 0) // win.group
    parts = [
        edit.variable(model, f"{node.name}/group_{number}", dtype=source.dtype)
        for number in range(win.group)
    ]
    for part in parts:
        dims = with_channels(win.input, each)
        part.shape = None if dims is None else list(dims)
    sizes = edit.integers(model, f"{node.name}/split", [each] * win.group)
    attrs = {"axis": 1}
    edit.add_node(model, "Split", [source, sizes], parts, origin=[node], attrs=attrs)
    results = [_convolve(model, node, win, number, part) for number, part in enumerate(parts)]
    result = edit.insert(
        model, "Concat", results, origin=[node], shape=win.output, attrs={"axis": 1}
    )
    edit.hand_over(result, node.outputs[0])
    edit.disconnect(node)


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
    shape = with_channels(win.output, outputs)
    return edit.insert(
        model, "Conv", inputs, origin=[node], shape=shape, attrs=attrs, name=f"{stem}/Conv"
    )
