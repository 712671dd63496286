"""Transpose."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.model import Node, query
from npuconv.model.proto import attributes_of
from npuconv.ops.channels import Join, Slots, mixed
from npuconv.ops.operator import always, register
from npuconv.ops.tape import Gradients, Tape, Visit
from npuconv.tflite.draft import Draft, View


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    rank = query.rank(node.inputs[0])
    perm = query.attribute(node, "perm", None)
    if perm is None and rank is not None:
        perm = list(range(rank))[::-1]
    if inputs[0].axis is None or perm is None:
        return mixed(join, node, inputs)
    return [Slots(list(perm).index(inputs[0].axis), inputs[0].numbers)]


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    perm = visit.attributes.get("perm", list(range(len(visit.shape())))[::-1])
    return {0: tape.add("Transpose", visit.dy, perm=np.argsort(perm).tolist())}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Register the result as another view of the stored tensor."""
    name, result = node.input[0], node.output[0]
    rank = len(draft.shape(name))
    perm = list(attributes_of(node).get("perm", reversed(range(rank))))
    source, order = draft.stored_view(name)
    draft.alias(result, View(source, tuple(perm.index(axis) for axis in order)))


register(
    "Transpose",
    passes=always,
    follow=_follow,
    adjoint=_adjoint,
    to_tflite=_to_tflite,
    takes_open=True,
)
