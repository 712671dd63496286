"""Take out a Relu or Clip that cuts off nothing which int8 could hold.

Where the lowest integer stands for 0 in every channel, rounding to int8 saturates
there, and the node has nothing left to do. Where 0 stands for 0 but channels have
their own scales, a Clip becomes a Relu: its upper bound is where int8 ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query

if TYPE_CHECKING:
    from npuconv.emit.context import EmitContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node

_LOWEST = -128


@model_pass(Phase.QUANTIZE)
def drop_saturated(model: Model, ctx: EmitContext) -> int:
    if not ctx.encodings:
        return 0
    found = [n for n in ctx.plan.passthrough if n.op in ("Relu", "Clip") and n.outputs]
    return sum(_drop(model, ctx, node) for node in found)


def _drop(model: Model, ctx: EmitContext, node: Node) -> int:
    source, result = node.inputs[0], node.outputs[0]
    encoding = ctx.encodings.get(result.name)
    if encoding is None or (encoding.is_plain and not encoding.nominal_zero):
        return 0
    if not (encoding.zeros == _LOWEST).all():
        return _as_relu(node)
    if query.sole_consumer(model, source) is None and model.is_output(result):
        return _without_bounds(node)
    maker = query.producer(source)
    assert maker is not None, "what it reads is int8, so a node makes it"
    if query.sole_consumer(model, source) is None:  # others know the source by its name
        edit.bypass(model, node)
    else:
        edit.disconnect(node)
        edit.hand_over(source, result)
    ctx.plan.passthrough = [n for n in ctx.plan.passthrough if n is not node]
    edit.inherit(model, maker, node)
    return 1


def _without_bounds(node: Node) -> int:
    """A Clip that does nothing but give a tensor the second of its two names."""
    if node.op == "Clip" and len(node.inputs) == 1:
        return 0
    edit.drop_inputs(node, 1)
    node.op = "Clip"
    node.attrs.clear()
    return 1


def _as_relu(node: Node) -> int:
    if node.op == "Relu":
        return 0
    edit.drop_inputs(node, 1)
    node.op = "Relu"
    node.attrs.clear()
    return 1
