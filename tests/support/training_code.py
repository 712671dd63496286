"""Models with the metadata of PyTorch's dynamo exporter, which name the training code."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from support.builders import Net

CODE = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x)
"""
LINE, TEXT = 11, "return self.conv(x)"
TORCH = "/opt/lib/python3.11/site-packages/torch/nn/modules/conv.py"


def trace(*frames: tuple[str, int, str]) -> str:
    """The text of a stack trace: file, line and code of each frame."""
    return "\n".join(
        f'  File "{file}", line {line}, in forward\n    {text}' for file, line, text in frames
    )


def annotate(
    node: onnx.NodeProto, scopes: Sequence[str], classes: Sequence[str], text: str
) -> None:
    """Write what the exporter writes into the metadata of a node."""
    for key, value in {
        "name_scopes": str(["", *scopes, "op"]),
        "class_hierarchy": str(["net.Net", *classes, "aten.op.default"]),
        "stack_trace": text,
    }.items():
        node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)


def exported(file: str = "models/net.py", count: int = 1, **attributes: object) -> onnx.ModelProto:
    """Convolutions of the modules stem.0.conv, stem.1.conv, ... of one line of code."""
    net = Net(opset=18, ir_version=10, x=(1, 4, 16, 16))
    for number in range(count):
        window = {"pads": [1, 1, 1, 1], **attributes}
        net.conv("", (4, 4, 3, 3), name=f"node_conv2d_{number}", **window)
    proto = net.model()
    for number, node in enumerate(proto.graph.node):
        scopes = ["stem", f"stem.{number}", f"stem.{number}.conv"]
        classes = ["torch.nn.Sequential", "net.Block", "torch.nn.modules.conv.Conv2d"]
        frames = ((file, LINE, TEXT), (TORCH, 565, "return self._conv_forward(input)"))
        annotate(node, scopes, classes, trace(("train.py", 3, "net(x)"), *frames))
    return proto
