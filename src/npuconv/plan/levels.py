"""Between which values channels stay, from where they are made to where they are mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.plan.strands import Strand

Doubles = NDArray[np.float64]


class Levels(NamedTuple):
    """What the channels of a tensor never leave.

    Attributes:
        low: float64 [C].
        high: float64 [C].
    """

    low: Doubles
    high: Doubles

    def around(self, conv: Node) -> Levels:
        """With the zeros that a convolution may put around its input."""
        return self.or_zero() if any(query.attribute(conv, "pads", None) or ()) else self

    def or_zero(self) -> Levels:
        """These values, and 0."""
        return Levels(np.minimum(self.low, 0.0), np.maximum(self.high, 0.0))


def levels(strand: Strand, made: Levels) -> dict[str, Levels]:
    """Follow channels through all tensors of a strand.

    Args:
        strand: the channels.
        made: of what its maker puts out.

    Returns:
        By tensor.
    """
    found = {strand.maker.outputs[0].name: made}
    for node in strand.between:
        found[node.outputs[0].name] = _BEHIND[node.op](node, found[node.inputs[0].name])
    return found


def parameters(conv: Node) -> tuple[Doubles, Doubles]:
    """Weights and bias of a convolution of a strand, the bias 0 where it has none."""
    weight, bias = query.constant_input(conv, 1), query.constant_input(conv, 2)
    assert weight is not None, "convolutions of a strand have constant weights"
    own = np.zeros(len(weight)) if bias is None else bias.astype(np.float64)
    return weight.astype(np.float64), own


def _convolved(node: Node, read: Levels) -> Levels:
    """Each channel of a depthwise convolution is made of one."""
    weight, bias = parameters(node)
    flat, (low, high) = weight.reshape(len(weight), -1), read.around(node)
    up, down = np.maximum(flat, 0).sum(axis=1), np.minimum(flat, 0).sum(axis=1)
    return Levels(up * low + down * high + bias, up * high + down * low + bias)


def _clipped(node: Node, read: Levels) -> Levels:
    low, high = (query.scalar_input(node, k) for k in (1, 2))
    limits = -np.inf if low is None else low, np.inf if high is None else high
    return Levels(np.clip(read.low, *limits), np.clip(read.high, *limits))


def _padded(node: Node, read: Levels) -> Levels:
    pads = query.constant_input(node, 1)
    assert pads is not None, "a Pad of a strand has constant pads"
    return read.or_zero() if pads.any() else read


_BEHIND: dict[str, Callable[[Node, Levels], Levels]] = {
    "Conv": _convolved,
    "Relu": lambda _, read: Levels(np.maximum(read.low, 0.0), np.maximum(read.high, 0.0)),
    "Clip": _clipped,
    "MaxPool": lambda _, read: read,
    "Pad": _padded,
}
