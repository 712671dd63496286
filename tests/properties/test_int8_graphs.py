"""Random small graphs in int8: what the device must never get wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuconv import executor
from npuconv.evaluate.simulator import as_float
from npuconv.model import query, save
from npuconv.model.core import Model, Node, Tensor
from npuconv.quantize.fake_quant import fake_quantized, quant_points
from npuconv.quantize.state import QuantState
from support.asserts import Passes, context, read, run_pass
from support.builders import Net
from support.dice import Dice
from support.plans import QUANTIZE, largest_step, prepare, random_feeds

pytestmark = pytest.mark.e2e

LOWER = ("lower-convolutions", "lower-passthrough")
SEEDS = st.integers(0, 2**31)
# With zero point 0 for every tensor, and with any.
TARGETS = pytest.mark.parametrize("target", ["npu-int8", "rknn"])
MANY, FEWER = settings(max_examples=40), settings(max_examples=20)


@dataclass(frozen=True)
class Value:
    """A tensor of a graph under construction: channels and side of its square maps."""

    name: str
    channels: int
    side: int


class Graph:
    """A random graph of convolutions, of what carries int8 on, and of the host's operators."""

    def __init__(self, seed: int) -> None:
        """Five to nine nodes after the first convolution."""
        self.dice = Dice(seed)
        self.net = Net(x=(1, 3, 9, 9))
        self.values = [self._conv(Value("x", 3, 9))]
        for _ in range(self.dice.number(4, 8)):
            kind = self.dice.weighted(conv=5, relu=3, clip=2, pool=1, pad=1, concat=2, host=2,
                                      add=1, split=1, turn=1)  # fmt: skip
            made = getattr(self, f"_{kind}")(self.dice.one_of(self.values[-3:]))
            self.values += made if isinstance(made, list) else [made]

    def model(self) -> onnx.ModelProto:
        """Make a model whose unread tensors are outputs."""
        read_ = {name for node in self.net.nodes for name in node.input}
        return self.net.output(*(v.name for v in self.values if v.name not in read_)).model()

    def _op(self, op: str, *inputs: str, **attrs: object) -> str:
        return self.net.op(op, *inputs, **attrs).last

    def _conv(self, source: Value) -> Value:
        depthwise = self.dice.chance(30)
        kernel = self.dice.one_of([1, 3]) if source.side >= 3 else 1
        pad = self.dice.number(0, 1) if kernel == 3 else 0
        rows = source.channels if depthwise else self.dice.number(2, 5)
        group = source.channels if depthwise else 1
        shape = (rows, source.channels // group, kernel, kernel)
        bias = self.dice.chance(70)
        name = self.net.conv(source.name, shape, group=group, pads=[pad] * 4, bias=bias).last
        return Value(name, rows, source.side + 2 * pad - kernel + 1)

    def _relu(self, source: Value) -> Value:
        return Value(self._op("Relu", source.name), source.channels, source.side)

    def _clip(self, source: Value) -> Value:
        low, high = self.dice.one_of([(0.0, 0.7), (0.0, 6.0), (-0.3, 0.5)])
        bounds = [self.net.constant(np.float32(v)) for v in (low, high)]
        return Value(self._op("Clip", source.name, *bounds), source.channels, source.side)

    def _pool(self, source: Value) -> Value:
        if source.side < 2:
            return self._relu(source)
        name = self._op("MaxPool", source.name, kernel_shape=[2, 2])
        return Value(name, source.channels, source.side - 1)

    def _pad(self, source: Value) -> Value:
        self.net.last = source.name
        name = self.net.pad([0, 0, 1, 1, 0, 0, 1, 1], self.dice.one_of([None, 0.0, 0.4])).last
        return Value(name, source.channels, source.side + 2)

    def _concat(self, source: Value) -> Value:
        other = self.dice.one_of([v for v in self.values if v.side == source.side] or [source])
        if other.channels == source.channels and self.dice.chance(30):
            name = self._op("Concat", source.name, other.name, axis=2)
            cut = [self.net.constant(np.asarray([v])) for v in (0, source.side, 2)]
            return Value(self._op("Slice", name, *cut), source.channels, source.side)
        name = self._op("Concat", source.name, other.name, axis=1)
        return Value(name, source.channels + other.channels, source.side)

    def _split(self, source: Value) -> Value | list[Value]:
        if source.channels < 2:
            return self._relu(source)
        parts = [1, source.channels - 1]
        sizes = self.net.constant(np.asarray(parts))
        stem = self.net.op("Split", source.name, sizes, axis=1, outputs=2).last
        return [Value(stem, 1, source.side), Value(f"{stem}_1", parts[1], source.side)]

    def _turn(self, source: Value) -> Value:
        there = self._op("Transpose", source.name, perm=[0, 2, 3, 1])
        back = self._op("Transpose", self._op("Relu", there), perm=[0, 3, 1, 2])
        return Value(back, source.channels, source.side)

    def _host(self, source: Value) -> Value:
        name = self._op(self.dice.one_of(["Sigmoid", "Tanh", "Neg"]), source.name)
        return Value(name, source.channels, source.side)

    def _add(self, source: Value) -> Value:
        alike = [v for v in self.values if (v.channels, v.side) == (source.channels, source.side)]
        name = self._op("Add", source.name, self.dice.one_of(alike or [source]).name)
        return Value(name, source.channels, source.side)


def converted(
    proto: onnx.ModelProto, target: str = "npu-int8"
) -> tuple[Model, Passes, onnx.ModelProto]:
    """The int8 model, its context, and the float model that rounds in the same places."""
    model, ctx = read(proto), context(target=target)
    graph = prepare(model, ctx)
    rounds = fake_quantized(graph.proto, quant_points(graph, QuantState(ctx.emission.encodings)))
    for name in (*QUANTIZE, *LOWER):
        run_pass(name, model, ctx)
    return model, ctx, rounds


def makers(tensor: Tensor) -> list[Node]:
    """Return the makers of integers, past passthrough operators."""
    found, stack, seen = [], [tensor], set()
    while stack:
        node = query.producer(stack.pop())
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.op in ("QuantizeLinear", "QLinearConv"):
            found.append(node)
        else:
            stack.extend(t for t in node.inputs if not query.is_constant(t))
    return found


@MANY
@given(SEEDS)
def test_what_is_padded_has_zero_point_0(seed: int) -> None:
    """The device fills with the stored integer 0, which must be the number 0 in every channel.

    A Pad between int8 tensors fills with one integer: 0 or the lowest, and it does.
    """
    proto = Graph(seed).model()
    model, ctx = read(proto), context()
    prepare(model, ctx)
    padded = [c for c in ctx.emission.plan.convolutions if any(query.attribute(c, "pads", ()))]
    for conv in padded:
        assert not ctx.emission.encodings[conv.inputs[0].name].zeros.any(), conv.name
    fills = {}
    pads = [node for node in ctx.emission.plan.passthrough if node.op == "Pad"]
    for node in [node for node in pads if not query.scalar_input(node, 2)]:  # with 0
        (fills[node.name],) = set(ctx.emission.encodings[node.outputs[0].name].zeros.tolist())
    assert set(fills.values()) <= {0, -128}
    for name in (*QUANTIZE, *LOWER):
        run_pass(name, model, ctx)
    for node in [node for node in model.nodes("Pad") if node.name in fills]:
        assert (query.scalar_input(node, 2) or 0) == fills[node.name], node.name
    # What is written: no zero point that a runtime would fill with instead.
    for conv in model.nodes("QLinearConv"):
        assert not conv.inputs[2].values.any()
        assert not conv.inputs[7].values.any()
        if any(query.attribute(conv, "pads", ())):
            for maker in makers(conv.inputs[0]):
                if maker.op == "QuantizeLinear":
                    assert not maker.inputs[2].values.any()


@TARGETS
@FEWER
@given(SEEDS)
def test_the_int8_model_is_the_float_model_with_its_roundings(target: str, seed: int) -> None:
    """Saturation, folded scales, moved zero points: what is left is next to nothing."""
    proto = Graph(seed).model()
    model, ctx, rounds = converted(proto, target)
    int8, step = save.to_proto(model), largest_step(ctx)
    feed = random_feeds(read(proto), 1)[0]
    float_ = executor.Session(proto, optimize=False).run(feed)
    real = executor.Session(int8, optimize=False).run(feed)
    same = executor.Session(rounds, optimize=False).run(feed)
    for name, exact in float_.items():
        size = float(np.abs(exact).max()) or 1.0
        # A bias, or a number between two integers, may fall the other way now and then.
        assert np.abs(real[name] - same[name]).mean() <= max(0.02 * size, 0.6 * step), name
        assert np.abs(real[name] - exact).mean() <= max(0.1 * size, 2 * step), name


@TARGETS
@FEWER
@given(SEEDS)
def test_the_runtime_and_the_emulated_device_agree(target: str, seed: int) -> None:
    """Exact integers wherever there are integers, on any processor."""
    proto = Graph(seed).model()
    model, _, _ = converted(proto, target)
    int8 = save.to_proto(model)
    onnx.checker.check_model(int8)
    feed = random_feeds(read(proto), 1)[0]
    one = executor.Session(int8, optimize=False).run(feed)
    # Not optimized either: onnxruntime 1.31 fuses a Pad with zeros into a MaxPool, which then
    # pads with the least number.
    other = executor.Session(as_float(int8), optimize=False).run(feed)
    for name in one:
        size = float(np.abs(one[name]).max()) or 1.0
        assert np.mean(np.abs(one[name] - other[name]) > 1e-4 * size) < 0.02, name
