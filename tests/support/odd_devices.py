"""Random devices that list most of what a device may compute, as data of a target file."""

from __future__ import annotations

from typing import Any

from support.dice import Dice

COMPUTED = (
    "Add", "AveragePool", "Div", "Elu", "Exp", "Gelu", "Gemm", "GlobalAveragePool", "HardSigmoid",
    "HardSwish", "LeakyRelu", "MatMul", "Mish", "Mul", "PRelu", "Reciprocal", "ReduceMean",
    "Sigmoid", "Softmax", "Softplus", "Sqrt", "Sub", "Swish", "Tanh",
)  # fmt: skip
PASSED_ON = (
    "Clip", "Concat", "DepthToSpace", "Flatten", "Gather", "MaxPool", "Pad", "Relu", "Reshape",
    "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip
LIMITS: dict[str, tuple[int, ...]] = {
    "kernel_h": (3, 2), "kernel_w": (3,), "stride_h": (1,), "dilation_h": (1,), "pad_top": (0, 1),
    "in_c": (4, 8), "out_c": (4, 8), "in_h": (8,),
}  # fmt: skip


def odd_device(dice: Dice) -> dict[str, Any]:
    """Return a device that lists most operators, with some limits of Conv, as data."""
    limits: dict[str, Any] = {}
    if dice.chance(40):
        for name, bounds in LIMITS.items():
            if dice.chance(25):
                low = 0 if name.startswith("pad") else 1
                limits[name] = {"range": [low, dice.one_of(bounds)]}
        if dice.chance(20):
            limits["bias"] = {"equals": dice.chance(50)}
    activations = {
        "dtype": "int8",
        "zero_point": dice.one_of(([0], {"range": [-128, 127]})),
        "granularity": dice.one_of(("tensor", "tensor", "channel")),
    }
    if arithmetic := dice.one_of(("", "", "shift", "gemmlowp", "float")):
        activations["requantize"] = arithmetic
    if arithmetic != "gemmlowp" and dice.chance(20):
        activations["accumulate"] = "int32"
    weights = {
        "dtype": "int8",
        "symmetric": True,
        "granularity": dice.one_of(("channel", "channel", "tensor")),
    }
    listed = [op for op in (*PASSED_ON, *COMPUTED) if dice.chance(85)]
    found: dict[str, Any] = {
        "schema": 1, "name": "odd", "activations": activations, "weights": weights,
        "operators": {"Conv": {"limits": limits} if limits else {}, **{op: {} for op in listed}},
        "unlisted_operators": dice.one_of(("host", "host", "host", "undocumented")),
    }  # fmt: skip
    if dice.chance(50):
        found["fused_activations"] = {"one_of": ["Relu", "Clip"]}
    return found
