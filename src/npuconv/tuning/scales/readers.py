"""The convolutions that read a tensor, as what its rounding does to their outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import query
from npuconv.quant.layer import per_weight
from npuconv.quant.rounding import compensation, damping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from npuconv.model.types import Node
    from npuconv.plan.channels import Channels
    from npuconv.quant.moments import Moments
    from npuconv.quant.statistics import Statistics

_LARGE = 2**23  # bytes of weights that would be held twice over for every layer


@dataclass(frozen=True)
class Reader:
    """A convolution that reads a tensor of the group.

    Attributes:
        stored: its weights, [M,C/g,...].
        size: of what the layer puts out.
        group: of the convolution.
        slots: index into the group's slots, int [C] or [1].
        left: broadcastable to the weights, of each input's square what the others
            cannot make up for when the weights are rounded with their data in view.
    """

    stored: NDArray[np.floating]
    size: float
    group: int
    slots: NDArray[np.int64]
    left: NDArray[np.float64] | None = None

    @property
    def weight(self) -> NDArray[np.float64]:
        """The weights over the size of the output; large ones are made anew each time."""
        return self._held if self.stored.nbytes < _LARGE else self._made

    @cached_property
    def _held(self) -> NDArray[np.float64]:
        return self._made

    @property
    def _made(self) -> NDArray[np.float64]:
        return np.asarray(self.stored, np.float64) / self.size


def reader_of(
    conv: Node,
    channels: Channels,
    stats: Mapping[str, Statistics],
    own: Sequence[int],
    moments: Mapping[str, Moments],
) -> Reader | None:
    """A convolution as a reader; None where its weights are not constant.

    Args:
        conv: the convolution.
        channels: which channels share a scale.
        stats: of what convolutions put out.
        own: the slots of the group that it reads.
        moments: of the windows of convolutions, by node name.
    """
    weight = query.constant_input(conv, 1)
    if weight is None:
        return None
    place = {slot: k for k, slot in enumerate(own)}
    slots = np.asarray([place[s] for s in channels.slots(conv.inputs[0].name)])
    made = _made(conv, stats)
    power = 1.0 if made is None else float(np.mean(made.squares))
    size = max(power, 1e-30) ** 0.5
    group = int(query.attribute(conv, "group", 1))
    left = _left(moments[conv.name], weight.shape) if conv.name in moments else None
    return Reader(weight, size, group, slots, left)


def _made(conv: Node, stats: Mapping[str, Statistics]) -> Statistics | None:
    """Of what the layer puts out, or of what its activation lets through of that."""
    own = conv.outputs[0]
    behind = [tensor for reader in query.consumers(own) for tensor in reader.outputs]
    names = [own.name, *(tensor.name for tensor in behind)]
    return next((stats[name] for name in names if name in stats), None)


def _left(moments: Moments, shape: tuple[int, ...]) -> NDArray[np.float64]:
    parts = []
    for number, block in enumerate(moments.blocks):
        means = moments.means[:, block]
        products = moments.products(number) - means[:, :, None] * means[:, None, :]
        damp = damping(len(products[0]), moments.count)
        parts.append(compensation(products, damp).left)
    rows = np.concatenate(parts, axis=1)
    if moments.groups == 1:  # the same for all outputs
        return rows.reshape(1, *shape[1:])
    return np.repeat(rows, shape[0] // moments.groups, axis=0).reshape(shape)


def spread(reader: Reader, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers of the slots laid out to meet the reader's weights."""
    return per_weight(numbers[reader.slots], reader.weight.shape, reader.group)
