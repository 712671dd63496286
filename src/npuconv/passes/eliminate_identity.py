"""Take out Identity nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.passes import Phase, model_pass
from npuconv.passes._eliminate import eliminate

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.passes._context import PassContext


@model_pass(Phase.CANONICALIZE, after=("raise-opset",))
def eliminate_identity(model: Model, ctx: PassContext) -> int:
    """Take out Identity nodes.

    An Identity that copies an input of the model, or a tensor that is an output itself,
    to an output stays: both names belong to the user.
    """
    return sum(eliminate(model, ctx, node, "Identity") for node in model.nodes("Identity"))
