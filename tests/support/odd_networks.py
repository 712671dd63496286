"""Small networks of all operators that a device may compute, for random devices.

    case = odd_network(17)
    npuconv.convert(case.model, **case.options)

Unlike ``odd_models`` these networks are valid. They vary the sequences of operators, the
operators that the device lists, and the output format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from support.builders import Net, images
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
    device: dict[str, Any] = {
        "schema": 1, "name": "odd", "activations": activations, "weights": weights,
        "operators": {"Conv": {"limits": limits} if limits else {}, **{op: {} for op in listed}},
        "unlisted_operators": dice.one_of(("host", "host", "host", "undocumented")),
    }  # fmt: skip
    if dice.chance(50):
        device["fused_activations"] = {"one_of": ["Relu", "Clip"]}
    return device


TARGETS = ("rknn", "ethos-u55", "npu-int8", "horizon-x3", "mediatek-mdla2")
FUNCTIONS = (
    "Abs", "Elu", "Erf", "Exp", "HardSigmoid", "LeakyRelu", "Neg", "Relu", "Sigmoid", "Softplus",
    "Tanh",
)  # fmt: skip


@dataclass(frozen=True)
class OddNetwork:
    """A network, options of the conversion, and samples.

    Attributes:
        model: a valid float model.
        options: options of check and convert; ``target`` is a name, or data for a file.
        samples: calibration samples, N x C x H x W float32.
        feeds: inputs for the comparison.
    """

    model: onnx.ModelProto
    options: dict[str, Any]
    samples: np.ndarray
    feeds: dict[str, np.ndarray]

    def given(self, folder: Path) -> dict[str, Any]:
        """Return the options, with the target in a file of this folder."""
        options = self.options | {"calibration": {"x": self.samples}}
        if isinstance(target := options["target"], dict):
            path = folder / "target.yaml"
            path.write_text(json.dumps(target))
            options["target"] = str(path)
        return options


@dataclass(frozen=True)
class Image:
    """A tensor of the graph: its name, and its shape without the batch."""

    name: str
    channels: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, rows, columns."""
        return (self.channels, self.height, self.width)


class _Growing:
    """A network under construction."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        batch = dice.one_of((1, 1, 1, 2, "N"))
        height = dice.one_of((8, 9, 12, 16))
        width = dice.one_of((height, 7, 10))
        first = Image("x", dice.one_of((1, 3, 4, 8)), height, width)
        opset = dice.one_of((13, 17, 18, 21))
        self.net = Net(opset=opset, ir_version=8, x=(batch, *first.shape))
        self.batch, self.first, self.made = batch, first, [first]

    def op(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Append a node; return the name of its output."""
        return self.net.op(op, *inputs, **attrs).last

    def number(self, value: Any) -> str:
        """Return a float constant."""
        return self.net.constant(np.asarray(value, np.float32))

    def mean(self, source: str, axes: list[int]) -> str:
        """Append a ReduceMean in the form of the opset."""
        if self.net.opset < 18:
            return self.op("ReduceMean", source, axes=axes, keepdims=1)
        return self.op("ReduceMean", source, self.net.constant(np.asarray(axes)), keepdims=1)

    def alike(self, image: Image) -> str:
        """Return the name of a tensor of the same shape."""
        return self.dice.one_of([m for m in self.made if m.shape == image.shape]).name

    def model(self) -> onnx.ModelProto:
        """Return the model; its outputs are all tensors without consumers."""
        read = {name for node in self.net.nodes for name in node.input}
        loose = [m.name for m in self.made if m.name not in read | {"x"}]
        return self.net.output(*dict.fromkeys(loose)).model()


def odd_network(seed: int) -> OddNetwork:
    """Return the case of this number."""
    dice = Dice("network", seed)
    work = _Growing(dice)
    work.made += _convolution(work, work.first)
    shares = {name: share for name, (share, _) in PARTS.items()}
    for _ in range(dice.number(3, 9)):
        part = PARTS[dice.weighted(**shares)][1]
        work.made += part(work, dice.one_of(work.made[-3:]))
    if dice.chance(30):
        _head(work, work.made[-1])
    shape = work.first.shape
    feeds, samples = images(2 if work.batch == 2 else 1, *shape), images(16, *shape, seed=1)
    options = _options(dice, work)
    if dice.chance(50):  # values of one sign, like pixels: the host pads such inputs
        feeds, samples = np.abs(feeds), np.abs(samples)
    return OddNetwork(work.model(), options, samples, {"x": feeds})


