"""Fold a multiplication by a constant per channel into the convolution before it.

Mul by, or Div by, one number or one per channel, when nothing else reads the
convolution.
"""

from __future__ import annotations

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.affine import fuse_two_sided
from npuconv.model.core import Model


@model_pass(Phase.CANONICALIZE, after=("write-default-attributes",))
def fuse_mul(model: Model, ctx: PassContext) -> int:
    return sum(fuse_two_sided(model, ctx, node) for node in model.nodes("Mul", "Div"))
