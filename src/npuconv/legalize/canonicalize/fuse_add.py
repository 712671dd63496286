"""Fold the addition of a constant per channel into the convolution before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.affine import absorb, operand

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node


@model_pass(Phase.CANONICALIZE, after=("write-default-attributes",))
def fuse_add(model: Model, ctx: PassContext) -> int:
    """Fold the addition of a constant per channel into the convolution before it.

    Add of, or Sub of, one number or one per channel, when nothing else reads the
    convolution; it becomes bias.
    """
    return sum(_fuse(model, ctx, node) for node in model.nodes("Add", "Sub"))


def _fuse(model: Model, ctx: PassContext, node: Node) -> int:
    import numpy as np

    found = operand(model, ctx, node, ordered=node.op == "Sub")
    if found is None:
        return 0
    conv, values = found
    offset = -values if node.op == "Sub" else values
    return absorb(model, ctx, conv, node, np.ones_like(offset), offset)
