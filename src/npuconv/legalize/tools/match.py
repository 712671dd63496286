"""Classes of operators, and conditions for taking over the pads of a Pad."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.model.conv import Pairs, window

if TYPE_CHECKING:
    from npuconv.model.types import Node

# Elementwise with one data input; other inputs are one number, or independent of positions.
UNARY = frozenset(
    {"Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Selu"}
    | {"Celu", "Softplus", "Softsign", "ThresholdedRelu", "Gelu", "Mish", "Erf", "Swish"}
    | {"Neg", "Abs", "Sqrt", "Exp", "Log", "Reciprocal", "Floor", "Ceil", "Round", "Sign"}
    | {"Cast", "Identity", "Not", "IsNaN"}
)
# Inputs are matched position by position, after broadcasting from the right.
BROADCASTING = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "PRelu", "Mod"}
    | {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor", "Where"}
)


def added_pads(pads: Pairs, amounts: Pairs) -> Pairs:
    """Return the pads of a node together with the amounts of the Pad before it."""
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(pads, amounts, strict=True))


def takes_pads(reader: Node) -> bool:
    """Return whether a node can pad with zeros, along the axes from the third on."""
    return reader.op in ("Conv", "AveragePool") and query.is_standard(reader)


def pad_obstacle(node: Node, reader: Node, amounts: Pairs) -> str:
    """Return why ``reader`` cannot pad its spatial axes by these amounts of zeros, or ''."""
    win = window(reader)
    if not takes_pads(reader) or win is None or win.kernel is None:
        return "cannot take pads"
    if len(win.pads) != len(amounts):
        return "has another rank"
    if reader.inputs[0] is not node.outputs[0]:
        return "reads it as a weight"
    if win.auto_pad != "NOTSET":
        return f"still has auto_pad={win.auto_pad}"
    padded = [k for k, pair in zip(win.kernel, amounts, strict=True) if any(pair)]
    if len(amounts) > 2 and 1 in padded:
        return "has kernel 1 along a padded axis, which could then not be removed"
    pads = added_pads(win.pads, amounts)
    return _pool_obstacle(reader, win.kernel, pads) if reader.op == "AveragePool" else ""


def _pool_obstacle(reader: Node, kernel: tuple[int, ...], pads: Pairs) -> str:
    if not query.attribute(reader, "count_include_pad", 0):
        return "does not count padded cells"
    if query.attribute(reader, "ceil_mode", 0):
        return "rounds its extent up"
    if any(max(pair) >= k for pair, k in zip(pads, kernel, strict=True)):
        return "would have pads as large as its kernel"
    return ""
