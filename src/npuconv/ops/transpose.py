"""Transpose."""

from __future__ import annotations

import numpy as np

from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.channels import Join, Slots, mixed
from npuconv.ops.operator import Operator, always, register
from npuconv.ops.tape import Gradients, Tape, Visit


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    rank = query.rank(node.inputs[0])
    perm = query.attribute(node, "perm", None)
    if perm is None and rank is not None:
        perm = list(range(rank))[::-1]
    if inputs[0].axis is None or perm is None:
        return mixed(join, node, inputs)
    return [Slots(list(perm).index(inputs[0].axis), inputs[0].numbers)]


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    perm = at.attributes.get("perm", list(range(len(at.shape())))[::-1])
    return {0: tape.add("Transpose", at.dy, perm=np.argsort(perm).tolist())}


register(Operator(name="Transpose", adjoint=_adjoint, passes=always, moves=always, follow=_follow))
