"""Extent of an input that is open, while the compiler of the device demands numbers.

What it checks:
    The extents of every input, if the target file has `static: true`.

Why it matters:
    The file is written, but the compiler stops at it.

How to fix:
    Give the shape that the model will run with, with --input-shape.
"""

from __future__ import annotations

from npuconv.model import Model, query
from npuconv.rules import CONV, RuleContext, Severity, Violation, Violations, conv, rule


@rule(
    "SHP021",
    severity=Severity.WARNING,
    message="input {name} is {shape}; the compiler for {target} reads numbers only",
    fires=conv(x="N,3,8,8"),
    silent=CONV,
    device="static: true",
)
def shape_not_static(model: Model, ctx: RuleContext) -> Violations:
    for tensor in model.graph.inputs if ctx.target.static else ():
        dims = query.shape(tensor) or ()
        if all(isinstance(dim, int) for dim in dims):
            continue
        # An open batch is 1 in a compiler; any other extent is the user's.
        numbers = [1 if axis == 0 and not isinstance(d, int) else d for axis, d in enumerate(dims)]
        text = ",".join(str(d) if isinstance(d, int) else "?" for d in numbers)
        with_numbers = " with numbers for every ?" * ("?" in text)
        shape = " x ".join(str(d) if d is not None else "?" for d in dims)
        values = {"name": tensor.name, "shape": shape, "target": ctx.target.name}
        fix = f"give --input-shape {tensor.name}={text}{with_numbers}"
        yield Violation(values, value=shape, limit="numbers", source="static: true", fix=fix)
