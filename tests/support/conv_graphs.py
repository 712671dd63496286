"""Random graphs of one to four convolutions, with the expected fault.

    case = Case(opset=9, number=17)
    case = Case(opset=9, number=17, faulty=True)

A graph can be made legal; a faulty graph has a known node with a fault that no rewrite can mend.
The same opset and number give the same graph every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.conv_text import SAME, Slide, transpose_crops, transpose_extents
from support.dice import Dice

LARGEST = 40  # upper bound of extents, so that a graph takes milliseconds


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a convolution."""

    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0
    extra: int = 0  # output_padding

    @property
    def reach(self) -> int:
        """Cells the dilated kernel covers."""
        return (self.kernel - 1) * self.dilation + 1


@dataclass
class Layer:
    """A convolution: attributes of its node, shape of its weights, and its output."""

    op: str
    attrs: dict[str, Any]
    weight: tuple[int, ...]  # shape of the weights
    outputs: int  # output channels
    extents: list[int]  # spatial extents of the output
    traits: set[str] = field(default_factory=set)  # kinds of layer that it covers


def layer(
    dice: Dice, op: str, channels: int, extents: Sequence[int], dynamic: Sequence[bool],
    fault: str = "",
) -> Layer:  # fmt: skip
    """A convolution for an input of these channels and extents.

    Args:
        dice: random numbers.
        op: Conv or ConvTranspose.
        channels: number of input channels.
        extents: spatial extents of the input when the model runs.
        dynamic: whether an extent is symbolic in the model, by axis.
        fault: fault of the convolution: a key of ``FAULTS``, or empty.
    """
    mode = _mode(dice, op, dynamic, fault)
    flat = -1
    if len(extents) == 3 and fault != "3d":
        flat = dice.number(0, 2)
    axes = [
        _removable(dice, op, n, mode) if axis == flat else _axis(dice, op, n, mode)
        for axis, n in enumerate(extents)
    ]
    axes = [_fitting(a, op, n, mode, d) for a, n, d in zip(axes, extents, dynamic, strict=True)]
    if fault == "3d":
        axes = [Axis(kernel=2) for _ in axes]
    if fault == "same-dynamic":
        first = dynamic.index(True)
        axes[first] = replace(axes[first], stride=dice.number(2, 3))
    return _finished(dice, op, channels, extents, mode, axes, fault)


def _mode(dice: Dice, op: str, dynamic: Sequence[bool], fault: str) -> str:
    if fault == "same-dynamic":
        return str(dice.one_of(SAME))
    if fault == "pads":
        return str(dice.one_of((*SAME, "VALID")))
    if fault == "3d":
        return "NOTSET"
    shares = {"NOTSET": 5, "SAME_UPPER": 2, "SAME_LOWER": 2, "VALID": 1}
    if op == "ConvTranspose" and not any(dynamic):
        shares |= {"SHAPE": 2}
    return dice.weighted(**shares)


def _axis(dice: Dice, op: str, extent: int, mode: str) -> Axis:
    stride = dice.number(1, 3 if op == "Conv" or extent * 3 <= LARGEST else 1)
    kernel, dilation = dice.number(1, 4), dice.one_of([1, 1, 2, 3])
    begin, end = (dice.number(0, 3), dice.number(0, 3)) if mode == "NOTSET" else (0, 0)
    extra = dice.number(0, max(stride, dilation) - 1) if op == "ConvTranspose" else 0
    return Axis(kernel, stride, dilation, begin, end, extra)


def _removable(dice: Dice, op: str, extent: int, mode: str) -> Axis:
    """An axis of a 3D convolution that a rewrite can remove."""
    if extent == 1 and (op == "Conv" or mode in ("NOTSET", "SAME_UPPER", "SAME_LOWER")):
        # One cell in, one cell out: all but one cell of the kernel meet padding.
        kernel, dilation = dice.number(1, 3), dice.number(1, 2)
        reach = (kernel - 1) * dilation + 1
        begin = dice.number(0, reach - 1) if mode == "NOTSET" else 0
        end = reach - 1 - begin if mode == "NOTSET" else 0
        stride = dice.number(1, 2) if op == "Conv" or mode == "NOTSET" else 1
        if mode == "VALID":
            kernel = 1
        return Axis(kernel, stride, dilation, begin, end)
    if op == "Conv" and extent <= 4 and mode in ("NOTSET", "VALID") and dice.chance(50):
        return Axis(extent, dice.number(1, 2))  # the kernel covers the whole axis
    return Axis(dilation=dice.number(1, 2))


