"""Compute half and double precision convolutions in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.passes import Phase, model_pass

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.passes._context import PassContext

_WIDENED = ("float16", "float64")


@model_pass(Phase.CANONICALIZE, after=("raise-opset",))
def widen_convolutions(model: Model, ctx: PassContext) -> int:
    """Compute half and double precision convolutions in float32.

    The device takes int8 only, and what is quantized is calibrated in float32. Casts
    stand before and after each; inputs and outputs of the model keep their types.
    """
    fired = 0
    for node in model.nodes(*query.CONVOLUTIONS):
        dtype = query.dtype_name(node.inputs[0])
        if dtype in _WIDENED and query.constant_input(node, 1) is not None:
            # Half precision itself is the larger error, so there is nothing to compare.
            with ctx.rewrite(model, [node], f"{node.op} in {dtype}", "in float32", measure=False):
                _widen(model, node)
            fired += 1
    return fired


def _widen(model: Model, node: Node) -> None:
    import numpy as np
    import onnx

    from npuconv.model import edit

    narrow = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(node.inputs[0].dtype))
    for index, tensor in enumerate(list(node.inputs)):
        values = query.value(tensor)
        if values is not None:
            wide = edit.constant(model, tensor.name, values.astype(np.float32))
            node.inputs[index] = wide
        elif tensor.name:
            wide = edit.variable(model, f"{node.name}/wide", tensor, np.float32)
            attrs = {"to": int(onnx.TensorProto.FLOAT)}
            edit.add_node(model, "Cast", [tensor], [wide], origin=[node], attrs=attrs)
            node.inputs[index] = wide
    result = node.outputs[0]
    node.outputs[0] = edit.variable(model, f"{node.name}/out", result, np.float32)
    attrs = {"to": int(narrow)}
    edit.add_node(model, "Cast", [node.outputs[0]], [result], origin=[node], attrs=attrs)
