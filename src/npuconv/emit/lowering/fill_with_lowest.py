"""Let a Pad fill with the integer that stands for 0.

Where one integer stands for 0 in every channel, as the lowest does behind a Relu, a Pad
between int8 tensors fills with that. What reads the result knows it by the bias. Where the
device is told that zero point, a fill of 0 is rounded to it.
"""

from __future__ import annotations

from npuconv.emit.context import EmitContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node


@model_pass(Phase.QUANTIZE)
def fill_with_lowest(model: Model, ctx: EmitContext) -> int:
    if not ctx.encodings:
        return 0
    return sum(_fill(model, ctx, node) for node in ctx.plan.passthrough if node.op == "Pad")


def _fill(model: Model, ctx: EmitContext, node: Node) -> int:
    import numpy as np

    encoding = ctx.encodings.get(node.outputs[0].name)
    zeros = {0} if encoding is None else set(encoding.zeros.tolist())
    if encoding is None or len(zeros) > 1 or zeros == {encoding.nominal_zero}:
        return 0
    value = np.asarray((zeros.pop() - encoding.nominal_zero) * encoding.nominal, np.float32)
    if query.scalar_input(node, 2) == value:
        return 0
    edit.set_input(node, 2, edit.constant(model, f"{node.name}/lowest", value))
    return 1
