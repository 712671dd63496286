"""MaxPool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.channels import Join, Slots, mixed, same
from npuconv.ops.operator import Operator, register
from npuconv.ops.tape import PREFIX, Gradients, Tape, Visit


def _passes(node: Node) -> bool:
    """Return whether a pool makes no indices."""
    return len(node.outputs) == 1 and not query.attribute(node, "storage_order", 0)


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Neighbours along all axes but the first two are compared."""
    is_along_channels = inputs[0].axis in (0, 1, None)
    return (same if is_along_channels else mixed)(join, node, inputs)


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    """Put each value where its maximum was; windows that overlap are put there in turns."""
    if len(at.node.output) == 1:
        at.node.output.append(f"{PREFIX}/indices/{at.y}")
    kernel = at.attributes["kernel_shape"]
    ones = [1] * len(kernel)
    strides, dilations = (at.attributes.get(name, ones) for name in ("strides", "dilations"))
    triples = zip(kernel, strides, dilations, strict=True)
    turns = [-(-((k - 1) * d + 1) // s) for k, s, d in triples]
    shape = tape.integers(at.shape())
    attributes = {"kernel_shape": ones, "strides": ones}  # the indices say where values go
    parts = []
    for place in np.ndindex(*turns):
        if all(start < n for start, n in zip(place, at.output_shape[2:], strict=True)):
            pair = [_every(tape, name, place, turns) for name in (at.dy, at.node.output[1])]
            parts.append(tape.add("MaxUnpool", *pair, shape, **attributes))
    return {0: tape.total(parts)}


def _every(tape: Tape, source: str, starts: Sequence[int], steps: Sequence[int]) -> str:
    """Take every n-th value along the spatial axes."""
    if max(steps) == 1:
        return source
    rows = (starts, [2**31 - 1] * len(steps), range(2, 2 + len(steps)), steps)
    return tape.add("Slice", source, *(tape.integers(list(row)) for row in rows))


register(
    Operator(
        name="MaxPool",
        adjoint=_adjoint,
        passes=_passes,
        moves=lambda node: sum(map(bool, node.output)) == 1,
        follow=_follow,
    )
)
