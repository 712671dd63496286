"""A node that the form of the output has no operators for.

What it checks:
    With `--format tflite`, that TFLite has operators for every node of the rewritten model,
    with its attributes, its type and known extents. Operators that ONNX defines by others,
    such as Mish or Attention, are written in these.

Why it matters:
    TFLite has no Erf, no GridSample and no custom operators of ONNX: no file can hold
    the node, whether on the device or on the host.

How to fix:
    Choose `--format qoperator`, cut the model before the node and run the other part on the
    host, or export the model with operators that TFLite has.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import RuleContext, Violation, Violations, rule


@rule(
    "OPS010",
    stage="form",
    message="--format {form} cannot hold {part}: {problem}",
    model="""
        opset 18
        input x: float[1,3,8,8]
        y = {} (x)
    """,
    fires="Erf",
    silent="Mish",
    device="format: tflite",
)
def form_cannot_hold(model: Model, ctx: RuleContext) -> Violations:
    nodes = {node.name: node for node in model.nodes()} if ctx.obstacles else {}
    for obstacle in ctx.obstacles:
        part = "it" if obstacle.node else "the model"
        values = {"form": ctx.options.format, "part": part, "problem": obstacle.problem}
        yield Violation(values, fix=obstacle.fix, node=nodes.get(obstacle.node))
