"""Int8 operators beside the convolution, without the conversions around them.

An operator that TFLite gives a scale of its own is followed by a QUANTIZE where another is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import helper

from npuconv.arithmetic import litert
from npuconv.arithmetic.operators import TensorScale
from npuconv.emit.int8_operators import Int8Operator
from npuconv.emit.tflite.draft import Draft
from npuconv.emit.tflite.graph import Quantization


def declare(draft: Draft, operators: Iterable[Int8Operator]) -> None:
    """Set the scales of all int8 tensors that operators read or make."""
    for one in operators:
        for name, at in zip((*one.sources, one.result), one.scales, strict=True):
            draft.scales[name] = _of(at)


def alone(draft: Draft, one: Int8Operator) -> onnx.NodeProto:
    """Return the operator between int8 tensors, as the translation of float operators takes it.

    What it reads has one scale where TFLite demands that; what it makes has TFLite's.
    """
    made_at = litert.made_at(one.op, one.scales)
    made = one.result
    if made_at != one.scales[-1]:
        made = draft.sibling(one.result, "own", _of(made_at))
    inputs = list(one.inputs)
    if one.op == "Concat":
        pairs = zip(inputs, one.scales[:-1], strict=True)
        inputs = [_moved(draft, name, at, made_at) for name, at in pairs]
    attributes = {a.name: helper.get_attribute_value(a) for a in one.node.attribute}
    op = one.op
    if op == "PRelu" and litert.is_leaky(one.attributes["alpha"]):
        op, inputs, attributes = "LeakyRelu", inputs[:1], {"alpha": one.attributes["alpha"].item()}
    elif op == "PRelu":
        stored, scale = litert.slopes(one.attributes["alpha"])
        draft.fold(inputs[1], stored)
        draft.scales[inputs[1]] = Quantization.of(scale, 0)
    return helper.make_node(op, inputs, [made], one.name, **attributes)


def finish(draft: Draft, one: Int8Operator, whole: onnx.NodeProto) -> None:
    """Append the QUANTIZE to the scale that is wanted, where it is another."""
    if whole.output[0] != one.result:
        _requantize(draft, whole.output[0], one.result)


def _moved(draft: Draft, name: str, at: TensorScale, wanted: TensorScale) -> str:
    if at == wanted:
        return name
    made = draft.sibling(name, "moved", _of(wanted))
    if draft.view(made) is None:
        _requantize(draft, name, made)
    return made


def _requantize(draft: Draft, name: str, made: str) -> None:
    order = draft.order([name], len(draft.shape(name)))
    source = draft.read(name, order)
    draft.emit("QUANTIZE", [source], [draft.store(made, order)], "QuantizeOptions")


def _of(at: TensorScale) -> Quantization:
    return Quantization.of(at.scale, at.zero)
