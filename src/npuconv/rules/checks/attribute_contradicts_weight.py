"""An attribute of the convolution contradicts the shape of its weights or input.

What it checks:
    `kernel_shape` against the weights, `group` against channels of weights and input,
    lengths of `strides`, `dilations` and `pads` against the number of spatial axes,
    their signs, the length of the bias, and the value of `auto_pad`. Of a ConvTranspose,
    that `output_shape` has a positive value for each spatial axis, and that `pads` leave
    some output. Pools are checked in the same way, without weights and bias.

Why it matters:
    Such a node has no defined result; tools that read only one of the two sides compute
    a wrong result.

How to fix:
    Repair the model: the message names both sides.
"""

from __future__ import annotations

from collections.abc import Iterator

from npuconv.model import Node, query, window
from npuconv.model.attributes import contradictions
from npuconv.model.conv import transpose_output
from npuconv.rules import CONV, SLIDING, RuleContext, Violation, Violations, conv, rule

_MIN_RANK = 3  # batch, channels and one spatial axis


@rule(
    "SHP005",
    ops=SLIDING,
    malformed=True,
    message="{problem}",
    fires=conv(w="4,2,3,3"),
    silent=CONV,
)
def attribute_contradicts_weight(node: Node, _ctx: RuleContext) -> Violations:
    problems = [*contradictions(node), *_channel_faults(node)]
    for problem in problems or _crop_faults(node):
        yield Violation({"problem": problem}, source=f"ONNX {node.op}-11")


def _crop_faults(node: Node) -> Iterator[str]:
    """Yield the axes of a transposed convolution whose pads leave no output."""
    win = window(node) if node.op == "ConvTranspose" else None
    if win is None or win.kernel is None:
        return
    if win.auto_pad != "NOTSET" or win.output_shape:
        return
    for axis, slide in enumerate(zip(win.kernel, win.strides, win.dilations, strict=True)):
        extent, extra = win.extent(axis), win.output_padding[axis]
        cells = transpose_output(extent, *slide, (0, 0), extra) if extent else 0
        if 0 < cells <= sum(win.pads[axis]):
            yield (
                f"pads crop {sum(win.pads[axis])} of the {cells} cells of spatial axis {axis}, "
                "stride * (input - 1) + output_padding + (kernel - 1) * dilation + 1 by ONNX: "
                "nothing is left"
            )


def _channel_faults(node: Node) -> Iterator[str]:
    values = query.constant_input(node, 1) if node.op in query.CONVOLUTIONS else None
    if values is not None and not values.size:
        yield f"the weights have shape {list(values.shape)}, which holds nothing"
    weight = query.static_shape(query.input_of(node, 1))
    if node.op not in query.CONVOLUTIONS or weight is None or len(weight) < _MIN_RANK:
        return
    group = int(query.attribute(node, "group", 1))
    if group < 1 or weight[0] % group:
        yield f"group is {group}, which does not divide the {weight[0]} channels of the weights"
        return
    inputs, outputs = weight[1] * group, weight[0]
    if node.op == "ConvTranspose":
        inputs, outputs = outputs, inputs
    dims = query.shape(node.inputs[0])
    if dims is not None and len(dims) != len(weight):
        yield f"the input has rank {len(dims)} but the weights have rank {len(weight)}"
    elif dims is not None and isinstance(dims[1], int) and dims[1] != inputs:
        yield f"the input has {dims[1]} channels but weights and group want {inputs}"
    bias = query.static_shape(query.input_of(node, 2))
    if bias is not None and bias != (outputs,):
        yield f"the bias has shape {list(bias)} but there are {outputs} output channels"
