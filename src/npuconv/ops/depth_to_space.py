"""DepthToSpace and SpaceToDepth."""

from __future__ import annotations

from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.channels import Join, Slots, mixed
from npuconv.ops.operator import Operator, always, register
from npuconv.ops.tape import Gradients, Tape, Visit


def _to_depth(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Follow a SpaceToDepth: the channels once for each cell of a block."""
    block = int(query.attribute(node, "blocksize", 1))
    if inputs[0].axis != 1:
        return mixed(join, node, inputs)
    return [Slots(1, inputs[0].numbers * block**2)]


def _from_depth(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Follow a DepthToSpace: the channels of all cells of a block become one."""
    slots, cells = inputs[0], int(query.attribute(node, "blocksize", 1)) ** 2
    if slots.axis != 1 or len(slots.numbers) % cells:
        return mixed(join, node, inputs)
    count = len(slots.numbers) // cells
    if str(query.attribute(node, "mode", "DCR")) == "DCR":
        return [Slots(1, tuple(join(slots.numbers[k::count]) for k in range(count)))]
    blocks = (slots.numbers[k : k + cells] for k in range(0, len(slots.numbers), cells))
    return [Slots(1, tuple(join(block) for block in blocks))]


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    size, (n, c, h, w) = at.attributes["blocksize"], at.shape()
    apart = tape.reshape(at.dy, (n, c // size**2, h, size, w, size))
    channels_first = at.attributes.get("mode", b"DCR") == b"CRD"
    perm = [0, 1, 3, 5, 2, 4] if channels_first else [0, 3, 5, 1, 2, 4]
    return {0: tape.reshape(tape.add("Transpose", apart, perm=perm), at.shape())}


register(
    Operator(
        name="DepthToSpace", adjoint=_adjoint, passes=always, moves=always, follow=_from_depth
    ),
    Operator(name="SpaceToDepth", passes=always, moves=always, follow=_to_depth),
)
