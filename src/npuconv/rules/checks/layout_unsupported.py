"""The convolution's tensors have a layout that the device does not take.

What it checks:
    The layout in which the convolution is written, NCHW or NHWC, against the target's.
    That is the layout of --layout; the layout of the model does not matter.

Why it matters:
    The same bytes read in another order are another image.

How to fix:
    Choose the device's layout with --layout. The model need not be exported again.
"""

from __future__ import annotations

from npuconv.model import Node
from npuconv.records import replace
from npuconv.rules import CONV, SLIDING, RuleContext, Violations, rule


@rule(
    "SHP013",
    ops=SLIDING,
    limits=("layout",),
    message="it would be written with layout {value}; the device takes {limit}",
    fires=CONV,
    silent=CONV,
    device="operators: {Conv: {limits: {layout: {equals: nhwc}}}}",
    silent_device="operators: {Conv: {limits: {layout: {one_of: [nchw, nhwc]}}}}",
)
def layout_unsupported(node: Node, ctx: RuleContext) -> Violations:
    layout = "nhwc" if ctx.options.layout == "nchw" else "nchw"
    limit, fix = ctx.limits(node).get("layout"), ""
    if limit is not None and limit.allows(layout, ctx.facts(node)) is not False:
        needs = " and --format qoperator" if layout == "nhwc" else ""
        fix = f"Give --layout {layout}{needs}. The model need not be exported anew."
    for violation in ctx.violations(node, "layout"):
        # The layout is that of a flag, not of the model.
        yield replace(violation, value=ctx.options.layout, fix=fix)
