"""Fold a multiplication by a constant per channel into the convolution before it.

Mul by, or Div by, one number or one per channel, when nothing else reads the
convolution.
"""

from __future__ import annotations

from npuconv.legalize.annotations import Annotations
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.affine import fuse_constants
from npuconv.model.core import Model


@model_pass(Phase.CANONICALIZE, after=("write-default-attributes",))
def fuse_mul(model: Model, log: Log, annotations: Annotations) -> tuple[int, Annotations]:
    return fuse_constants(model, log, annotations, model.nodes("Mul", "Div"))
