"""The model is quantized in a way that cannot be read.

What it checks:
    Operators that only a quantized model has: QuantizeLinear, QLinearConv,
    ConvInteger and their like. Most of them become float operators, whose scales,
    zero points and integer weights are kept (or dropped, with --requantize). The
    finding names an operator that did not become a float operator, and the reason. A
    QuantizeLinear that makes an output of the model, with a constant scale, stays.

Why it matters:
    Such an operator computes integers that no float operator can represent, so no scale
    can be found for it.

How to fix:
    Mend the scale or zero point it names, export as pairs of QuantizeLinear and
    DequantizeLinear, or convert the float model it was made from.
"""

from __future__ import annotations

from collections import Counter

from npuconv.model import Model, query
from npuconv.rules import RuleContext, Violation, Violations, rule


@rule(
    "MDL001",
    message="the model is quantized already: it has {operators}",
    fires="""
        input x: float[1,3,8,8]
        input s: float[]
        weight z: int8[] = 0
        y = QuantizeLinear (x, s, z)
    """,
    silent="""
        input x: float[1,3,8,8]
        weight w: int8[4,3,3,3] = 1
        weight s: float[] = 0.1
        f = DequantizeLinear (w, s)
        y = Conv (x, f)
    """,
)
def model_already_quantized(model: Model, _ctx: RuleContext) -> Violations:
    quantized = []
    for node, _ in model.walk():
        is_defined = query.is_standard(node) or node.domain == "com.microsoft"
        if is_defined and (node.op in query.ALREADY_QUANTIZED or node.op.startswith("QLinear")):
            constant = all(query.is_constant(t) for t in list(node.inputs)[1:] if t.name)
            # An output of the model that a QuantizeLinear makes keeps its type.
            if node.op != "QuantizeLinear" or not constant or not model.is_output(node.outputs[0]):
                quantized.append(node)
    if not quantized:
        return
    counts = Counter(node.op for node in quantized)
    text = ", ".join(f"{count} {op}" for op, count in sorted(counts.items()))
    yield Violation({"operators": text}, value=text, limit="a float model", node=quantized[0])
