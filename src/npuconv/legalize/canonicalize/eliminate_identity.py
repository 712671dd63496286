"""Take out Identity nodes.

An Identity that copies an input of the model, or a tensor that is an output itself,
to an output stays: both names belong to the user.
"""

from __future__ import annotations

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model.core import Model


@model_pass(Phase.CANONICALIZE, after=("raise-opset",))
def eliminate_identity(model: Model, ctx: PassContext) -> int:
    return sum(eliminate(model, ctx, node, "Identity") for node in model.nodes("Identity"))
