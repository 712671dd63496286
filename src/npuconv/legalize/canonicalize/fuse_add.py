"""Fold the addition of a constant per channel into the convolution before it.

Add of, or Sub of, one number or one per channel, when nothing else reads the
convolution; it becomes bias.
"""

from __future__ import annotations

from npuconv.legalize.annotations import Annotations
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.affine import fuse_constants
from npuconv.model.core import Model


@model_pass(Phase.CANONICALIZE, after=("write-default-attributes",))
def fuse_add(model: Model, log: Log, annotations: Annotations) -> tuple[int, Annotations]:
    return fuse_constants(model, log, annotations, model.nodes("Add", "Sub"))
