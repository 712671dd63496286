"""Operators that treat every element alike, so that the order of the elements is free."""

from __future__ import annotations

# One data input; what else they read is one number, or says nothing about positions.
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
