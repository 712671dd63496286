"""A Pad in front of a convolution that the convolution cannot do itself.

What it checks:
    Every Pad whose result a convolution of the device reads: it must add zeros,
    only around the image, in amounts that are known.

Why it matters:
    Zeros around the image cost nothing, because the convolution adds them itself. Any
    other padding is done by the host: the tensor leaves the device and comes back,
    larger, in every inference.

How to fix:
    Nothing, if the crossing can be afforded: the host pads exactly. Otherwise train
    with zero padding.
"""

from __future__ import annotations

import math

from npuconv.model import Node, query
from npuconv.model.conv import Pairs
from npuconv.rules import RuleContext, Severity, Violation, Violations, rule

_FILLS = {
    "reflect": "mirror what is inside (mode=reflect)",
    "edge": "repeat the outermost cells (mode=edge)",
    "wrap": "continue from the opposite end (mode=wrap)",
}
# Operators that only rearrange values; rewrites put them between Pad and convolution.
_BETWEEN = frozenset({"Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
_AT_RUN_TIME = (
    "give the shape of the input with --input-shape: amounts that follow from it then become "
    "numbers"
)


@rule(
    "SHP016",
    severity=Severity.WARNING,
    ops={"Pad"},
    message="{reader!r} reads it; the device would have to {task}{amounts}{size}",
    model="""
        input x: float[1,3,8,8]
        weight p: int64[8] = 0, 0, 1, 1, 0, 0, 1, 1
        weight w: float[4,3,3,3]
        a = Pad <mode = "{}"> (x, p)
        y = Conv (a, w)
    """,
    fires="reflect",
    silent="constant",
)
def pad_not_foldable(node: Node, ctx: RuleContext) -> Violations:
    reader = _reader(node, ctx)
    amounts = query.pad_amounts(node)
    if reader is None or ctx.operator(node) is not None:
        return
    if ctx.model.label(node) == ctx.model.label(reader):
        return  # a rewrite of the convolution pads, for a limit that the plan names
    mode, fill = query.pad_mode(node), query.pad_fill(node)
    if amounts is not None:
        pads_image = not any(max(pair) > 0 for pair in amounts[:2])
        pads = any(max(pair) > 0 for pair in amounts)
        if not pads or (pads_image and query.pads_with_zero(node)):
            return
    number = "a number computed at run time" if fill is None else f"{fill:g}"
    value = (
        f"mode={mode}" if mode != "constant" else "value = ?" if fill is None else f"value={fill:g}"
    )
    limit = ctx.limits(reader).get("pad_value")
    yield Violation(
        {
            "reader": ctx.model.label(reader),
            "task": _FILLS.get(mode, f"fill with {number}"),
            "amounts": _amounts(amounts),
            "size": _size(node, amounts),
            "fact": "pad_mode",
            "value": repr(mode),
            "limit": "'zeros'",
        },
        value="pads = ?" if amounts is None else value,
        source=limit.cite() if limit else "",
        fix=_AT_RUN_TIME if amounts is None else "",
    )


def _reader(node: Node, ctx: RuleContext) -> Node | None:
    """Return the first convolution of the device that reads the output of the node."""
    waiting, tensors = query.consumers(node.outputs[0]), {id(node.outputs[0])}
    while waiting:
        reader = waiting.pop(0)
        if not query.is_standard(reader) or id(reader.inputs[0]) not in tensors:
            continue  # read as weights, or as a shape
        if reader.op == "Conv" and ctx.operator(reader) is not None:
            return reader
        if reader.op in _BETWEEN:
            for tensor in reader.outputs:
                tensors.add(id(tensor))
                waiting += query.consumers(tensor)
    return None


def _amounts(amounts: Pairs | None) -> str:
    if amounts is None:
        return ", by amounts computed at run time"
    growth = [(axis, max(a, 0), max(b, 0)) for axis, (a, b) in enumerate(amounts)]
    texts = [f"{a} + {b} on axis {axis}" for axis, a, b in growth if a or b]
    return ", by " + ", ".join(texts)


def _size(node: Node, amounts: Pairs | None) -> str:
    """Return the cells added per inference as text, or '' if unknown; a symbolic batch is 1."""
    dims = query.shape(node.inputs[0])
    if amounts is None or dims is None or len(dims) != len(amounts):
        return ""
    extents = [1 if axis == 0 and not isinstance(d, int) else d for axis, d in enumerate(dims)]
    inside = [d + min(a, 0) + min(b, 0) for d, (a, b) in zip(extents, amounts, strict=True)
            if isinstance(d, int)]  # fmt: skip
    if len(inside) != len(dims):
        return ""
    padded = [h + max(a, 0) + max(b, 0) for h, (a, b) in zip(inside, amounts, strict=True)]
    cells = math.prod(padded) - math.prod(inside)
    return f": {cells:,} of {math.prod(padded):,} cells, a byte each in int8"
