"""Keep runtimes from fusing a host operator with conversions that have a scale per channel.

onnxruntime fuses an operator between DequantizeLinear and QuantizeLinear into its own
integer operator, which takes scalar scales only, and then fails. It also fuses a MatMul
of two DequantizeLinear without QuantizeLinear if ``session.qdqisint8allowed`` is 1. The
pass replaces a conversion at the operator by a conversion with a scalar scale, a Mul and
an Add.
"""

from __future__ import annotations

import math

from npuconv.emit.emission import Emission, dequantizer
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")
_FLOAT_RESULTS = ("MatMul", "Gemm")  # operators that are fused without a QuantizeLinear
# Nodes that a runtime removes, or moves in front of a DequantizeLinear.
_MOVED = frozenset(
    {"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice"}
    | {"Identity", "Dropout", "Cast"}
)
_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}  # constants without effect


@model_pass(Phase.QUANTIZE, after=("quantize-weights",))
def separate_conversions(model: Model, emission: Emission) -> int:
    if not emission.encodings:
        return 0
    inner = {id(n) for n in (*emission.plan.convolutions, *emission.plan.passthrough)}
    return sum(_separate(model, node) for node in list(model.nodes()) if id(node) not in inner)


def _separate(model: Model, node: Node) -> int:
    if node.op in _CONVERSIONS or not node.outputs:
        return 0
    dequantizers = [_dequantizer_behind(t) for t in _variables(node)]
    quantizers = [n for t in node.outputs for n in query.consumers(t) if n.op == "QuantizeLinear"]
    is_fused = quantizers or node.op in _FLOAT_RESULTS
    if not is_fused or not dequantizers or any(n is None for n in dequantizers):
        return 0
    for conversion in (*dequantizers, *quantizers):
        if conversion is not None and _axis(conversion) is not None:
            _scale_apart(model, conversion)
            return 1
    return 0


def _variables(node: Node) -> list[Tensor]:
    return [t for t in node.inputs if t.name and not query.is_constant(t)]


def _dequantizer_behind(tensor: Tensor) -> Node | None:
    """Return the DequantizeLinear before a tensor; nodes that a runtime moves are skipped."""
    producer = query.producer(tensor)
    while producer is not None and _is_transparent(producer):
        producer = query.producer(_variables(producer)[0])
    return None if producer is None else dequantizer(producer.outputs[0])


def _is_transparent(node: Node) -> bool:
    if len(_variables(node)) != 1:
        return False
    scalars = [query.scalar_input(node, index) for index in range(len(node.inputs))]
    return node.op in _MOVED or _NEUTRAL.get(node.op, math.nan) in scalars


def _axis(node: Node) -> int | None:
    """Return the axis of a conversion with many scales; None if the rank is unknown."""
    scale = query.constant_input(node, 1)
    if scale is None or not scale.ndim or query.rank(node.inputs[0]) is None:
        return None
    return int(query.attribute(node, "axis", 1))


def _scale_apart(model: Model, node: Node) -> None:
    """Give a conversion one scale; insert a Mul, and an Add for zero points, on its float side."""
    import numpy as np

    scales, zeros = query.constant_input(node, 1), query.constant_input(node, 2)
    axis, rank = _axis(node), query.rank(node.inputs[0])
    assert scales is not None
    assert zeros is not None
    assert axis is not None
    assert rank is not None, "a tensor with channels has a rank"
    nominal, zeros = scales.max(), zeros.astype("int32")
    if node.op == "DequantizeLinear":
        ratios, offsets = scales / nominal, -scales.astype(np.float64) * zeros
        result = node.outputs[0]
        source = edit.variable(model, f"{result.name}/nominal", result)
        node.outputs.clear()
        node.outputs.append(source)
    else:
        ratios, offsets = nominal / scales, zeros * np.float64(nominal)
        source = node.inputs[0]
        result = edit.variable(model, f"{source.name}/nominal", source)
        edit.set_input(node, 0, result)
    name = f"npuconv/scale/{float(nominal)!r}"
    edit.set_input(node, 1, edit.shared_constant(model, name, np.asarray(nominal)))
    zero = edit.shared_constant(model, "npuconv/zero_point", np.asarray(0, np.int8))
    edit.set_input(node, 2, zero)
    node.attrs.clear()
    column = (-1, *[1] * (rank - 1 - axis))  # one number for each channel
    ratios, offsets = (np.asarray(v, np.float32).reshape(column) for v in (ratios, offsets))
    factor = edit.constant(model, f"{result.name}/ratio", ratios)
    if not offsets.any():
        edit.add_node(model, "Mul", [source, factor], [result], origin=[node])
        return
    scaled = edit.variable(model, f"{result.name}/scaled", result)
    edit.add_node(model, "Mul", [source, factor], [scaled], origin=[node])
    shift = edit.constant(model, f"{result.name}/offset", offsets)
    edit.add_node(model, "Add", [scaled, shift], [result], origin=[node])
