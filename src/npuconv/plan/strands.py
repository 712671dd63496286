"""From a convolution to those that mix its channels: what lies between keeps them apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.plan.placement import Plan

_APART = ("Relu", "Clip", "MaxPool", "Pad")  # carried operators that treat channels alike


@dataclass
class Strand:
    """Channels that nothing mixes.

    Attributes:
        maker: the convolution that makes each of them from all that it reads.
        between: carried operators and depthwise convolutions, in the order of the model.
        readers: the convolutions that mix them.
        tensors: names of all tensors that have these channels.
    """

    maker: Node
    between: list[Node] = field(default_factory=list)
    readers: list[Node] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)

    @property
    def makers(self) -> list[Node]:
        """Convolutions that have a row for every channel: all but the readers."""
        return [self.maker, *(node for node in self.between if node.op == "Conv")]


def is_depthwise(conv: Node) -> bool:
    """Whether every channel of a convolution's result is made of one of its own."""
    weight = query.constant_input(conv, 1)
    return weight is not None and 1 < len(weight) == int(query.attribute(conv, "group", 1))


def strand(model: Model, plan: Plan, maker: Node) -> Strand | None:
    """The channels of a convolution, up to where they are mixed.

    Args:
        model: the legal float model.
        plan: where every node runs.
        maker: a convolution of the device.

    Returns:
        None where another operator than those of the device, and what carries its integers,
        sees one of the tensors, or where weights are not constant.
    """
    if not _is_plain(maker):
        return None
    found, waiting = Strand(maker), [maker.outputs[0]]
    while waiting:
        tensor = waiting.pop(0)
        found.tensors.append(tensor.name)
        readers = query.consumers(tensor)
        if not readers or model.is_output(tensor):
            return None
        for node in readers:
            if plan.on_device(node) and node.inputs[0] is tensor and _is_plain(node):
                found.readers.append(node)
            elif _keeps_apart(plan, node, tensor):
                found.between.append(node)
                waiting.append(node.outputs[0])
            else:
                return None
    return found


def _is_plain(conv: Node) -> bool:
    """A convolution of one group with constant weights and bias."""
    return _is_constant(conv) and int(query.attribute(conv, "group", 1)) == 1


def _is_constant(conv: Node) -> bool:
    bias = query.input_of(conv, 2)
    constant = bias is None or query.constant_input(conv, 2) is not None
    return constant and query.constant_input(conv, 1) is not None


def _keeps_apart(plan: Plan, node: Node, tensor: Tensor) -> bool:
    if node.inputs[0] is not tensor:
        return False
    if plan.on_device(node):
        return is_depthwise(node) and _is_constant(node)
    return plan.is_carried(node) and node.op in _APART and _spares_channels(node)


def _spares_channels(node: Node) -> bool:
    """Whether it leaves as many channels as there were; a Pad puts 0 beside each."""
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
