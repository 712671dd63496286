"""The model is quantized already."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.rules import Example, Violation, Violations, rule

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.rules.context import RuleContext


@rule(
    "MDL001",
    message="the model is quantized already: it has {operators}",
    example=Example(
        fires="""
            input x: float[1,3,8,8]
            weight s: float[] = 0.1
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
    ),
)
def model_already_quantized(model: Model, _ctx: RuleContext) -> Violations:
    """The model is quantized already.

    What it checks:
        Operators that only a quantized model has: QuantizeLinear, QLinearConv,
        ConvInteger and their like. A DequantizeLinear that only unpacks weights is no
        such sign: it is computed and the model converted as any other.

    Why it matters:
        Its scales and zero points were chosen for another arithmetic. To quantize the
        dequantized model once more would add the errors of both.

    How to fix:
        Convert the float model it was made from.
    """
    found = [n for n, _ in model.walk() if _is_quantized_operator(n)]
    if not found:
        return
    counts = Counter(node.op for node in found)
    text = ", ".join(f"{count} {op}" for op, count in sorted(counts.items()))
    yield Violation({"operators": text}, value=text, limit="a float model", node=found[0])


def _is_quantized_operator(node: Node) -> bool:
    known = query.is_standard(node) or node.domain == "com.microsoft"
    return known and (node.op in query.ALREADY_QUANTIZED or node.op.startswith("QLinear"))
