"""A kind of convolution that is not quantized.

What it checks:
    Every convolution that the target does not list, or that is not ONNX's Conv:
    ConvTranspose, DeformConv, and Conv of another operator domain.

Why it matters:
    The device is made for convolutions. One that cannot run there is not left to the
    host silently, where it would dominate the run time.

How to fix:
    A ConvTranspose is rewritten if its weights are constant and the target takes the
    rewritten convolutions; the message names the obstacle. --ignore OPS004 leaves the
    node to the host, in float.
"""

from __future__ import annotations

from npuconv.model import Node, nhwc, query, window
from npuconv.model.axis_removal import obstacles
from npuconv.rules import CONV, RuleContext, Violation, Violations, is_convolution, rule
from npuconv.rules.target_limits import INTEGER_CONVOLUTIONS

_EXPORT_STANDARD = (
    "Export the model as ONNX, with standard operators: onnxruntime writes this domain for its "
    "own devices, and no host runs it."
)


@rule(
    "OPS004",
    ops={"*"},
    message="{op} is a convolution that {reason}",
    fires="""
        input x: float[1,3,8,8]
        weight w: float[4,3,3,3]
        y = com.microsoft.FusedConv (x, w)
    """,
    silent=CONV,
)
def convolution_unsupported(node: Node, ctx: RuleContext) -> Violations:
    listed = ctx.operator(node) is not None
    # Integer convolutions belong to a model that is quantized already, which is its own finding.
    if not is_convolution(node) or node.op in INTEGER_CONVOLUTIONS:
        return
    if listed and node.op == "Conv" and query.is_standard(node):
        return
    win, is_nhwc = window(node), nhwc.is_nhwc(node)
    reason = f"target {ctx.target.name} does not list"
    if is_nhwc and (obstacle := nhwc.obstacle(node, ctx.model.opset)):
        reason = f"cannot be read: {obstacle}"
    elif listed:
        reason = "is quantized only as a Conv"
    elif win is not None and (fixed := obstacles(win)):
        reason += f", and no axis can be removed: {'; '.join(fixed)}"
    name = node.op if not node.domain else f"{node.domain}.{node.op}"
    yield Violation(
        {"op": name, "reason": reason},
        value=name,
        source=f"{ctx.target.name}: operators",
        fix=_EXPORT_STANDARD if is_nhwc else "",
    )
