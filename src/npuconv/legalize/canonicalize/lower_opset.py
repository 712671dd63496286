"""Call a very new model by the older opset it could as well be written in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model


@model_pass(Phase.CANONICALIZE, after=("name-nodes",))
def lower_opset(model: Model, ctx: PassContext) -> int:
    """Call a very new model by the older opset it could as well be written in.

    Opsets after 21 mostly add types to operators. If every operator of the model reads
    the same in 21, its number is lowered, so that runtimes of two years ago load the
    result; if one does not, it is named and the opset stays.
    """
    from npuconv.legalize.tools import opset as _opset
    from npuconv.model.save import MAX_OPSET

    if model.opset <= MAX_OPSET:
        return 0
    for node, _ in model.walk():
        if not _opset.reads_the_same(node, model.opset, MAX_OPSET):
            ctx.refuse(model, node, f"{node.op} of opset {model.opset} is not in {MAX_OPSET}")
            return 0
    with ctx.rewrite(model, [], f"opset {model.opset}", f"opset {MAX_OPSET}", measure=False):
        model.graph.opset = MAX_OPSET
    return 1
