"""Weights have coarser steps than they could, because the sum would overflow.

What it checks:
    Channels whose integer bias and largest possible sum of products did not fit into
    int32 with the scales of input and weights, so that a larger weight scale was needed.

Why it matters:
    A raised scale means fewer steps for the weights. The cause is a bias that is very
    large beside weights and input. A constant channel does no harm; many of them are a
    sign of samples that differ from the training data.

How to fix:
    Look at the normalization of the calibration samples (CAL001), and at the bias of
    the layer.
"""

from __future__ import annotations

from npuconv.model import Model, query
from npuconv.rules import RuleContext, Severity, Violation, Violations, rule


@rule(
    "QNT005",
    severity=Severity.NOTE,
    stage="calibrated",
    message="the weight scale of {count} of {channels} channels is raised: with the scale of "
    "the input, sum and bias would overflow int32",
    fires="""
        input x: float[N,1,8,8]
        weight w: float[1,1,1,1] = 0.000001
        weight b: float[1] = 100000
        y = Conv (x, w, b)
    """,
    silent="""
        input x: float[N,1,8,8]
        weight w: float[1,1,1,1] = 1
        weight b: float[1] = 2
        y = Conv (x, w, b)
    """,
)
def accumulator_scale_raised(_model: Model, ctx: RuleContext) -> Violations:
    from npuconv.arithmetic.layer import encode_layer, fits_accumulator

    if (evidence := ctx.evidence) is None:
        return
    for conv in evidence.plan.convolutions:
        weight, bias = query.constant_input(conv, 1), query.constant_input(conv, 2)
        source = evidence.encodings.get(conv.inputs[0].name)
        result = evidence.encodings.get(conv.outputs[0].name)
        if weight is None or source is None or result is None:
            continue
        rounded = evidence.rounded.get(conv.name)
        per_tensor = ctx.target.weights.granularity == "tensor"
        if rounded and fits_accumulator(rounded, source, result, per_tensor=per_tensor):
            continue
        layer = encode_layer(
            weight,
            bias,
            source,
            result,
            int(query.attribute(conv, "group", 1)),
            rounded=rounded,
            per_tensor=per_tensor,
        )
        if count := len(layer.raised):
            values = {"count": count, "channels": len(weight)}
            yield Violation(values, f"{count} channels", "0 channels", node=conv)
