"""Helpers of passes that remove a node whose output equals its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize import region as _region
from npuconv.model import edit

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node


def eliminate(model: Model, ctx: PassContext, node: Node, before: str) -> int:
    """Take ``node`` out, measured.

    Returns:
        1, or 0 where it cannot go because it copies an input or constant to an output.
    """
    if not edit.can_bypass(model, node):
        ctx.refuse(model, node, "it copies an input or a shared tensor to an output of the model")
        return 0
    source, result = node.inputs[0], node.outputs[0]
    # A Reshape holds for its own extents only, so they must not be made smaller.
    with ctx.rewrite(
        model, [node], before, "nothing", outputs=[result], modulus=None
    ) as record:  # fmt: skip
        if record.old is not None:
            record.new = _region.identity(record.old, source.name)
        edit.bypass(model, node)
    return 1
