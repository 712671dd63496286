"""Fold a multiplication by a constant per channel into the convolution before it.

Mul by, or Div by, one number or one per channel, when nothing else reads the
convolution.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.affine import fuse_two_sided
from npuconv.model import Model, Node


@register_pass(Phase.CANONICALIZE, "Mul", "Div", after=("write-default-attributes",))
def fuse_mul(model: Model, log: Log, node: Node) -> int:
    return fuse_two_sided(model, log, node)
