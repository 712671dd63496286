"""Small models that ask for terabytes or for years."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hostile.case import Case, Cases, model
from support.builders import Net

X = (1, 3, 8, 8)
_SIZES = {"40-gb": 10**10, "4-pb": 10**15, "overflowing": 2**62}


def cases() -> Cases:
    """Every bomb."""
    for name, size in _SIZES.items():
        yield from _constant(name, size)
        yield from _dynamic(name, size)
    yield from _doubling()
    yield from _loops()
    yield from _nested()


def _case(name: str, net: Net, attacks: str = "folding, memory") -> Case:
    return Case(f"bomb/{name}", attacks, model(net.unchecked_model()))


def _ints(net: Net, *values: int) -> str:
    return net.constant(np.array(values, np.int64))


def _after(net: Net) -> Net:
    """Put a convolution behind the bomb, so that it is not dead code."""
    return net.op("ReduceMax", net.last, keepdims=0).op("Add", "conv", net.last)


def _net() -> Net:
    net = Net(x=X).op("Identity", "x", to="seen")
    return net.op("Conv", "x", net.random(4, 3, 3, 3), to="conv")


def _constant(name: str, size: int) -> Cases:
    """Yield bombs of constants: whoever folds them pays."""
    net = _net()
    yield _case(f"constant-of-shape-{name}", _after(net.op("ConstantOfShape", _ints(net, size))))
    net = _net()
    one = net.constant(np.float32([1]))
    yield _case(f"expand-{name}", _after(net.op("Expand", one, _ints(net, size))))
    net = _net()
    one = net.constant(np.float32([1]))
    yield _case(f"tile-{name}", _after(net.op("Tile", one, _ints(net, size))))
    net = _net()
    ends = [net.constant(np.float32(v)) for v in (0, size, 1)]
    yield _case(f"range-{name}", _after(net.op("Range", *ends)))
    net = _net()
    one = net.constant(np.float32([1]))
    yield _case(f"pad-{name}", _after(net.op("Pad", one, _ints(net, size, 0))))
    net = _net()
    place = _ints(net, 1)
    depth, both = _ints(net, size), net.constant(np.float32([0, 1]))
    yield _case(f"one-hot-{name}", _after(net.op("OneHot", place, depth, both)))
    net = _net()
    net.nodes.append(helper.make_node("RandomNormal", [], ["r"], shape=[size]))
    net.last = "r"
    yield _case(f"random-{name}", _after(net))


def _dynamic(name: str, size: int) -> Cases:
    """Yield bombs of the input: whoever runs the model pays."""
    net = _net()
    yield _case(f"input-expanded-{name}", _after(net.op("Expand", "x", _ints(net, size, 1, 1, 1))))
    net = _net()
    yield _case(f"input-tiled-{name}", _after(net.op("Tile", "x", _ints(net, size, 1, 1, 1))))
    net = _net()
    pads = _ints(net, *([0] * 6), size, size)
    yield _case(f"input-padded-{name}", _after(net.op("Pad", "x", pads)))
    net = _net()
    scales = net.constant(np.float32([1, 1, min(size, 1e30), 1]))
    yield _case(f"input-resized-{name}", _after(net.op("Resize", "x", "", scales)))
    net = _net()
    many = min(size, 2**62)
    net.op("ConvTranspose", "x", net.random(3, 1, 1, 1), strides=[many, 1])
    yield _case(f"transposed-stride-{name}", _after(net))
    net = _net()
    net.op("Conv", "x", net.random(1, 3, 1, 1), pads=[many // 4] * 4)
    yield _case(f"conv-pads-{name}", _after(net))
    net = _net()
    net.op("MaxPool", "x", kernel_shape=[1, 1], pads=[0, 0, many, 0])
    yield _case(f"pool-pads-{name}", _after(net))


def _doubling() -> Cases:
    """Each node doubles what the last one made; sixty of them are enough."""
    for op, attrs in {"Concat": {"axis": 0}, "Einsum": {"equation": "nchw,mchw->nmhw"}}.items():
        net = _net()
        net.last = "x"
        for _ in range(60):
            net.op(op, net.last, net.last, **attrs)
        yield _case(f"doubling-{op.lower()}", _after(net))
    net = _net()
    net.constant(np.ones(2, np.float32), "two")
    net.last = "two"
    for _ in range(60):
        net.op("Concat", net.last, net.last, axis=0)
    yield _case("doubling-constants", _after(net))
    net = _net()
    net.constant(np.ones((20_000, 1), np.float32), "column")
    net.constant(np.ones((1, 20_000), np.float32), "row")
    yield _case("outer-product", _after(net.op("MatMul", "column", "row")))
    yield Case("bomb/calls-of-calls", "inlining", model(_calls(40)))


def _calls(levels: int) -> onnx.ModelProto:
    """Function k calls function k - 1 twice: 2 to the 40 nodes when written out."""
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    made = []
    for level in range(levels):
        op, domain = (f"F{level - 1}", "f") if level else ("Relu", "")
        nodes = [helper.make_node(op, ["a"], ["m"], domain=domain)]
        nodes.append(helper.make_node(op, ["m"], ["b"], domain=domain))
        made.append(helper.make_function("f", f"F{level}", ["a"], ["b"], nodes, opset))
    net = Net(x=X).conv("x").op(f"F{levels - 1}", domain="f")
    proto = net.unchecked_model()
    proto.functions.extend(made)
    return proto


def _loops() -> Cases:
    for name, trips in {"endless": 2**62, "growing": 64}.items():
        value = helper.make_tensor_value_info
        nodes = [helper.make_node("Identity", ["go"], ["goes"])]
        op = ("Concat", {"axis": 0}) if name == "growing" else ("Add", {})
        nodes.append(helper.make_node(op[0], ["v", "v"], ["w"], **op[1]))
        body = helper.make_graph(
            nodes,
            "body",
            [value("i", 7, []), value("go", 9, []), value("v", 1, None)],
            [value("goes", 9, []), value("w", 1, None)],
        )
        net = _net()
        count, start = _ints(net, trips), net.constant(np.array(True))
        trip = net.op("Squeeze", count).last
        net.op("Loop", trip, start, "x", body=body)
        proto = _after(net).unchecked_model()
        yield Case(f"bomb/loop-{name}", "time, memory", model(proto), seconds=15)


def _nested() -> Cases:
    """A constant inside a constant's attribute, and text that grows."""
    values = numpy_helper.from_array(np.zeros(8_000_000, np.int8))
    net = _net()
    net.nodes.append(helper.make_node("Constant", [], ["k"], value=values))
    net.op("Cast", "k", to="kf")
    net.nodes[-1].attribute.append(helper.make_attribute("to", 1))
    yield _case("constant-node-8-mb", _after(net))
    net = _net()
    net.nodes.append(helper.make_node("Constant", [], ["k"], value_floats=[0.5] * 500_000))
    net.last = "k"
    yield _case("constant-floats", _after(net))
    net = Net(x=X)
    net.op("Conv", "x", net.random(1, 3, 1, 1), kernel_shape=[1, 1])
    for _ in range(64):
        net.op("DepthToSpace", net.last, blocksize=2**31 - 1)
    yield _case("depth-to-space", net)
