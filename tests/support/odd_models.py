"""Small models and options that are odd in many ways: each may be converted, or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from npuconv.rules.engine import all_rules
from support.builders import Net, images
from support.dice import Dice

TARGETS = ("npu-int8", "npu-int8", "npu-int8", "ethos-u55", "horizon-x3", "mediatek-mdla2", "rknn")
KINDS = (
    TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT32,
    TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8, TensorProto.BOOL, TensorProto.BFLOAT16,
)  # fmt: skip
ACTIVATIONS = (
    "Relu", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Elu", "Softplus", "Softmax",
    "Erf", "Exp", "Log", "Sqrt", "Abs", "Neg", "Reciprocal", "Floor", "Sign", "IsNaN", "Not",
)  # fmt: skip
ASSUMED = (
    ("kernel_h=2", "kernel_w=2"), ("stride_h=1", "stride_w=1"), ("in_c=2",), ("weight_n=3",),
    ("in_h=4", "in_w=6"), ("in_n=1",), ("bias=true",), ("bias=false",), ("pad_top=0", "pad_left=1"),
    ("dilation_w=1", "kernel_w=1..2"), ("kernal_h=3",), ("in_c=2..4", "out_c=1"),
)  # fmt: skip
NAME = "x"


@dataclass
class OddModel:
    """A model under construction: what is last, and what is known of it.

    Attributes:
        dice: all choices.
        net: the graph.
        channels: of the last tensor, as far as anybody keeps count.
        axes: spatial axes of it.
    """

    dice: Dice
    net: Net
    channels: int
    axes: int


@dataclass(frozen=True)
class OddCase:
    """A model, and options for both commands."""

    model: onnx.ModelProto
    options: dict[str, Any] = field(default_factory=dict)


def odd_case(seed: int) -> OddCase:
    """Return the case of this number."""
    dice = Dice("odd", seed)
    shape = _shape(dice)
    channels = shape[1] if isinstance(shape[1], int) else dice.one_of((1, 3))
    net = Net(opset=dice.one_of((11, 13, 17, 21)), ir_version=8, **{NAME: shape})
    work = OddModel(dice, net, channels, len(shape) - 2)
    shares = {name: share for name, (share, _) in PARTS.items()}
    for number in range(dice.number(1, 4)):
        if work.axes:  # not behind a classifier
            PARTS[dice.weighted(**shares) if number else "convolution"][1](work)
    model = net.model()
    if dice.chance(4):
        model.graph.input[0].type.tensor_type.ClearField("shape")
    if dice.chance(4):  # the batch of an export, which a tool may have left inside
        stated = [7, channels, *([4] * (len(shape) - 2))]
        inner = helper.make_tensor_value_info(model.graph.node[0].output[0], 1, stated)
        model.graph.value_info.append(inner)
    return OddCase(model, _options(dice, shape))


def _shape(dice: Dice) -> tuple[int | str, ...]:
    axes = dice.one_of((2, 2, 2, 2, 2, 2, 1, 3))
    batch = dice.one_of((1, 1, 1, 1, "N", "N", 2))
    channels: int | str = "C" if dice.chance(4) else dice.one_of((1, 3, 4, 6))
    extents = ["H" if dice.chance(5) else dice.number(5, 12) for _ in range(axes)]
    return (batch, channels, *extents)


def _convolution(work: OddModel) -> None:
    dice, axes = work.dice, work.axes
    outputs = dice.number(1, 6)
    group = dice.one_of((1, 1, 1, 1, work.channels, work.channels, 2, 3))
    outputs = outputs * group if dice.chance(90) else outputs
    read = max(work.channels // group, 1) + (1 if dice.chance(2) else 0)
    weight = (outputs, read, *(dice.number(1, 3) for _ in range(axes)))
    attrs: dict[str, Any] = {"group": group} if group > 1 or dice.chance(20) else {}
    op = "ConvTranspose" if dice.chance(12) else "Conv"
    if op == "ConvTranspose":
        weight, outputs = (work.channels, outputs, *weight[2:]), outputs * group
    attrs |= _window(dice, axes)
    work.net.conv(work.net.last, weight, op=op, bias=dice.chance(70), **attrs)
    work.channels = outputs


def _window(dice: Dice, axes: int) -> dict[str, Any]:
    """Attributes of a sliding window, some of them wrong."""
    attributes: dict[str, Any] = {}
    if dice.chance(40):
        attributes["strides"] = [dice.number(1, 3) for _ in range(axes)]
    if dice.chance(20):
        attributes["dilations"] = [dice.number(1, 2) for _ in range(axes)]
    if dice.chance(20):
        attributes["auto_pad"] = dice.one_of(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    if dice.chance(10 if "auto_pad" in attributes else 50):
        low = -1 if dice.chance(3) else 0
        attributes["pads"] = [dice.number(low, 2) for _ in range(2 * axes)]
    if dice.chance(2):
        attributes["strides"] = [1] * (axes + 1)
    return attributes


def _activation(work: OddModel) -> None:
    work.net.op(work.dice.one_of(ACTIVATIONS))


def _cast(work: OddModel) -> None:
    work.net.op("Cast")
    kind = work.dice.one_of(KINDS)
    work.net.nodes[-1].attribute.append(helper.make_attribute("to", kind))
    if work.dice.chance(60):
        _activation(work)
    if work.dice.chance(60):
        work.net.op("Cast")
        work.net.nodes[-1].attribute.append(helper.make_attribute("to", TensorProto.FLOAT))


def _pool(work: OddModel) -> None:
    dice, axes = work.dice, work.axes
    if dice.chance(25):
        work.net.op("GlobalAveragePool")
        return
    attrs = {"kernel_shape": [dice.number(1, 3) for _ in range(axes)], **_window(dice, axes)}
    op = dice.one_of(("MaxPool", "AveragePool"))
    if op == "AveragePool":
        attrs.pop("dilations", None)
    work.net.op(op, **attrs)


def _pad(work: OddModel) -> None:
    dice, axes = work.dice, work.axes
    amounts = [dice.number(-1 if dice.chance(10) else 0, 2) for _ in range(2 * axes)]
    pads = [0, 0, *amounts[:axes], 0, 0, *amounts[axes:]]
    mode = dice.one_of(("constant", "constant", "reflect", "edge"))
    work.net.pad(pads, dice.one_of((0.0, 0.0, 1.5)) if mode == "constant" else None, mode=mode)


def _head(work: OddModel) -> None:
    """A classifier, which may not know how much it reads."""
    net, dice = work.net, work.dice
    net.op("GlobalAveragePool").op("Flatten")
    wide = work.channels + (1 if dice.chance(5) else 0)
    net.op("Gemm", net.last, net.random(wide, 5), net.random(5))
    work.channels, work.axes = 5, 0


def _reorder(work: OddModel) -> None:
    net, dice, axes = work.net, work.dice, work.axes
    if dice.chance(40):
        net.op("Transpose", perm=[0, *range(2, axes + 2), 1])
    elif dice.chance(50):
        net.reshape([0, -1] if dice.chance(80) else [7, -1])
    else:
        net.op("Concat", net.last, net.last, axis=dice.one_of((1, 1, 1, 2, 9)))
        work.channels *= 2


def _pick(work: OddModel) -> None:
    """A Gather, perhaps beyond the end."""
    index = work.dice.one_of((0, 0, 1, 40))
    work.net.op("Gather", work.net.last, work.net.constant(np.asarray([index], np.int64)), axis=1)
    work.channels = 1


def _number(work: OddModel) -> None:
    op = work.dice.one_of(("Add", "Mul", "Sub", "Div", "Pow"))
    number = work.dice.one_of((2.0, 0.5, 0.0, 1e30, -1.0))
    work.net.op(op, work.net.last, work.net.constant(np.float32(number)))


def _second(work: OddModel) -> None:
    """A second input, perhaps of integers, or of an open shape."""
    net, dice, name = work.net, work.dice, f"y{len(work.net.nodes)}"
    shape = dice.one_of(([1], [1, 1, 1, 1], ["K"], [1, work.channels, 1, 1], []))
    kind = dice.one_of((*KINDS, TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.STRING))
    net.inputs.append(helper.make_tensor_value_info(name, kind, shape))
    last = net.last
    if kind != TensorProto.FLOAT:
        net.op("Cast", name)
        net.nodes[-1].attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
        name = net.last
    net.op(dice.one_of(("Add", "Mul", "Div")), last, name)


def _foreign(work: OddModel) -> None:
    domain = work.dice.one_of(("com.microsoft", "org.example"))
    work.net.op(work.dice.one_of(("Gelu", "Mystery")), domain=domain)


def _quantized(work: OddModel) -> None:
    """A pair that a trained or quantized model has, perhaps of a type that is not taken."""
    net, dice = work.net, work.dice
    kind = dice.one_of((np.int8, np.uint8, np.uint8, np.int16 if net.opset > 20 else np.int8))
    scale = dice.one_of((0.05, 0.05, 1e-3, 0.0 if dice.chance(5) else 1.0))
    read = [net.constant(np.float32(scale)), net.constant(kind(dice.one_of((0, 0, 3))))]
    net.op("QuantizeLinear", net.last, *read)
    if dice.chance(90):
        net.op("DequantizeLinear", net.last, *read)


def _condition(work: OddModel) -> None:
    """An If, whose condition may be a constant."""
    net, dice, source = work.net, work.dice, work.net.last
    then, otherwise = Net(prefix="then_"), Net(prefix="else_")
    if dice.chance(40):
        then.conv(source, (work.channels, work.channels, *([1] * work.axes)))
    else:
        then.op("Relu", source)
    otherwise.op("Neg", source)
    if dice.chance(50):
        net.branch(then, otherwise)
    else:
        known = net.constant(np.asarray(dice.chance(50)))
        bodies = {"then_branch": then.body(), "else_branch": otherwise.body()}
        net.op("If", known, name="if", **bodies)


def _resize(work: OddModel) -> None:
    net, dice = work.net, work.dice
    factors = [1.0, 1.0, *(dice.one_of((2.0, 2.0, 0.5, 1.5)) for _ in range(work.axes))]
    scales = net.constant(np.asarray(factors, np.float32))
    mode = dice.one_of(("nearest", "linear", "cubic"))
    net.op("Resize", net.last, net.constant(np.zeros(0, np.float32)), scales, mode=mode)


def _normalized(work: OddModel) -> None:
    work.net.batchnorm(work.channels + (1 if work.dice.chance(4) else 0))


def _places(work: OddModel) -> None:
    """A MaxPool that also says where, which may be an output of the model."""
    net, pool = work.net, {"kernel_shape": [2] * work.axes}
    net.op("MaxPool", net.last, outputs=2, **pool)
    if work.dice.chance(60):
        net.output(net.nodes[-1].output[1]).output(net.last)


def _extreme(work: OddModel) -> None:
    """A convolution of weights that are huge, no numbers, or of too few axes."""
    net, dice = work.net, work.dice
    shape = [(work.channels, work.channels, *([3] * work.axes)), (4,), ()][
        dice.one_of((0, 0, 0, 1, 2))
    ]
    weight = np.ones(shape, np.float32)
    weight.reshape(-1)[0] = dice.one_of((np.nan, np.inf, 1e30, 1e-30, 1.0))
    op, wide = dice.one_of(("Conv", "ConvTranspose")), [dice.number(1, 4)] * work.axes
    net.op(op, net.last, net.constant(weight), dilations=wide, strides=[2] * work.axes)


Part = Callable[[OddModel], None]
PARTS: dict[str, tuple[int, Part]] = {
    "convolution": (30, _convolution), "activation": (22, _activation), "cast": (14, _cast),
    "pool": (9, _pool), "pad": (6, _pad), "head": (5, _head), "reorder": (5, _reorder),
    "pick": (3, _pick), "number": (5, _number), "foreign": (1, _foreign),
    "second": (5, _second), "quantized": (4, _quantized), "condition": (3, _condition),
    "resize": (4, _resize), "normalized": (5, _normalized),
    "places": (2, _places), "extreme": (3, _extreme),
}  # fmt: skip


def _options(dice: Dice, shape: tuple[int | str, ...]) -> dict[str, Any]:
    """Options that both commands take; few of them at a time."""
    codes = [rule.code for rule in all_rules()]
    fixed = [n if isinstance(n, int) else dice.number(1, 9) for n in shape]
    options: dict[str, Any] = {"max_samples": 4, "target": dice.one_of(TARGETS)}
    options["format"] = dice.weighted(qoperator=45, qdq=15, weights=12, float=18, tflite=10)
    choices: dict[str, tuple[int, Callable[[], Any]]] = {
        "ignore": (20, lambda: tuple(dice.one_of(codes) for _ in range(3))),
        "input_shape": (20, lambda: {NAME: tuple(fixed) if dice.chance(80) else (1, 2)}),
        "fail_on": (12, lambda: dice.one_of(("warning", "unknown", "never"))),
        "unknown": (12, lambda: dice.one_of(("pass", "fail"))),
        "severity": (8, lambda: {dice.one_of(codes): dice.one_of(("error", "warning", "note"))}),
        "select": (4, lambda: (dice.one_of(codes)[:3],)),
        "min_sqnr": (6, lambda: dice.one_of((-50, 20, 190))),
        "max_extra_macs": (6, lambda: dice.one_of((0, 20))),
        "io": (8, lambda: "int8"),
        "layout": (5, lambda: "nhwc"),
        "keep_float": (6, lambda: (dice.one_of(("*", "op:Conv", "conv0", "op:Relu")),)),
        "offload": (6, lambda: False),
        "verify": (6, lambda: False),
        "pad_on_host": (6, lambda: dice.one_of(("auto", "all", "never"))),
        "prefer": (6, lambda: (dice.one_of(("split", "dense", "zero-insertion", "slices")),)),
        "assume": (20, lambda: dice.one_of(ASSUMED)),
        "fit": (4, lambda: False),
        "opset": (8, lambda: dice.one_of((14, 17, 19, 22))),
        "standard_ops": (6, lambda: True),
        "method": (8, lambda: dice.one_of(("minmax", "percentile", "entropy", "mse"))),
        "keep_scales": (6, lambda: False),
        "without": (4, lambda: (dice.one_of(("gptq-rounding", "clipping", "nothing")),)),
        "preprocess": (5, lambda: dice.one_of(("unit", "imagenet", {"mean": [9, 9]}))),
        "calibration": (15, lambda: {NAME: images(4, *(fixed[1:] if dice.chance(80) else [3]))}),
    }
    for name, (percent, make) in choices.items():
        if dice.chance(percent):
            options[name] = make()
    return options
