"""Write ConvInteger and MatMulInteger, with the factor behind them, in float.

Exporters write a Cast to float and a Mul by the scales of input and weights behind
them. All three become Conv or MatMul of dequantized inputs. Where the input has a
static scale it is dequantized by that; where DynamicQuantizeLinear computes a
scale at each run, the operator reads the float input, and only the scales of the weights are left.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools import quantized
from npuconv.model import Model, Node, edit, query

_FLOAT = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}


@register_pass(Phase.CANONICALIZE, *_FLOAT, after=("name-nodes",), infers=True)
def expand_integer_operators(model: Model, log: Log, node: Node) -> int:
    cast = query.sole_consumer(model, node.outputs[0])
    mul = query.sole_consumer(model, cast.outputs[0]) if cast is not None else None
    if cast is None or cast.op != "Cast" or mul is None or mul.op != "Mul":
        return log.refuse(model, node, "no Cast and Mul by its scales follow it")
    quantizer = query.producer(node.inputs[0])
    dynamic = quantizer is not None and quantizer.op == "DynamicQuantizeLinear"
    if quantizer is None or not (dynamic or quantized.is_quantize(quantizer)):
        return log.refuse(model, node, "no QuantizeLinear makes its input")
    factor = next(t for t in mul.inputs if t is not cast.outputs[0])
    if dynamic:
        scaling = query.producer(factor)
        factors = scaling.inputs if scaling is not None and scaling.op == "Mul" else ()
        weight_scales = [t for t in factors if t is not quantizer.outputs[1]]
        scales = quantized.constant(weight_scales[0]) if len(weight_scales) == 1 else None
        if scales is None:
            reason = "the Mul behind it is not by the scales of input and weights"
            return log.refuse(model, node, reason)
    else:
        total, encoding = quantized.constant(factor), quantized.parameters(quantizer)
        if isinstance(encoding, str):
            reason = f"QuantizeLinear {model.label(quantizer)!r}: {encoding}"
            return log.refuse(model, node, reason)
        if total is None or encoding.axis is not None:
            return log.refuse(model, node, "the Mul behind it is not by a constant")
        scales = total / encoding.scale
        producer = query.producer(node.inputs[1])
        stated = quantized.parameters(producer) if quantized.is_quantize(producer) else ""
        # The quotient differs by its rounding from a scale that a node states at each run.
        if not isinstance(stated, str) and stated.axis is None:
            scales = stated.scale if np.allclose(stated.scale, scales) else scales
    if not scales.size or scales.size != max(scales.shape, default=1):
        return log.refuse(model, node, "the Mul behind it has a factor for each element")
    scales = np.asarray(scales, np.float32).reshape(-1 if scales.size > 1 else ())
    op, nodes, result = _FLOAT[node.op], [node, cast, mul], mul.outputs[0]
    with log.rewrite(model, nodes, f"{node.op}, Cast, Mul", op, measure=False):
        source = quantizer.inputs[0]
        if not dynamic:
            scale, zero = (query.input_of(quantizer, k) for k in (1, 2))
            source = quantized.dequantized(model, node, node.inputs[0], scale, zero)
        rank = query.rank(node.inputs[1])
        axis = 0 if op == "Conv" else None if rank is None else rank - 1
        scale = edit.constant(model, f"{node.inputs[1].name}/scale", scales)
        zero = query.input_of(node, 3)
        weight = quantized.dequantized(model, node, node.inputs[1], scale, zero, axis)
        shape, attrs, inputs = query.shape(result), dict(node.attrs), [source, weight]
        product = edit.insert(model, op, inputs, origin=nodes, shape=shape, attrs=attrs)
        edit.keep_name(query.producer(product), node)
        edit.hand_over(product, result)
    return 1
