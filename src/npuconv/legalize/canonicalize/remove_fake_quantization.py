"""Remove pairs of QuantizeLinear and DequantizeLinear, and remember their scales.

The remaining graph computes in float; unless --requantize is given, the tensor is quantized
with the same scale and zero point again. If the lowest integer represents 0 behind
a convolution, a sum or the like, the pair was a Relu or a Clip as well: a Clip from 0
to the value of the highest integer replaces it. A pair around a constant
becomes its integers. Inputs and outputs of integers stay; the conversions of these
on the host have the scale of the tensor.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools import quantized
from npuconv.legalize.tools.quantized import Parameters
from npuconv.legalize.tools.replace import clip
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.model.source_scales import SourceScales

# A quantizer leaves out the Relu or Clip behind these where int8 saturates at its bounds.
_FUSING = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "BatchNormalization"}
)
_MOVING = frozenset({"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"})


@register_pass(Phase.CANONICALIZE, after=("lift-integer-operators",), infers=True)
def remove_fake_quantization(model: Model, log: Log) -> int:
    fired = 0
    for node in quantized.conversions(model, "QuantizeLinear"):
        consumers = query.consumers(node.outputs[0])
        if not consumers or not all(quantized.is_dequantize(consumer) for consumer in consumers):
            continue
        encoding = quantized.parameters(node)
        reason = encoding if isinstance(encoding, str) else _fault(model, encoding, consumers)
        if reason:
            log.refuse(model, node, reason)
        elif not isinstance(encoding, str):
            fired += _remove(model, log, node, encoding, consumers)
    model.source_scales = _with_ends(model)
    if fired:
        edit.drop_unused_domain(model, quantized.CONTRIB)
    return fired


def _with_ends(model: Model) -> SourceScales:
    """Add the encodings of integers that no QuantizeLinear makes, and of outputs."""
    scales = model.source_scales
    for consumer in quantized.conversions(model, "DequantizeLinear"):
        if not consumer.inputs or not quantized.is_dequantize(consumer):
            continue  # the pair was removed, or an operator of another domain
        is_computed = quantized.constant(consumer.inputs[0]) is None
        encoding = quantized.parameters(consumer) if is_computed else ""
        if not isinstance(encoding, str):
            scales = scales.with_tensor(consumer.outputs[0].name, encoding.encoding, None)
    for node in map(query.producer, model.graph.outputs):
        encoding = quantized.parameters(node) if node and quantized.is_quantize(node) else ""
        if node is not None and not isinstance(encoding, str):
            producer = query.producer(node.inputs[0])
            label = None if producer is None else model.label(producer)
            scales = scales.with_tensor(node.inputs[0].name, encoding.encoding, label)
    return scales


def _fault(model: Model, encoding: Parameters, consumers: list[Node]) -> str:
    """Return why a pair is more than rounding, or ''."""
    for consumer in consumers:
        inverse = quantized.parameters(consumer)
        if isinstance(inverse, str):
            return f"DequantizeLinear {model.label(consumer)!r}: {inverse}"
        if not encoding.equals(inverse):
            return f"DequantizeLinear {model.label(consumer)!r} has another scale or zero point"
        if not model.is_top_level(consumer):
            return "it is read in a subgraph"
    return ""


def _remove(model: Model, log: Log, node: Node, encoding: Parameters, consumers: list[Node]) -> int:
    source, stored = node.inputs[0], node.outputs[0]
    values = quantized.constant(source)
    if values is not None:
        with log.rewrite(model, [node], "QuantizeLinear", "integers", measure=False):
            edit.replace_by_constant(model, stored, encoding.quantize(values))
        return 1
    free = [consumer for consumer in consumers if edit.can_bypass(model, consumer, source)]
    if not free:
        return log.refuse(model, node, "it stands between an input and an output of the model")
    pair = "QuantizeLinear, DequantizeLinear"
    with log.rewrite(model, [node, *free], pair, "nothing", measure=False) as record:
        if _saturates_at_zero(source, encoding):
            record.after = "Clip"
            low, top = encoding.bounds
            high = np.asarray(np.float32(top - low) * encoding.scale, np.float32)
            source = clip(model, node, source, min=0.0, max=high)
        producer = query.producer(source)
        for consumer in free:
            edit.set_input(consumer, 0, source)
            edit.drop_inputs(consumer, 1)
            if edit.can_bypass(model, consumer):
                edit.bypass(model, consumer)
            else:  # an output of the model keeps its name
                consumer.op, consumer.domain = "Identity", None
                consumer.attrs.clear()
    name = source.name
    if producer is not None and len(producer.outputs) == 1:  # an output may have replaced it
        name = producer.outputs[0].name
    label = None if producer is None else model.label(producer)
    model.source_scales = model.source_scales.with_tensor(name, encoding.encoding, label)
    return 1


def _saturates_at_zero(source: Tensor, encoding: Parameters) -> bool:
    """Return whether saturation of int8 replaces a Relu or Clip."""
    producer = query.producer(source)
    while (
        producer is not None and producer.op in _MOVING
    ):  # these give the same result after a Clip as before it
        producer = query.producer(producer.inputs[0])
    if encoding.axis is not None or producer is None or producer.op not in _FUSING:
        return False
    return int(encoding.zero) == encoding.bounds[0]
