"""Write out the zero point 0 of a DequantizeLinear of int8 that has none.

onnxruntime's optimizer copies such a node as a QuantizeLinear of the same inputs, which
without a zero point makes uint8, and loses all that is negative.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.model import Model, Node, edit, query


@register_pass(
    Phase.CANONICALIZE, "DequantizeLinear", after=("raise-opset", "remove-fake-quantization")
)
def write_zero_points(model: Model, log: Log, node: Node) -> int:
    source, scale = node.inputs[0], query.constant_input(node, 1)
    if scale is None or query.input_of(node, 2) is not None:
        return 0
    if query.dtype_name(source) != "int8" or query.is_constant(source):
        return 0
    with log.rewrite(model, [node], "no zero point", "zero point 0"):
        zeros = edit.constant(model, f"{node.name}/zero_point", np.zeros(scale.shape, np.int8))
        edit.set_input(node, 2, zeros)
    return 1
