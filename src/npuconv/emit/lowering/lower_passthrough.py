"""Run operators on int8 tensors if their integers are the same there.

Relu, Clip, MaxPool, Concat, Transpose and the like between conversions of one scale
only move or compare numbers. Bounds and fill values are rounded to the same scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.emit.emission import Emission, dequantizer, quantizer, same_scale
from npuconv.lazy import np
from npuconv.legalize.registry import Phase, register_pass
from npuconv.model import Model, Node, edit, query
from npuconv.ops.operator import OPERATORS, data_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray


@register_pass(Phase.LOWER, after=("lower-convolutions",))
def lower_passthrough(model: Model, emission: Emission) -> int:
    nodes = [node for node in emission.plan.passthrough if len(node.inputs)]  # not removed
    fired = sum(_lower(model, node) for node in nodes)
    for node in nodes:
        if node.op == "Relu" and query.dtype_name(node.inputs[0]) == "int8":
            _prevent_fusion(model, node)
    return fired


def _lower(model: Model, node: Node) -> int:
    sources = [dequantizer(tensor) for tensor in data_inputs(node)]
    results = [t for t in node.outputs if t.outputs or model.is_output(t)]
    consumers = [quantizer(model, tensor) for tensor in results]
    conversions = [*sources, *consumers]
    if not sources or any(c is None or not same_scale(c, sources[0]) for c in conversions):
        return 0
    _round_constants(model, node, sources[0])
    for index, source in enumerate(sources):
        assert source is not None
        node.inputs[index] = source.inputs[0]
    for tensor, consumer in zip(results, consumers, strict=True):
        assert consumer is not None
        stored = consumer.outputs[0]
        edit.disconnect(consumer)
        edit.replace_output(node, tensor, stored)
    for tensor in node.outputs:
        if tensor not in results and tensor.dtype is not None:
            tensor.dtype = node.inputs[0].dtype  # nobody reads it; it is int8 all the same
    return 1


def _prevent_fusion(model: Model, relu: Node) -> None:
    """Write a Relu on int8 as a Clip if its only consumer is a Clip.

    onnxruntime fuses the two for every type, and refuses the model if the type is int8
    (relu_clip_fusion.cc: "Unexpected data type for Clip 'min' input").
    """
    consumers = query.consumers(relu.outputs[0])
    # A conversion whose result nobody reads any more is deleted later.
    alive = [n for n in consumers if any(t.outputs or model.is_output(t) for t in n.outputs)]
    if [n.op for n in alive] == ["Clip"]:
        _become_clip(model, relu, np.zeros((), np.int8))


def _become_clip(model: Model, relu: Node, zero: NDArray[np.int8]) -> None:
    """Write a Relu on int8 as a Clip from the integer that represents 0."""
    relu.op = "Clip"
    relu.inputs.append(edit.constant(model, f"{relu.name}/Clip/1", zero))


def _round_constants(model: Model, node: Node, source: Node | None) -> None:
    """Round bounds of Clip and the fill of Pad; write a Relu as a Clip unless 0 is stored as 0."""
    from npuconv.arithmetic.encoding import quantize

    assert source is not None
    scale, zero = query.constant_input(source, 1), query.constant_input(source, 2)
    if node.op == "Relu" and zero is not None and zero.any():
        _become_clip(model, node, zero)
        return
    operator = OPERATORS.get(node.op)
    for index in operator.bounds if operator is not None else ():
        value = query.constant_input(node, index)
        if value is not None and scale is not None and zero is not None:
            rounded = quantize(value, scale, zero)
            tensor = edit.constant(model, f"{node.name}/{node.op}/{index}", rounded)
            edit.set_input(node, index, tensor)