def _fitting(axis: Axis, op: str, extent: int, mode: str, dynamic: bool) -> Axis:
    """The nearest axis whose output has a cell, and that needs no unknown extent."""
    if op == "Conv" and mode in ("NOTSET", "VALID"):
        room = extent + axis.begin + axis.end
        if room < axis.reach:
            axis = replace(axis, dilation=1, kernel=min(axis.kernel, room))
    if op == "Conv" and mode in SAME and dynamic:
        axis = replace(axis, stride=1)
    if op == "ConvTranspose" and mode == "NOTSET":
        most = axis.stride * (extent - 1) + axis.reach + axis.extra - 1
        begin = min(axis.begin, most)
        axis = replace(axis, begin=begin, end=min(axis.end, most - begin))
    return axis


def _finished(
    dice: Dice, op: str, channels: int, extents: Sequence[int], mode: str, axes: list[Axis],
    fault: str,
) -> Layer:  # fmt: skip
    group = dice.one_of([g for g in range(1, channels + 1) if channels % g == 0])
    multiplier = dice.number(1, 3 if group < 3 else 2)
    pads = [a.begin for a in axes] + [a.end for a in axes]
    slide = Slide(
        [a.kernel for a in axes], [a.stride for a in axes], [a.dilation for a in axes], pads,
        "NOTSET" if mode == "SHAPE" else mode,
    )  # fmt: skip
    attrs: dict[str, Any] = {"group": group}
    if op == "Conv":
        counts, weight = (
            slide.counts(extents),
            (group * multiplier, channels // group, *slide.kernel),
        )
    else:
        slide, counts = _transposed(dice, slide, extents, axes, mode, attrs)
        weight = (channels, multiplier, *slide.kernel)
    attrs |= _written(dice, slide)
    if fault == "pads":
        attrs |= {"auto_pad": mode, "pads": [1] * (2 * len(axes))}
    if mode == "SHAPE" and slide.auto_pad == "NOTSET" and dice.chance(20):
        attrs["pads"] = [1] * (2 * len(axes))  # the operator text says that they are ignored
    traits = _traits(op, slide, attrs, channels, group * multiplier, mode)
    return Layer(op, _without_defaults(dice, attrs), weight, group * multiplier, counts, traits)


def _transposed(
    dice: Dice, slide: Slide, extents: Sequence[int], axes: list[Axis], mode: str,
    attrs: dict[str, Any],
) -> tuple[Slide, list[int]]:  # fmt: skip
    """Draw output_padding, output_shape and output extents of a ConvTranspose."""
    extra = [a.extra for a in axes]
    whole = transpose_extents(slide, extents, extra)
    if any(extra):
        attrs["output_padding"] = extra
    output_shape: list[int] = []
    if mode == "SHAPE":
        output_shape = [
            n if len(axes) == 3 and _stays(a, n) else dice.number(max(1, full - 4), full + 2)
            for a, n, full in zip(axes, extents, whole, strict=True)
        ]
        attrs["output_shape"] = output_shape
        halves = dice.one_of(["NOTSET", *SAME])
        slide = replace(slide, auto_pad=halves)
    crops, appended = transpose_crops(slide, extents, whole, output_shape)
    return slide, [
        n + more - begin - end for n, more, (begin, end) in zip(whole, appended, crops, strict=True)
    ]


def _stays(axis: Axis, extent: int) -> bool:
    """Return whether a removable axis keeps its extent."""
    return (axis.kernel == axis.stride == 1) or extent == 1


def _written(dice: Dice, slide: Slide) -> dict[str, Any]:
    attrs: dict[str, Any] = {
        "auto_pad": slide.auto_pad,
        "dilations": list(slide.dilations),
        "kernel_shape": list(slide.kernel),
        "strides": list(slide.strides),
    }
    # All zeros beside auto_pad are harmless.
    if slide.auto_pad == "NOTSET" or dice.chance(10):
        attrs["pads"] = list(slide.pads)
    return attrs


def _without_defaults(dice: Dice, attrs: dict[str, Any]) -> dict[str, Any]:
    """Leave out some attributes that have their default."""
    axes = len(attrs["kernel_shape"])
    defaults = {
        "auto_pad": "NOTSET", "dilations": [1] * axes, "group": 1, "pads": [0] * (2 * axes),
        "kernel_shape": attrs["kernel_shape"], "strides": [1] * axes,
    }  # fmt: skip
    return {
        name: value
        for name, value in attrs.items()
        if value != defaults.get(name) or dice.chance(30)
    }


def _traits(
    op: str, slide: Slide, attrs: dict[str, Any], channels: int, outputs: int, mode: str
) -> set[str]:
    group = attrs["group"]
    kind = "group 1" if group == 1 else "group C" if group == channels else "group between"
    traits = {f"{op} {len(slide.kernel)}D", f"{op} {kind}", f"{op} {mode}"}
    tests = {
        "multiplier": group == channels > 1 and outputs > channels,
        "dilated": any(d > 1 and k > 1 for d, k in zip(slide.dilations, slide.kernel, strict=True)),
        "strided": any(s > 1 for s in slide.strides),
        "unequal strides": len(set(slide.strides)) > 1,
        "stride beyond kernel": any(
            s > k for s, k in zip(slide.strides, slide.kernel, strict=True)
        ),
        "uneven pads": any(a != b for a, b in slide.explicit),
        "output_padding": "output_padding" in attrs,
        "pads ignored": mode == "SHAPE" and any(attrs.get("pads", ())),
    }
    return traits | {f"{op} {name}" for name, holds in tests.items() if holds}


OPSETS = {1: 3, 7: 3, 9: 4, 11: 6, 13: 7, 17: 8, 21: 10, 22: 10}  # IR version by opset


class Sketch:
    """A model under construction, and the shape of its last tensor when it runs."""

    def __init__(self, dice: Dice, opset: int, rank: int, fault: str) -> None:
        self.dice, self.opset, self.fault = dice, opset, fault
        self.rng = np.random.default_rng(dice.number(0, 9))
        largest = {1: 14, 2: 9, 3: 6}[rank]
        smallest = 3 if fault == "3d" else 1
        self.extents: list[int] = [dice.number(smallest, largest) for _ in range(rank)]
        if rank == 3 and not fault and dice.chance(50):
            self.extents[dice.number(0, 2)] = 1
        self.batch, self.channels = dice.number(1, 3), dice.one_of([1, 2, 3, 4, 6])
        self.dynamic = [self._is_dynamic(rank)] * rank
        if rank > 1 and self.dynamic[0] and not fault:
            self.dynamic[dice.number(0, rank - 1)] = False
        self.shape = (self.batch, self.channels, *self.extents)
        names = [f"d{axis}" if d else n for axis, (d, n) in
                 enumerate(zip(self.dynamic, self.extents, strict=True))]  # fmt: skip
        self.dims = ["N" if dice.chance(50) else self.batch, self.channels, *names]
        self.feeds = {"x": self.values(*self.shape)}
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.dims)]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[tuple[str, int]] = []
        self.last, self.bad = "x", ""
        self.traits = {f"opset {opset}", f"{rank}D"}
        self.traits |= {"dynamic batch"} if self.dims[0] == "N" else set()
        self.traits |= {"dynamic extents"} if any(self.dynamic) else set()

    def _is_dynamic(self, rank: int) -> bool:
        if self.fault:
            return self.fault == "same-dynamic"
        return rank < 3 and self.dice.chance(15)

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.extents)

    def values(self, *shape: int) -> np.ndarray:
        """Multiples of 1/8, so that float32 sums are nearly exact and a difference is a bug."""
        return (self.rng.integers(-8, 9, shape) / 8).astype(np.float32)

    def constant(self, array: np.ndarray) -> str:
        """An initializer; returns its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def op(self, op: str, *inputs: str, named: bool = True, **attrs: Any) -> str:
        """Append a node to the last result; return its name in findings."""
        name = f"n{len(self.nodes)}" if named else ""
        result = f"t{len(self.nodes)}"
        number = sum(n.op_type == op for n in self.nodes)
        self.nodes.append(helper.make_node(op, [self.last, *inputs], [result], name=name, **attrs))
        self.last = result
        return name or f"{op}_{number}"

    def convolution(self, fault: str) -> None:
        """Append a convolution with this fault."""
        op = "Conv"
        if fault not in ("3d", "same-dynamic"):
            op = self.dice.weighted(Conv=3, ConvTranspose=2)
        conv = layer(self.dice, op, self.channels, self.extents, self.dynamic, fault)
        weight = self.values(*conv.weight)
        names = [self._fed(weight) if fault == "weights" else self.constant(weight)]
        if self.dice.chance(60):
            names.append(self.constant(self.values(conv.outputs)))
        node = self.op(conv.op, *names, named=not self.dice.chance(20), **conv.attrs)
        self.bad = node if fault else self.bad
        self.channels, self.extents = conv.outputs, conv.extents
        self.traits |= conv.traits

    def _fed(self, weight: np.ndarray) -> str:
        self.feeds["w"] = weight
        self.inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, weight.shape))
        return "w"

    def between(self) -> None:
        """Append an operator that may follow a convolution, or nothing."""
        shares = {"nothing": 6, "relu": 3, "batchnorm": 2, "affine": 2, "pool": 3, "pad": 3}
        kind = self.dice.weighted(**shares)
        self.traits.add(kind)
        getattr(self, f"_{kind}")()
        if self.dice.chance(8) and self.nodes:
            self.outputs.append((self.last, self.rank + 2))
            self.traits.add("output in the middle")

    def _nothing(self) -> None:
        pass

    def _relu(self) -> None:
        self.op("Relu")

    def _batchnorm(self) -> None:
        stats = [self.values(self.channels) for _ in range(3)]
        stats.append(np.abs(self.values(self.channels)) + np.float32(0.5))
        attrs = {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]} if self.opset < 6 else {}
        self.op("BatchNormalization", *map(self.constant, stats), epsilon=1e-3, **attrs)

    def _affine(self) -> None:
        op = self.dice.one_of(["Add", "Mul"])
        if self.opset < 7:
            self.op(op, self.constant(self.values(self.channels)), broadcast=1, axis=1)
        else:
            shape = (self.channels, *[1] * self.rank)
            self.op(op, self.constant(self.values(*shape)))

    def _pool(self) -> None:
        op = self.dice.one_of(["MaxPool", "AveragePool"])
        kernel = [self.dice.number(1, min(3, n)) for n in self.extents]
        strides = [self.dice.number(1, 2) for _ in kernel]
        mode = self.dice.weighted(NOTSET=4, SAME_UPPER=1, SAME_LOWER=1, VALID=1)
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            # With a stride beyond the kernel onnxruntime computes negative pads.
            strides = [1 if d else min(s, k) for s, k, d in
                       zip(strides, kernel, self.dynamic, strict=True)]  # fmt: skip
        pads = [self.dice.number(0, k - 1) if mode == "NOTSET" else 0 for k in kernel * 2]
        attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
        attrs |= {"pads": pads} if mode == "NOTSET" else {"auto_pad": mode}
        if op == "AveragePool" and self.opset >= 7 and self.dice.chance(50):
            attrs["count_include_pad"] = 1
        ceil = self.opset >= 10 and mode == "NOTSET" and self.dice.chance(25)
        attrs |= {"ceil_mode": 1} if ceil else {}
        slide = Slide(kernel, strides, [1] * self.rank, pads, mode, ceil)
        self.op(op, **attrs)
        self.extents = slide.counts(self.extents)

    def _pad(self) -> None:
        mode = self.dice.weighted(constant=4, value=1, reflect=1, edge=1, crop=1, channels=1)
        most = {"reflect": 1, "crop": 1}.get(mode, 2)
        sides = [(self.dice.number(0, most), self.dice.number(0, most))
                 for _ in self.extents]  # fmt: skip
        if mode == "reflect":
            sides = [(min(a, n - 1), min(b, n - 1)) for (a, b), n in
                     zip(sides, self.extents, strict=True)]  # fmt: skip
        if mode == "crop":
            sides = [(-a, b) if n > 1 else (0, b) for (a, b), n in
                     zip(sides, self.extents, strict=True)]  # fmt: skip
        if self.rank == 3:  # a padded axis could not be removed
            sides = [(0, 0) if n == 1 else pair for pair, n in
                     zip(sides, self.extents, strict=True)]  # fmt: skip
        extra = 1 if mode == "channels" else 0
        begins, ends = [0, 0, *(a for a, _ in sides)], [0, extra, *(b for _, b in sides)]
        self._padded(mode, begins + ends)
        self.channels += extra
        self.extents = [n + a + b for n, (a, b) in zip(self.extents, sides, strict=True)]

    def _padded(self, mode: str, amounts: list[int]) -> None:
        value = 0.5 if mode == "value" else 0.0
        attrs = {"mode": mode} if mode in ("reflect", "edge") else {}
        if self.opset < 11:
            key = "paddings" if self.opset < 2 else "pads"
            self.op("Pad", **{key: amounts}, value=value, **attrs)
            return
        inputs = [self.constant(np.asarray(amounts, np.int64))]
        if value:
            inputs.append(self.constant(np.asarray(value, np.float32)))
        self.op("Pad", *inputs, **attrs)

    def head(self) -> None:
        """Append a classifier to some of the graphs."""
        if not self.dice.chance(15):
            return
        self.traits.add("classifier")
        self.op("GlobalAveragePool")
        self.op("Flatten")
        wide = self.constant(self.values(self.channels, 3))
        self.op("Gemm", wide, self.constant(self.values(3)), **self._broadcast())
        self.outputs.append((self.last, 2))

    def _broadcast(self) -> dict[str, int]:
        return {"broadcast": 1} if self.opset < 7 else {}

    def model(self) -> onnx.ModelProto:
        """The finished model; before IR 4 every initializer is an input as well."""
        if (self.last, 2) not in self.outputs and (self.last, self.rank + 2) not in self.outputs:
            self.outputs.append((self.last, self.rank + 2))
        results = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [f"{n}_{i}" for i in range(rank)])
            for n, rank in self.outputs
        ]
        inputs = list(self.inputs)
        if OPSETS[self.opset] < 4:
            inputs += [
                helper.make_tensor_value_info(c.name, c.data_type, c.dims) for c in self.constants
            ]
        graph = helper.make_graph(self.nodes, "random", inputs, results, self.constants)
        imports = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=OPSETS[self.opset])


# Rule code that must report a fault, by name of the fault.
FAULTS = {"3d": "SHP001", "same-dynamic": "SHP012", "weights": "OPS003", "pads": "SHP004"}


class Case:
    """A model, its inputs, and the expected fault."""

    def __init__(self, opset: int, number: int, faulty: bool = False) -> None:
        sketch = _sketch(Dice(opset, number, faulty), opset, faulty)
        self.model, self.feeds = sketch.model(), sketch.feeds
        self.fault, self.node = sketch.fault, sketch.bad  # expected fault and its node
        self.traits = sketch.traits | ({f"fault {self.fault}"} if self.fault else set())
        self.text = f"Case({opset}, {number}, {faulty})\n{_text(self.model, sketch)}"


def for_all(
    opset: int, count: int, law: Callable[[Case], None], faulty: bool = False
) -> dict[str, int]:
    """Check a law on this many graphs.

    Returns:
        Number of graphs by trait.

    Raises:
        Exception: the error of the law, with a description of the graph.
    """
    counts: dict[str, int] = {}
    for number in range(count):
        case = Case(opset, number, faulty)
        for trait in case.traits:
            counts[trait] = counts.get(trait, 0) + 1
        try:
            law(case)
        except Exception as error:
            error.add_note(case.text)
            raise
    return counts


def _sketch(dice: Dice, opset: int, faulty: bool) -> Sketch:
    fault = dice.one_of(list(FAULTS)) if faulty else ""
    ranks = {"2": 9, "1": 6} | ({} if fault == "same-dynamic" else {"3": 5})
    rank = 3 if fault == "3d" else int(dice.weighted(**ranks))
    sketch = Sketch(dice, opset, rank, fault)
    count = dice.number(1, 4)
    # A layer before could make an axis removable, or its extent known; and no shape is defined
    # behind contradicting pads.
    where = {"3d": 0, "same-dynamic": 0, "pads": count - 1}.get(fault, dice.number(0, count - 1))
    if not fault and dice.chance(15):
        sketch.between()
    for number in range(count):
        sketch.convolution(fault if number == where else "")
        sketch.between()
    sketch.head()
    return sketch


def _text(model: onnx.ModelProto, sketch: Sketch) -> str:
    """The graph as text, one line per node, complete enough to build it by hand."""
    shapes = {c.name: list(c.dims) for c in model.graph.initializer}
    shapes |= {name: list(array.shape) for name, array in sketch.feeds.items()}
    head = f"opset {sketch.opset}, ir {model.ir_version}, x={sketch.dims} run with {sketch.shape}"
    lines = [f"{head}, fault {sketch.fault or 'none'} {sketch.bad}"]
    for node in model.graph.node:
        attrs = ", ".join(
            f"{a.name}={_shown(helper.get_attribute_value(a))}" for a in node.attribute
        )
        read = ", ".join(f"{n}{shapes.get(n, '')}" for n in node.input)
        lines.append(f"  {node.output[0]} = {node.op_type}({read}) {attrs}  # {node.name!r}")
    return "\n".join([*lines, f"  outputs {[o.name for o in model.graph.output]}"])


def _shown(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
