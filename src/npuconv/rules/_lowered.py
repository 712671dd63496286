"""Facts of an integer convolution as it is written for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext
    from npuconv.target.limit import Limit

# That of com.microsoft can have the channels last; weights have one order in both.
INTEGER_CONVOLUTIONS = {"QLinearConv", "com.microsoft.QLinearConv"}
# QLinearConv: x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B
_X_ZERO, _WEIGHT, _BIAS = 2, 3, 8


def device_facts(node: Node) -> dict[str, Any]:
    """Mode, types, zero point and weight sums of a QLinearConv, by the names of target facts."""
    zero = query.constant_input(node, _X_ZERO)
    weight = query.constant_input(node, _WEIGHT)
    bias = query.input_of(node, _BIAS)
    facts: dict[str, Any] = {
        "mode": _mode(node),
        "dtype": query.dtype_name(node.inputs[0]) or "int8",
        "weight_dtype": query.dtype_name(query.input_of(node, _WEIGHT)),
        "bias_dtype": query.dtype_name(bias) or None,
        "pad_value": None if zero is None else int(zero.reshape(-1)[0]),
        "weight_abs_sum_max": None,
    }
    if weight is not None:
        sums = abs(weight.astype("int64")).reshape(weight.shape[0], -1).sum(axis=1)
        facts["weight_abs_sum_max"] = int(sums.max())
    return facts


def device_limits(node: Node, ctx: RuleContext) -> dict[str, Limit]:
    """The limits of the Conv that a QLinearConv stands for, in the mode it is in."""
    operator = ctx.target.operator("Conv")
    return operator.limits_for(_mode(node)) if operator else {}


def _mode(node: Node) -> str:
    if int(query.attribute(node, "group", 1)) == 1:
        return "plain"
    weight = query.shape(query.input_of(node, _WEIGHT))
    return "depthwise" if weight is not None and weight[1] == 1 else "grouped"
