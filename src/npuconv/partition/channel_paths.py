"""Paths of channels from the convolution that makes them to the convolutions that mix them.

The nodes between keep the channels apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.partition.placement import Plan

Doubles = NDArray[np.float64]
_APART = ("Relu", "Clip", "MaxPool", "Pad")  # passthrough operators that treat channels alike


@dataclass
class ChannelPath:
    """Channels of a tensor, up to the convolutions that mix them.

    Attributes:
        tensor: the first tensor that has them.
        producer: the convolution that makes each of them from all that it reads; None where
            the host does.
        between: passthrough operators and depthwise convolutions, in the order of the model.
        readers: the convolutions that mix them.
        tensors: names of all tensors that have these channels.
        outputs: tensors of the path that the host reads, or that are outputs of the model;
            without ``tensor`` if the host makes it.
    """

    tensor: Tensor
    producer: Node | None
    between: list[Node] = field(default_factory=list)
    readers: list[Node] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    @property
    def row_layers(self) -> list[Node]:
        """Convolutions with a row of weights for every channel: the producer, and those between."""
        first = [] if self.producer is None else [self.producer]
        return [*first, *(node for node in self.between if node.op == "Conv")]


def is_depthwise(conv: Node) -> bool:
    """Return whether every output channel of a convolution reads one input channel of its own."""
    weight = query.constant_input(conv, 1)
    if weight is None or weight.shape[1] != 1:  # not depthwise: groups may mix channels
        return False
    return 1 < len(weight) == int(query.attribute(conv, "group", 1))


def parameters(conv: Node) -> tuple[Doubles, Doubles]:
    """Return weights and bias of a convolution, the bias 0 where it has none, float64."""
    weight, bias = query.constant_input(conv, 1), query.constant_input(conv, 2)
    assert weight is not None, "convolutions of a path have constant weights"
    offsets = np.zeros(len(weight)) if bias is None else bias.astype(np.float64)
    return weight.astype(np.float64), offsets


def channel_paths(model: Model, plan: Plan) -> list[ChannelPath]:
    """Return all paths of channels; either end of a path may be the host.

    Args:
        model: the legal float model.
        plan: placement of every node.
    """
    int8 = {id(t) for node in plan.int8_nodes for t in node.outputs}
    paths: dict[str, ChannelPath | None] = {}
    for conv in plan.convolutions:
        source = conv.inputs[0]
        if id(source) not in int8 and source.name not in paths:
            paths[source.name] = _follow(model, plan, source, None)
        if _is_plain(conv):
            paths[conv.outputs[0].name] = _follow(model, plan, conv.outputs[0], conv)
    return [path for path in paths.values() if path is not None]


def _follow(model: Model, plan: Plan, tensor: Tensor, producer: Node | None) -> ChannelPath | None:
    """Return the path that begins with a tensor; None if its channels cannot be followed."""
    path, waiting = ChannelPath(tensor, producer), [tensor]
    while waiting:
        tensor = waiting.pop(0)
        path.tensors.append(tensor.name)
        consumers = query.consumers(tensor)
        on_host = model.is_output(tensor) or not consumers
        for node in consumers:
            on_device, is_data = plan.is_convolution(node), node.inputs[0] is tensor
            if on_device and is_data and _is_plain(node):
                path.readers.append(node)
            elif is_data and _keeps_channels_apart(plan, node):
                path.between.append(node)
                waiting.append(node.outputs[0])
            elif on_device or plan.is_passthrough(node) or plan.is_operator(node):
                return None
            else:
                on_host = True
        if on_host and not (tensor is path.tensor and producer is None):
            path.outputs.append(tensor)
    return path


def _is_plain(conv: Node) -> bool:
    """Return whether a node is a convolution of one group with constant weights and bias."""
    return _is_constant(conv) and int(query.attribute(conv, "group", 1)) == 1


def _is_constant(conv: Node) -> bool:
    bias = query.input_of(conv, 2)
    constant = bias is None or query.constant_input(conv, 2) is not None
    return constant and query.constant_input(conv, 1) is not None


def _keeps_channels_apart(plan: Plan, node: Node) -> bool:
    """Return whether a node treats each channel by itself, in place; a Pad must pad with 0."""
    if plan.is_convolution(node):
        return is_depthwise(node) and _is_constant(node)
    if not plan.is_passthrough(node) or node.op not in _APART:
        return False
    if node.op in ("Relu", "Clip"):
        return True
    rank = query.rank(node.inputs[0])
    if rank is None or rank < 3:
        return False
    if node.op == "MaxPool":
        return True
    pads, value = query.constant_input(node, 1), query.scalar_input(node, 2)
    if pads is None or query.input_of(node, 3) is not None:
        return False
    pads = pads.reshape(-1)
    return not (value or pads[1] or pads[rank + 1])
