"""Models of one operator, by the facts that a target file can bound."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx.parser
from onnx import numpy_helper

Case = dict[str, int]  # values of facts of a window operator: kernel_h, stride_h, in_c, ...

_HW, _SIDES = ("h", "w"), ("top", "left", "bottom", "right")
_SMALL = {
    "in_n": 1, "in_c": 16, "in_h": 16, "in_w": 16, "out_c": 16, "kernel_h": 3, "kernel_w": 3,
    "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "group": 1, "bias": 1,
    **{f"pad_{side}": 0 for side in _SIDES},
}  # fmt: skip
BASES: dict[str, Case] = {
    "16 channels, 3x3": _SMALL,
    "64 to 32 channels, 5x5": _SMALL | {"in_c": 64, "out_c": 32, "kernel_h": 5, "kernel_w": 5},
}
OPERATORS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
_POOLS = OPERATORS[2:]

# Fact: the facts of a case that get its value, and the largest value to ask.
LEARNABLE: dict[str, tuple[tuple[str, ...], int]] = {
    **{f"{name}_{side}": ((f"{name}_{side}",), 64)
       for name in ("kernel", "stride", "dilation") for side in _HW},
    **{f"pad_{side}": ((f"pad_{side}",), 64) for side in _SIDES},
    "pad_max": (tuple(f"pad_{side}" for side in _SIDES), 64),
    **{f"weight_{side}": ((f"kernel_{side}",), 64) for side in _HW},
    **dict.fromkeys(("in_c", "weight_c", "in_c_per_group"), (("in_c",), 8192)),
    **dict.fromkeys(("out_c", "weight_n", "out_c_per_group"), (("out_c",), 8192)),
    "in_h": (("in_h",), 8192), "in_w": (("in_w",), 8192), "in_n": (("in_n",), 64),
    "channel_multiplier": (("out_c",), 32), "bias": (("bias",), 1),
}  # fmt: skip


def case_of(op: str, mode: str, base: Case, fact: str = "", value: int = 0) -> Case | None:
    """Return a base case with a fact set to a value; None if the operator has no such case."""
    case = base | (dict.fromkeys(LEARNABLE[fact][0], value) if fact else {})
    if mode == "depthwise":
        multiplier = value if fact == "channel_multiplier" else 1
        case |= {"group": case["in_c"], "out_c": case["in_c"] * multiplier}
    elif fact == "channel_multiplier" or mode == "grouped":
        return None
    if op in _POOLS:
        pads = zip(("h", "w", "h", "w"), _SIDES, strict=True)
        is_padded = any(case[f"pad_{side}"] >= case[f"kernel_{axis}"] for axis, side in pads)
        is_other = fact in ("bias", "out_c") or fact.startswith("weight")
        if is_padded or is_other or (op == "AveragePool" and "dilation" in fact):
            return None
        case["out_c"] = case["in_c"]
    for side in _HW:  # the window fits, and a stride is taken
        window = (case[f"kernel_{side}"] - 1) * case[f"dilation_{side}"] + 1
        if fact != f"in_{side}":
            case[f"in_{side}"] = max(case[f"in_{side}"], window + case[f"stride_{side}"])
        elif value < window:
            return None
    return case


def model_of(op: str, case: Mapping[str, int], *, is_quantized: bool) -> bytes:
    """Return an ONNX file of one operator; quantized, each tensor has a Q and a DQ."""
    kernel, strides, dilations = (
        [case[f"{name}_{side}"] for side in _HW] for name in ("kernel", "stride", "dilation")
    )
    attributes = f"kernel_shape = {kernel}, strides = {strides}"
    attributes += f", pads = {[case[f'pad_{side}'] for side in _SIDES]}"
    if dilations != [1, 1]:
        attributes += f", dilations = {dilations}"
    rng, tensors, inputs = np.random.default_rng(0), dict[str, np.ndarray](), ["x"]
    if op not in _POOLS:
        group, channels = case["group"], (case["out_c"], case["in_c"])
        first, second = channels if op == "Conv" else channels[::-1]
        weight = rng.normal(size=(first, second // group, *kernel)).astype(np.float32)
        weight /= np.float32(max(1, weight[0].size) ** 0.5)
        tensors["w"] = weight
        if case["bias"]:
            tensors["b"] = rng.normal(size=case["out_c"]).astype(np.float32)
        inputs += tensors
        attributes += f", group = {group}"
    lines, constants = [f"y = {op} <{attributes}> ({', '.join(inputs)})"], ""
    if is_quantized:
        lines = [f"c = {op} <{attributes}> ({', '.join(['xd', *inputs[1:]])})"]
        step = np.float32(np.abs(tensors.get("w", np.ones(1))).max() / 127)
        for name, scale, dtype in (("w", step, np.int8), ("b", step / np.float32(32), np.int32)):
            if name in tensors:
                tensors[f"{name}q"] = np.rint(tensors.pop(name) / scale).astype(dtype)
                tensors[f"{name}s"], tensors[f"{name}z"] = np.asarray(scale), np.zeros((), dtype)
                lines.insert(0, f"{name} = DequantizeLinear ({name}q, {name}s, {name}z)")
        lines[:0] = ["xq = QuantizeLinear (x, s, z)", "xd = DequantizeLinear (xq, s, z)"]
        lines += ["cq = QuantizeLinear (c, t, z)", "y = DequantizeLinear (cq, t, z)"]
        constants = "<float s = {0.03125}, float t = {0.125}, int8 z = {0}>"
    shape = ",".join(str(case[f"in_{axis}"]) for axis in "nchw")
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> probe (float[{shape}] x) => '
        f"(float[N,C,H,W] y) {constants} {{ {chr(10).join(lines)} }}"
    )
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in tensors.items())
    return model.SerializeToString(deterministic=True)
