"""Turn convolutions of several groups into plain convolutions.

Where the target refuses the group (between 1 and the channels, mostly), there are two
forms (``--prefer split`` or ``dense`` overrides the choice):

- split: one convolution for each group over its slice of the channels, then Concat.
  The same MACs and weights; the slices and the result are moved.
- dense: one convolution over all channels, whose weights are zero between groups. It
  has ``group`` times the MACs and the weights, at most ``max_folded_mib`` of these.

The form that is cheaper by the ``costs`` of the target file is taken. On a device without Split or
Concat the host would split and join, and every group would cross to the device and back: that has
its price, too.

A depthwise convolution with several outputs for each channel stays one where the
target takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, node_pass
from npuconv.legalize.tools.conv_forms import (
    constants_obstacle,
    group_forms,
    refuses_group,
    with_channels,
)
from npuconv.model import edit, query
from npuconv.model.conv import Window, block_diagonal, window
from npuconv.model.core import Model
from npuconv.model.types import Node
from npuconv.partition.costs import choose, chosen_form

if TYPE_CHECKING:
    import numpy as np


@node_pass(
    Phase.LEGALIZE,
    "Conv",
    least_opset=13,
    after=(
        "resolve-auto-pad",
        "remove-3d-axis",
        "rewrite-1d-as-2d",
        "rewrite-conv-transpose-as-conv",
    ),
)
def split_grouped_convolution(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    if int(query.attribute(node, "group", 1)) < 2:
        return 0
    win = window(node)
    if win is None or not refuses_group(device, win):
        return 0
    if reason := _obstacle(node, win):
        log.refuse(model, node, reason)
        return 0
    forms = choose(device.target, device.options, group_forms(device, win))
    best = chosen_form(forms)
    if best is None:
        log.refuse(model, node, "; ".join(f"{f.name}: {f.obstacle}" for f in forms))
        return 0
    is_dense, array = best.name == "dense", query.constant_input(node, 1)
    assert array is not None, "it has no obstacle"
    before = f"Conv, group {win.group} of {win.in_channels} channels"
    after = "Conv with zeros between the groups" if is_dense else f"{win.group} Conv + Concat"
    with log.rewrite(model, [node], before, after) as record:
        record.forms = forms
        if is_dense:
            weight = edit.constant(model, node.inputs[1].name, block_diagonal(array, win.group))
            edit.set_input(node, 1, weight)
            node.attrs["group"] = 1
        else:
            _split(model, node, win, array)
    return 1


def _obstacle(node: Node, win: Window) -> str:
    if win.kernel is None or win.weight is None or win.in_channels is None:
        return "the extents of its weights are not known"
    if reason := constants_obstacle(node):
        return reason
    if win.weight[0] % win.group:
        return f"{win.weight[0]} output channels do not divide into {win.group} groups"
    return ""


def _split(model: Model, node: Node, win: Window, weight: np.ndarray) -> None:
    """Put one convolution for each group between a Split and a Concat."""
    source, bias = node.inputs[0], query.constant_input(node, 2)
    inputs, outputs = (win.in_channels or 0) // win.group, weight.shape[0] // win.group
    parts = [
        edit.variable(model, f"{node.name}/group_{number}", dtype=source.dtype)
        for number in range(win.group)
    ]
    for part in parts:
        dims = with_channels(win.input, inputs)
        part.shape = None if dims is None else list(dims)
    sizes = edit.integers(model, f"{node.name}/split", [inputs] * win.group)
    axis, attrs, results = {"axis": 1}, {**node.attrs, "group": 1}, []
    edit.add_node(model, "Split", [source, sizes], parts, origin=[node], attrs=axis)
    for number, part in enumerate(parts):
        rows = slice(number * outputs, (number + 1) * outputs)
        stem, shape = f"{node.name}/group_{number}", with_channels(win.output, outputs)
        tensors = [part, edit.constant(model, f"{stem}/weight", weight[rows])]
        if bias is not None:
            tensors.append(edit.constant(model, f"{stem}/bias", bias[rows]))
        name = f"{stem}/Conv"
        results.append(edit.insert(
            model, "Conv", tensors, origin=[node], shape=shape, attrs=attrs, name=name
        ))  # fmt: skip
    result = edit.insert(model, "Concat", results, origin=[node], shape=win.output, attrs=axis)
    edit.hand_over(result, node.outputs[0])
    edit.disconnect(node)
