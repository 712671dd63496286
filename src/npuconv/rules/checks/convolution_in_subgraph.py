"""A convolution lies inside a branch or loop.

What it checks:
    Convolutions in the subgraphs of If, Loop and Scan.

Why it matters:
    The device runs straight sequences. A branch is taken or not while the model runs, so
    its layers can neither be calibrated nor placed.

How to fix:
    Export the model for one case (fixed shapes and modes), so that no branch is left.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import RuleContext, Violation, Violations, is_convolution, rule


@rule(
    "MDL004",
    message="{op} lies in {path} and cannot be taken out of it",
    fires="""
        input x: float[1,3,8,8]
        input c: bool[]
        weight w: float[3,3,1,1]
        y = If (c) <
          then_branch = a () => (t) { t = Conv (x, w) },
          else_branch = b () => (e) { e = Relu (x) }>
    """,
    silent="""
        input x: float[1,3,8,8]
        input c: bool[]
        weight w: float[3,3,1,1]
        z = Conv (x, w)
        y = If (c) <
          then_branch = a () => (t) { t = Neg (z) },
          else_branch = b () => (e) { e = Relu (z) }>
    """,
)
def convolution_in_subgraph(model: Model, _ctx: RuleContext) -> Violations:
    for node, path in model.walk():
        if path and is_convolution(node):
            where = path.rstrip("/")
            yield Violation({"op": node.op, "path": f"subgraph {where!r}"}, value=where, node=node)
