"""Raise an old model to the opset that int8 operators need.

Node by node: one whose operator only gained types and optional attributes stays as
it is, any other goes through ONNX's version converter alone and is compared with
what it was. One node that cannot be converted stops the whole, is named, and
nothing is changed.
"""

from __future__ import annotations

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model.core import Model
from npuconv.version import OLDEST_OPSET


@model_pass(Phase.CANONICALIZE, after=("fold-constants", "replace-experimental-ops"), infers=True)
def raise_opset(model: Model, ctx: PassContext) -> int:
    if model.opset >= OLDEST_OPSET:
        return 0
    from npuconv.legalize.tools import opset as _opset

    return _opset.raise_to(model, ctx, OLDEST_OPSET)
