"""Fold a multiplication by a constant per channel into the convolution before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.affine import absorb, operand

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node


@model_pass(Phase.CANONICALIZE, after=("write-default-attributes",))
def fuse_mul(model: Model, ctx: PassContext) -> int:
    """Fold a multiplication by a constant per channel into the convolution before it.

    Mul by, or Div by, one number or one per channel, when nothing else reads the
    convolution.
    """
    return sum(_fuse(model, ctx, node) for node in model.nodes("Mul", "Div"))


def _fuse(model: Model, ctx: PassContext, node: Node) -> int:
    import numpy as np

    found = operand(model, ctx, node, ordered=node.op == "Div")
    if found is None:
        return 0
    conv, values = found
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = 1.0 / values if node.op == "Div" else values
    if not np.isfinite(factor).all():
        ctx.refuse(model, node, "it divides by zero")
        return 0
    return absorb(model, ctx, conv, node, factor, np.zeros_like(factor))
