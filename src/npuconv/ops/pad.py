"""Pad with a constant."""

from __future__ import annotations

from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.channels import Join, Slots, extent, mixed, resized
from npuconv.ops.operator import Operator, always, register
from npuconv.ops.tape import Gradients, Tape, Visit, sliced


def _passes(node: Node) -> bool:
    mode = str(query.attribute(node, "mode", "constant"))
    value = query.input_of(node, 2)
    return mode == "constant" and (value is None or query.scalar_input(node, 2) is not None)


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Keep channels apart; a Pad of channels adds some with the scale of the nearest.

    One value suits any scale.
    """
    slots = inputs[0]
    if slots.axis is None or extent(node.outputs[0], slots.axis) == len(slots.numbers):
        return resized(join, node, inputs)
    amounts, rank = query.constant_input(node, 1), query.rank(node.inputs[0])
    if amounts is None or rank is None or query.input_of(node, 3) is not None:
        return mixed(join, node, inputs)
    before, after = int(amounts[slots.axis]), int(amounts[slots.axis + rank])
    if min(before, after) < 0:
        return mixed(join, node, inputs)
    first, last = slots.numbers[:1] * before, slots.numbers[-1:] * after
    return [Slots(slots.axis, (*first, *slots.numbers, *last))]


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    pads, shape = tape.value(at.inputs[1]), at.shape()
    mirrored = at.attributes.get("mode", b"constant") != b"constant"
    if pads is None or pads.size != 2 * len(shape) or pads.min() < 0 or mirrored:
        return {}
    spans = {k: (int(p), int(p) + n) for k, (p, n) in enumerate(zip(pads, shape, strict=False))}
    return {0: sliced(tape, at.dy, spans)}


register(
    Operator(
        name="Pad", adjoint=_adjoint, bounds=(2,), passes=_passes, moves=always, follow=_follow
    )
)
