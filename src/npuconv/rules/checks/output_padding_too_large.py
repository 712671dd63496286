"""A transposed convolution appends more cells than ONNX allows.

What it checks:
    That each value of `output_padding` is below the stride or the dilation of its
    axis, whichever is larger.

Why it matters:
    The text of ONNX forbids it and onnxruntime refuses it: the cells beyond the last
    kernel would hold the bias and nothing else.

How to fix:
    Lower output_padding in the exporter, or append the cells with a Pad.
"""

from __future__ import annotations

from npuconv.model import Node, window
from npuconv.rules import RuleContext, Violation, Violations, rule


@rule(
    "SHP018",
    ops={"ConvTranspose"},
    stage="source",  # an output_shape that is resolved may append more
    malformed=True,
    message="output_padding is {extra}; each value must be less than stride or dilation, {below}",
    model="""
        input x: float[1,3,8,8]
        weight w: float[3,4,3,3]
        y = ConvTranspose <strides = [2, 2], output_padding = [{}]> (x, w)
    """,
    fires="2, 2",
    silent="1, 1",
)
def output_padding_too_large(node: Node, ctx: RuleContext) -> Violations:
    win = window(node)
    if win is None or not ctx.facts(node):
        return  # other rules report attributes of wrong lengths
    below = list(map(max, win.strides, win.dilations))
    if any(extra >= most for extra, most in zip(win.output_padding, below, strict=True)):
        extra = list(win.output_padding)
        yield Violation(
            {"extra": extra, "below": below},
            value=str(extra),
            limit=f"less than {below}",
            source="ONNX ConvTranspose-11, attribute output_padding",
        )
