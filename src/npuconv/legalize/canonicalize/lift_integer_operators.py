"""Let operators that only move or compare integers work on the float numbers instead.

A MaxPool, Reshape, Transpose, Concat or the like behind a QuantizeLinear changes
places with it: the same integers come out, and the float graph is whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    from npuconv.legalize.tools.quantized import Parameters

_MOVING = frozenset(
    {"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Gather"}
    | {"Identity", "DepthToSpace", "SpaceToDepth", "Concat", "Expand", "Tile", "Split"}
)


@model_pass(
    Phase.CANONICALIZE,
    after=("expand-integer-operators", "expand-qlinear-operators"),
    infers=True,
)
def lift_integer_operators(model: Model, ctx: PassContext) -> int:
    return sum(_lift(model, ctx, node) for node in model.nodes(*sorted(_MOVING)))


def _lift(model: Model, ctx: PassContext, node: Node) -> int:
    from npuconv.legalize.tools import quantized

    count = len(node.inputs) if node.op == "Concat" else 1
    makers = [query.producer(t) for t in node.inputs[:count]]
    if not makers or not all(quantized.is_quantize(m) for m in makers):
        return 0
    found = [quantized.parameters(m) for m in makers if m is not None]
    reason = _fault(node, found)
    if reason:
        ctx.refuse(model, node, reason)
        return 0
    first = makers[0]
    assert first is not None, "it is a QuantizeLinear"
    scale, zero = query.input_of(first, 1), query.input_of(first, 2)
    assert scale is not None, "its parameters were read"
    with ctx.rewrite(
        model, [node], f"{node.op} of integers", f"{node.op}, QuantizeLinear", measure=False
    ):
        for index, maker in enumerate(makers):
            assert maker is not None, "it is a QuantizeLinear"
            edit.set_input(node, index, maker.inputs[0])
        for index, result in enumerate(list(node.outputs)):
            _quantize(model, node, index, result, scale, zero)
    return 1


def _quantize(
    model: Model, node: Node, index: int, result: Tensor, scale: Tensor, zero: Tensor | None
) -> None:
    import numpy as np

    lifted = edit.variable(model, f"{result.name}/float", result, np.float32)
    node.outputs[index] = lifted
    inputs = [lifted, scale, *([zero] if zero is not None else [])]
    edit.add_node(model, "QuantizeLinear", inputs, [result], origin=[node])


def _fault(node: Node, found: list[Parameters | str]) -> str:
    """Return why a node cannot change places with what quantizes its inputs, or ''."""
    for one in found:
        if isinstance(one, str):
            return f"the QuantizeLinear before it: {one}"
        if one.axis is not None:
            return "the QuantizeLinear before it has a scale for each channel"
        if one.axis is None and not isinstance(found[0], str) and not one.equals(found[0]):
            return "its inputs have unlike scales"
    if node.op == "MaxPool" and len(node.outputs) > 1:
        return "it returns indices"
    return ""
