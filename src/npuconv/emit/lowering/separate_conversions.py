"""Keep runtimes from fusing a host operator with conversions that have a scale per channel.

onnxruntime turns an operator between DequantizeLinear and QuantizeLinear into an
integer operator of its own, which takes scalar scales only, and then fails. It does so
with a MatMul of two DequantizeLinear without QuantizeLinear, where
``session.qdqisint8allowed`` is 1. So one of these conversions is written as one with a
scalar scale, and a Mul and an Add.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npuconv.emit.context import EmitContext, dequantizer
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    import numpy as np

_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")
_FLOAT_RESULTS = ("MatMul", "Gemm")  # are fused without a QuantizeLinear
# Nodes that a runtime takes out, or moves in front of a DequantizeLinear.
_MOVED = frozenset(
    {"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice"}
    | {"Identity", "Dropout", "Cast"}
)
_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}  # of constants that change nothing


@model_pass(Phase.QUANTIZE, after=("quantize-weights",))
def separate_conversions(model: Model, ctx: EmitContext) -> int:
    if not ctx.encodings:
        return 0
    inner = {id(n) for n in (*ctx.plan.device, *ctx.plan.passthrough)}
    return sum(_separate(model, node) for node in list(model.nodes()) if id(node) not in inner)


def _separate(model: Model, node: Node) -> int:
    if node.op in _CONVERSIONS or not node.outputs:
        return 0
    sources = [_source(t) for t in _variables(node)]
    sinks = [n for t in node.outputs for n in query.consumers(t) if n.op == "QuantizeLinear"]
    fused = sinks or node.op in _FLOAT_RESULTS
    if not fused or not sources or any(s is None for s in sources):
        return 0
    for source in sources:
        if source is not None and _axis(source) is not None:
            return _apart_behind(model, source)
    for sink in sinks:
        if _axis(sink) is not None:
            return _apart_before(model, sink)
    return 0


def _variables(node: Node) -> list[Tensor]:
    return [t for t in node.inputs if t.name and not query.is_constant(t)]


def _source(tensor: Tensor) -> Node | None:
    """Return the DequantizeLinear whose values a tensor holds, as a runtime's optimizer sees it."""
    maker = query.producer(tensor)
    while maker is not None and _is_transparent(maker):
        maker = query.producer(_variables(maker)[0])
    return None if maker is None else dequantizer(maker.outputs[0])


def _is_transparent(node: Node) -> bool:
    if len(_variables(node)) != 1:
        return False
    scalars = [query.scalar_input(node, index) for index in range(len(node.inputs))]
    return node.op in _MOVED or _NEUTRAL.get(node.op, math.nan) in scalars


def _axis(node: Node) -> int | None:
    """The axis of a conversion with many scales; None also where nobody knows of how many axes."""
    scale = query.constant_input(node, 1)
    if scale is None or not scale.ndim or query.rank(node.inputs[0]) is None:
        return None
    return int(query.attribute(node, "axis", 1))


def _apart_behind(model: Model, node: Node) -> int:
    """DequantizeLinear with one scale; Mul, and Add for the zero points."""
    import numpy as np

    scales, zeros, nominal = _parts(node)
    result = node.outputs[0]
    ratios = _along(scales / nominal, node)
    offsets = _along(-scales.astype(np.float64) * zeros, node)
    node.outputs.clear()
    raw = edit.variable(model, f"{result.name}/nominal", result)
    node.outputs.append(raw)
    _make_scalar(model, node, nominal)
    _affine(model, node, raw, result, ratios, offsets)
    return 1


def _apart_before(model: Model, node: Node) -> int:
    """Mul, Add for the zero points, and QuantizeLinear with one scale."""
    import numpy as np

    scales, zeros, nominal = _parts(node)
    source = node.inputs[0]
    ready = edit.variable(model, f"{source.name}/nominal", source)
    ratios = _along(nominal / scales, node)
    offsets = _along(zeros * np.float64(nominal), node)
    _make_scalar(model, node, nominal)
    edit.set_input(node, 0, ready)
    _affine(model, node, source, ready, ratios, offsets)
    return 1


def _parts(node: Node) -> tuple[np.ndarray, np.ndarray, np.float32]:
    scales, zeros = query.constant_input(node, 1), query.constant_input(node, 2)
    assert scales is not None
    assert zeros is not None
    return scales, zeros.astype("int32"), scales.max()


def _along(values: np.ndarray, node: Node) -> np.ndarray:
    """Numbers of the channels, shaped to meet the tensor."""
    import numpy as np

    axis, rank = _axis(node), query.rank(node.inputs[0])
    assert axis is not None
    assert rank is not None, "a tensor with channels has a rank"
    return np.asarray(values, np.float32).reshape(-1, *[1] * (rank - 1 - axis))


def _make_scalar(model: Model, node: Node, nominal: np.float32) -> None:
    import numpy as np

    name = f"npuconv/scale/{float(nominal)!r}"
    edit.set_input(node, 1, edit.shared_constant(model, name, np.asarray(nominal)))
    zero = edit.shared_constant(model, "npuconv/zero_point", np.asarray(0, np.int8))
    edit.set_input(node, 2, zero)
    node.attrs.clear()


def _affine(
    model: Model,
    origin: Node,
    source: Tensor,
    result: Tensor,
    ratios: np.ndarray,
    offsets: np.ndarray,
) -> None:
    factor = edit.constant(model, f"{result.name}/ratio", ratios)
    if not offsets.any():
        edit.add_node(model, "Mul", [source, factor], [result], origin=[origin])
        return
    scaled = edit.variable(model, f"{result.name}/scaled", result)
    edit.add_node(model, "Mul", [source, factor], [scaled], origin=[origin])
    shift = edit.constant(model, f"{result.name}/offset", offsets)
    edit.add_node(model, "Add", [scaled, shift], [result], origin=[origin])
