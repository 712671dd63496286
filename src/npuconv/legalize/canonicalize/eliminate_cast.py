"""Take out Casts to the type a tensor already has.

Exporters leave them behind; each stands between two operators that could fuse.
"""

from __future__ import annotations

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model.core import Model
from npuconv.model.types import Node


@model_pass(Phase.CANONICALIZE, after=("raise-opset", "widen-convolutions"))
def eliminate_cast(model: Model, ctx: PassContext) -> int:
    return sum(
        eliminate(model, ctx, node, f"Cast to {node.inputs[0].dtype}")
        for node in model.nodes("Cast")
        if _is_noop(node)
    )


def _is_noop(node: Node) -> bool:
    import onnx

    dtype = node.inputs[0].dtype
    try:
        return dtype is not None and onnx.helper.np_dtype_to_tensor_dtype(dtype) == node.attrs["to"]
    except (KeyError, ValueError, TypeError):
        return False  # a type numpy has no name for
