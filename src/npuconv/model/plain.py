"""Nodes said so that ONNX's shape inference understands them.

Some it gets wrong (onnx 1.23.2): SAME beside written pads of zero; ConvTranspose with SAME,
whose output padding it adds, and with an output_shape smaller than its input, of which it
loses the rank. Of others it knew nothing before opset 7. Only shapes are asked of the
result, so it computes something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper

from npuconv.model import query
from npuconv.model.conv import Window, window
from npuconv.model.geometry import SAME, effective_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npuconv.model.types import Node

# Before opset 7 these have the shape of their first input, whatever they broadcast.
_LIKE_THE_FIRST = frozenset({
    "Add", "BatchNormalization", "Clip", "Div", "Elu", "HardSigmoid", "InstanceNormalization",
    "LeakyRelu", "LRN", "Mul", "PRelu", "Pow", "Relu", "Selu", "Sigmoid", "Softplus", "Sub", "Tanh",
})  # fmt: skip
_BROADCAST_BOTH_WAYS = 7
_PAD_HAS_PADS = 2
# What opset 2 changed besides Pad.
_OF_OPSET_1 = frozenset({"GlobalLpPool", "LpPool", "Split"})


def opset(source: int, nodes: Sequence[Node]) -> int:
    """The opset to infer shapes in: nothing is known of Pad-1."""
    if source < _PAD_HAS_PADS and not any(n.op in _OF_OPSET_1 for n in nodes):
        return _PAD_HAS_PADS
    return source


def is_misread(node: Node, source: int) -> bool:
    """Return whether shape inference may be wrong about the node, or not know it."""
    if source < _BROADCAST_BOTH_WAYS:
        return True
    if node.op not in query.CONVOLUTIONS + query.POOLS:
        return False
    return any(node.attrs.get(name) for name in ("auto_pad", "output_shape"))


def plain(node: Node, proto: onnx.NodeProto, source: int) -> list[onnx.NodeProto]:
    """Return the nodes that stand for a node in shape inference."""
    if not query.is_standard(node):
        return [proto]
    if source < _BROADCAST_BOTH_WAYS and node.op in _LIKE_THE_FIRST and len(proto.input):
        return [helper.make_node("Identity", proto.input[:1], proto.output[:1], name=proto.name)]
    if source < _PAD_HAS_PADS and node.op == "Pad":
        for attribute in proto.attribute:
            attribute.name = "pads" if attribute.name == "paddings" else attribute.name
    win = window(node)
    if win is None or not _agrees(win) or not _is_asked(win):
        return [proto]
    if win.op != "ConvTranspose":
        _without(proto, "pads")
        return [proto]
    return _wanted(win, proto) if win.output_shape else _explicit(win, proto)


def _agrees(win: Window) -> bool:
    """Return whether the attributes are as long as the kernel: a rule speaks of others."""
    parts = (win.strides, win.dilations, win.output_padding)
    return win.kernel is not None and all(len(part) == len(win.kernel) for part in parts)


def _is_asked(win: Window) -> bool:
    forbidden = win.auto_pad != "NOTSET" and any(pair != (0, 0) for pair in win.pads)
    return not forbidden and (win.auto_pad != "NOTSET" or win.output_shape is not None)


def _without(proto: onnx.NodeProto, *names: str) -> None:
    kept = [a for a in proto.attribute if a.name not in names]
    del proto.attribute[:]
    proto.attribute.extend(kept)


def _explicit(win: Window, proto: onnx.NodeProto) -> list[onnx.NodeProto]:
    """SAME: stride times the extent, whatever that is; VALID: no pads."""
    assert win.kernel is not None
    _without(proto, "auto_pad", "pads", "output_padding")
    reaches = map(effective_kernel, win.kernel, win.dilations)
    extra = list(win.output_padding)
    if win.auto_pad in SAME:
        totals = [r + e - s for r, e, s in zip(reaches, extra, win.strides, strict=True)]
        pads = [max(total, 0) for total in totals] + [0] * len(totals)
        extra = [e - min(total, 0) for e, total in zip(extra, totals, strict=True)]
        proto.attribute.append(helper.make_attribute("pads", pads))
    proto.attribute.append(helper.make_attribute("output_padding", extra))
    return [proto]


def _wanted(win: Window, proto: onnx.NodeProto) -> list[onnx.NodeProto]:
    """output_shape, of an input so small that inference does not stop at it."""
    _without(proto, "auto_pad", "pads", "output_shape")
    proto.attribute.append(helper.make_attribute("output_shape", list(win.output_shape or ())))
    cell = f"{proto.output[0]}/one cell"
    first = helper.make_node("GlobalMaxPool", [proto.input[0]], [cell])
    proto.input[0] = cell
    return [first, proto]