def _convolution(work: _Growing, image: Image) -> list[Image]:
    dice = work.dice
    sizes = [dice.one_of((1, 3, 3, 5)) if side >= 5 else 1 for side in image.shape[1:]]
    if dice.chance(70):
        sizes = [min(sizes)] * 2
    pads = [dice.one_of((0, size // 2, size // 2)) for size in sizes]
    strides = dice.one_of(((1, 1), (1, 1), (2, 2), (1, 2)))
    group = image.channels if image.channels > 1 and dice.chance(25) else 1
    rows = group if group > 1 else dice.one_of((2, 4, 6, 8, 16))
    weight = (rows, image.channels // group, *sizes)
    window = {"group": group, "pads": pads * 2, "strides": list(strides)}
    result = work.net.conv(image.name, weight, bias=dice.chance(75), **window).last
    if dice.chance(40):
        result = work.op("Relu", result)
    return [Image(result, rows, *_windows(image, sizes, pads, strides))]


def _dilated(work: _Growing, image: Image) -> list[Image]:
    """Append a convolution with few groups, a dilation or unequal pads, which needs rewrites."""
    dice, (channels, height, width) = work.dice, image.shape
    if min(height, width) < 5:
        return _convolution(work, image)
    group = 2 if channels % 2 == 0 and dice.chance(40) else 1
    dilation = dice.one_of((1, 2))
    top, left, bottom, right = pads = [dice.number(0, 2) for _ in range(4)]
    rows = group * dice.one_of((2, 3, 4))
    window = {"group": group, "pads": pads, "dilations": [dilation, 1]}
    weight = (rows, channels // group, 3, 3)
    result = work.net.conv(image.name, weight, bias=dice.chance(50), **window).last
    return [Image(result, rows, height + top + bottom - 2 * dilation, width + left + right - 2)]


def _transposed(work: _Growing, image: Image) -> list[Image]:
    dice, (channels, height, width) = work.dice, image.shape
    if max(height, width) > 16:
        return _convolution(work, image)
    stride, size, rows = dice.one_of((1, 2)), dice.one_of((2, 3, 4)), dice.one_of((2, 4))
    result = work.net.conv(
        image.name, (channels, rows, size, size), op="ConvTranspose", strides=[stride] * 2
    ).last
    sides = [(side - 1) * stride + size for side in (height, width)]
    return [Image(result, rows, *sides)]


def _windows(
    image: Image, sizes: Sequence[int], pads: Sequence[int], strides: Sequence[int]
) -> list[int]:
    """Return the number of windows along rows and columns."""
    sides = zip(image.shape[1:], sizes, pads, strides, strict=True)
    return [(side + 2 * pad - size) // stride + 1 for side, size, pad, stride in sides]


def _with(image: Image, name: str) -> list[Image]:
    """Return a tensor of the same shape."""
    return [Image(name, *image.shape)]


def _function(work: _Growing, image: Image) -> list[Image]:
    dice, name = work.dice, image.name
    kind = dice.weighted(plain=10, clip=1, slopes=1, root=1)
    if kind == "plain":
        return _with(image, work.op(dice.one_of(FUNCTIONS), name))
    if kind == "clip":
        bounds = (work.number(0.0), work.number(dice.one_of((6.0, 1.0))))
        return _with(image, work.op("Clip", name, *bounds))
    if kind == "slopes":
        shape = (image.channels if dice.chance(50) else 1, 1, 1)
        return _with(image, work.op("PRelu", name, work.number(np.full(shape, 0.2))))
    return _with(image, work.op("Sqrt", work.op("Relu", name)))


def _pair(work: _Growing, image: Image) -> list[Image]:
    op = work.dice.one_of(("Add", "Add", "Add", "Add", "Sub", "Mul"))
    return _with(image, work.op(op, image.name, work.alike(image)))


def _gate(work: _Growing, image: Image) -> list[Image]:
    source = image.name if work.dice.chance(50) else work.alike(image)
    return _with(image, work.op("Mul", image.name, work.op("Sigmoid", source)))


def _squeeze_and_excite(work: _Growing, image: Image) -> list[Image]:
    pooled = (
        work.op("GlobalAveragePool", image.name)
        if work.dice.chance(60)
        else work.mean(image.name, [2, 3])
    )
    excited = work.net.conv(pooled, (image.channels, image.channels, 1, 1)).last
    gate = work.op(work.dice.one_of(("Sigmoid", "HardSigmoid")), excited)
    return _with(image, work.op("Mul", image.name, gate))


def _concat(work: _Growing, image: Image) -> list[Image]:
    partner = work.dice.one_of([m for m in work.made if m.shape[1:] == image.shape[1:]])
    result = work.op("Concat", image.name, partner.name, axis=1)
    return [Image(result, image.channels + partner.channels, *image.shape[1:])]


def _pool(work: _Growing, image: Image) -> list[Image]:
    dice = work.dice
    if min(image.shape[1:]) < 3:
        return _function(work, image)
    sizes = dice.one_of(((2, 2), (3, 3), (2, 3)))
    pads = [1, 1] if sizes == (3, 3) and dice.chance(33) else [0, 0]
    strides = dice.one_of(((1, 1), (2, 2), (2, 1)))
    window = {"kernel_shape": list(sizes), "strides": list(strides), "pads": pads * 2}
    op = dice.one_of(("MaxPool", "AveragePool"))
    counted = {"count_include_pad": 1} if op == "AveragePool" and dice.chance(50) else {}
    result = work.op(op, image.name, **window, **counted)
    return [Image(result, image.channels, *_windows(image, sizes, pads, strides))]


def _resize(work: _Growing, image: Image) -> list[Image]:
    dice = work.dice
    if max(image.shape[1:]) > 16:
        return _function(work, image)
    where = dice.one_of(("asymmetric", "half_pixel", "align_corners"))
    how = {"mode": dice.one_of(("nearest", "linear")), "coordinate_transformation_mode": where}
    if how["mode"] == "nearest":
        how["nearest_mode"] = "floor"
    times = dice.one_of(((2, 2), (2, 1), (1, 3)))
    result = work.op("Resize", image.name, "", work.number([1, 1, *times]), **how)
    return [Image(result, image.channels, times[0] * image.height, times[1] * image.width)]


def _split(work: _Growing, image: Image) -> list[Image]:
    if image.channels < 2:
        return _function(work, image)
    sizes = work.net.constant(np.asarray([1, image.channels - 1]))
    first = work.op("Split", image.name, sizes, axis=1, outputs=2)
    second = Image(f"{first}_1", image.channels - 1, *image.shape[1:])
    return [Image(first, 1, *image.shape[1:]), second]


def _slice(work: _Growing, image: Image) -> list[Image]:
    if image.height < 3:
        return _function(work, image)
    start, end = work.dice.one_of(((1, image.height), (0, -1)))
    inputs = [work.net.constant(np.asarray([k])) for k in (start, end, 2)]
    result = work.op("Slice", image.name, *inputs)
    return [Image(result, image.channels, image.height - 1, image.width)]


def _constant(work: _Growing, image: Image) -> list[Image]:
    dice = work.dice
    value: Any = dice.one_of((2.0, 0.5, -1.0, 3.0))
    if dice.chance(40):
        value = np.linspace(0.5, 2, image.channels).reshape(image.channels, 1, 1)
    op = dice.one_of(("Add", "Mul", "Sub", "Div"))
    return _with(image, work.op(op, image.name, work.number(value)))


def _hard_swish(work: _Growing, image: Image) -> list[Image]:
    """Append a hard swish as exporters write it for opsets without HardSwish."""
    gate = work.op("Add", image.name, work.number(3.0))
    gate = work.op("Clip", gate, work.number(0.0), work.number(6.0))
    product = work.op("Mul", image.name, gate)
    return _with(image, work.op("Div", product, work.number(6.0)))


def _softmax(work: _Growing, image: Image) -> list[Image]:
    return _with(image, work.op("Softmax", image.name, axis=work.dice.one_of((1, -1, 2))))


def _pad(work: _Growing, image: Image) -> list[Image]:
    work.net.last = image.name
    result = work.net.pad([0, 0, 1, 1, 0, 0, 1, 1], work.dice.one_of((None, 0.0, 0.4))).last
    return [Image(result, image.channels, image.height + 2, image.width + 2)]


def _channels_last(work: _Growing, image: Image) -> list[Image]:
    turned = work.op("Tanh", work.op("Transpose", image.name, perm=[0, 2, 3, 1]))
    return _with(image, work.op("Transpose", turned, perm=[0, 3, 1, 2]))


def _layer_norm(work: _Growing, image: Image) -> list[Image]:
    """Append a LayerNormalization of channels as exporters write it for older opsets."""
    turned = work.op("Transpose", image.name, perm=[0, 2, 3, 1])
    centred = work.op("Sub", turned, work.mean(turned, [-1]))
    spread = work.mean(work.op("Pow", centred, work.number(2.0)), [-1])
    root = work.op("Sqrt", work.op("Add", spread, work.number(1e-5)))
    slopes = work.number(np.linspace(0.5, 1, image.channels))
    scaled = work.op("Mul", work.op("Div", centred, root), slopes)
    moved = work.op("Add", scaled, work.number(np.zeros(image.channels)))
    return _with(image, work.op("Transpose", moved, perm=[0, 3, 1, 2]))


def _attention(work: _Growing, image: Image) -> list[Image]:
    """Append an attention of all pixels to all pixels."""
    flat = work.net.constant(np.asarray([0, image.channels, -1]))
    square = work.net.constant(np.asarray([0, *image.shape]))
    columns = work.op("Reshape", image.name, flat)
    alike = work.op("MatMul", work.op("Transpose", columns, perm=[0, 2, 1]), columns)
    mixed = work.op("MatMul", columns, work.op("Softmax", alike, axis=1))
    return _with(image, work.op("Reshape", mixed, square))


def _head(work: _Growing, image: Image) -> None:
    flat = work.op("Flatten", work.op("GlobalAveragePool", image.name))
    inputs = (flat, work.net.random(image.channels, 5), work.net.random(5))
    work.made.append(Image(work.op("Gemm", *inputs), 5, 0, 0))


PARTS: dict[str, tuple[int, Callable[[_Growing, Image], list[Image]]]] = {
    "convolution": (8, _convolution), "dilated": (2, _dilated), "transposed": (1, _transposed),
    "function": (6, _function), "pair": (4, _pair),
    "gate": (4, _gate), "concat": (3, _concat), "pool": (2, _pool), "constant": (2, _constant),
    "hard_swish": (2, _hard_swish), "resize": (1, _resize), "split": (1, _split),
    "slice": (1, _slice), "softmax": (1, _softmax), "pad": (1, _pad),
    "channels_last": (1, _channels_last), "layer_norm": (1, _layer_norm),
    "squeeze_and_excite": (1, _squeeze_and_excite), "attention": (1, _attention),
}  # fmt: skip


def _options(dice: Dice, work: _Growing) -> dict[str, Any]:
    target: Any = odd_device(dice) if dice.chance(75) else dice.one_of(TARGETS)
    form = dice.weighted(qoperator=30, qdq=20, weights=5, float=10, tflite=35)
    options = {"target": target, "max_samples": 4, "format": form}
    if dice.chance(20):
        options["opset"] = dice.one_of((14, 17, 19, 22, 25))
    rare = (
        ("standard_ops", True), ("fit", False), ("io", "int8"), ("max_extra_macs", 20),
        ("pad_on_host", "all"), ("pad_on_host", "never"), ("pad_on_host", "auto"),
        ("without", ("clipping",)), ("prefer", ("dense",)), ("keep_float", ("op:Relu",)),
        ("layout", "nhwc"),
    )  # fmt: skip
    options |= {option: value for option, value in rare if dice.chance(10)}
    if work.batch == "N" and dice.chance(50):
        options["input_shape"] = {"x": (1, *work.first.shape)}
    return options
