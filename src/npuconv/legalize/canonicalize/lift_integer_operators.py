"""Let operators that only move or compare integers work on the float numbers instead.

A MaxPool, Reshape, Transpose, Concat or the like behind a QuantizeLinear changes
places with it: the same integers come out, and the float graph is whole. A Clip,
from training for a narrower range, moves too and gets its bounds in float.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools import quantized
from npuconv.legalize.tools.quantized import Parameters
from npuconv.model import Model, Node, edit, query

_MOVING = frozenset(
    {"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Gather"}
    | {"Identity", "DepthToSpace", "SpaceToDepth", "Concat", "Expand", "Tile", "Split"}
    | {"Relu", "Clip", "Pad", "Resize"}
)
_BOUNDS = {"Clip": (1, 2), "Pad": (2,)}  # indices of the inputs with the scale of the data


@register_pass(
    Phase.CANONICALIZE,
    *sorted(_MOVING),
    after=("expand-integer-operators", "expand-qlinear-operators"),
    infers=True,
)
def lift_integer_operators(model: Model, log: Log, node: Node) -> int:
    count = len(node.inputs) if node.op == "Concat" else 1
    producers = filter(None, map(query.producer, node.inputs[:count]))
    quantizers = [producer for producer in producers if quantized.is_quantize(producer)]
    if len(quantizers) < max(count, 1):
        return 0
    encodings = [quantized.parameters(quantizer) for quantizer in quantizers]
    encoding, reason = encodings[0], _fault(node, encodings)
    if reason or isinstance(encoding, str):
        return log.refuse(model, node, reason)
    parameters = [query.input_of(quantizers[0], index) for index in (1, 2)]
    with log.rewrite(
        model, [node], f"{node.op} of integers", f"{node.op}, QuantizeLinear", measure=False
    ):
        for index, quantizer in enumerate(quantizers):
            edit.set_input(node, index, quantizer.inputs[0])
        for index in _BOUNDS.get(node.op, ()):  # in float; 0 if no fill is given
            bound = query.input_of(node, index)
            stored = np.zeros((), encoding.dtype) if bound is None else quantized.constant(bound)
            if stored is None or (bound is None and node.op == "Clip"):
                continue
            value = encoding.dequantize(stored.reshape(()))
            edit.set_input(node, index, edit.constant(model, f"{node.name}/{index}", value))
        for index, result in enumerate(list(node.outputs)):
            lifted = edit.variable(model, f"{result.name}/float", result, np.float32)
            node.outputs[index] = lifted
            inputs = [lifted, *(tensor for tensor in parameters if tensor is not None)]
            edit.add_node(model, "QuantizeLinear", inputs, [result], origin=[node])
    return 1


def _fault(node: Node, encodings: list[Parameters | str]) -> str:
    """Return why a node cannot be swapped with the QuantizeLinear of its inputs, or ''."""
    for encoding in encodings:
        if isinstance(encoding, str):
            return f"the QuantizeLinear before it: {encoding}"
        if encoding.axis is not None:
            return "the QuantizeLinear before it has a scale for each channel"
        if not isinstance(encodings[0], str) and not encoding.equals(encodings[0]):
            return "its inputs have unlike scales"
    if node.op == "MaxPool" and len(node.outputs) > 1:
        return "it returns indices"
    if node.op == "Relu" and not isinstance(encodings[0], str) and encodings[0].zero:
        return "it compares with the integer 0, which stands for another number"
    bounds = (query.input_of(node, index) for index in _BOUNDS.get(node.op, ()))
    if any(bound is not None and quantized.constant(bound) is None for bound in bounds):
        return "what it compares or fills with is computed"
    if node.op == "Resize" and query.attribute(node, "mode", "nearest") != "nearest":
        return "it rounds between integers"
    return ""
