"""The weights of the convolution are computed while the model runs.

What it checks:
    That weights and bias are constant, after everything that depends on constants only
    has been computed.

Why it matters:
    Weights are quantized once, per channel, and loaded into the device. Those that come
    from the input cannot be quantized.

How to fix:
    Leave a convolution whose weights another branch computes to the host: `--keep-float
    NODE`. Weights that are an input of the model may be parameters: freeze the model on
    export. Weights that depend on constants only have to be computed on export: npuconv
    could not.
"""

from __future__ import annotations

import shlex

from npuconv.model import Node, query
from npuconv.rules import CONV, RuleContext, Violation, Violations, rule

_FREEZE = "freeze the model on export, so that the weights are initializers"
_COMPUTE = "it reads constants only but cannot be computed here: export its result as initializer"


@rule(
    "OPS003",
    ops={"Conv", "ConvTranspose"},
    limits=("weight_constant",),
    message="the {what} {tensor!r} {come} from {producer}",
    fires="""
        input x: float[1,3,8,8]
        input w: float[4,3,3,3]
        y = Conv (x, w)
    """,
    silent=CONV,
)
def weights_not_constant(node: Node, ctx: RuleContext) -> Violations:
    limit = ctx.limits(node).get("weight_constant")
    for index, role in ((1, "weights"), (2, "bias")):
        tensor = query.input_of(node, index)
        if tensor is None or query.is_constant(tensor):
            continue
        producer = query.producer(tensor)
        origin = "an input of the model"
        if producer is not None:
            origin = f"{ctx.model.label(producer)!r} ({producer.op})"
        come = "come" if role == "weights" else "comes"
        yield Violation(
            {"what": role, "tensor": tensor.name, "producer": origin, "come": come},
            value=tensor.name,
            limit="a constant",
            source=limit.cite() if limit else "",
            fix=_fix(ctx, node, producer),
        )


def _fix(ctx: RuleContext, node: Node, producer: Node | None) -> str:
    """Return the advice for weights that ``producer`` computes, or that are an input."""
    label = shlex.quote(ctx.model.label(node))
    keep = f"--keep-float {label} leaves the convolution to the host"
    if ctx.target.unlisted_operators == "error":  # there is no host
        keep = "take a target that has a host for the convolution"
    if producer is None:
        return f"{_FREEZE}, or {keep}"
    inputs = set(map(id, ctx.model.graph.inputs))
    varies = any(id(tensor) in inputs for tensor in query.upstream_tensors(producer))
    return keep if varies else f"{_COMPUTE}, or {keep}"
