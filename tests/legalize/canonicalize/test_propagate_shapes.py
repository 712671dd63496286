"""Tests of propagate-shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from npuconv.model import query
from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "propagate-shapes"
DYNAMIC = ("N", 3, 8, 6)


def ints(net: Net, *values: int) -> str:
    """An int64 constant of one dimension."""
    return net.constant(np.array(values, np.int64))


def scalar(net: Net, value: int) -> str:
    return net.constant(np.int64(value))


def taken(net: Net, *places: int, source: str = "x") -> str:
    """Some extents of a tensor, as PyTorch takes them out."""
    net.op("Shape", source)
    return net.op("Gather", net.last, ints(net, *places)).last


def cast(net: Net, source: str, kind: int) -> Net:
    """Append a Cast, whose attribute is called as an argument of the builder is."""
    net.op("Cast", source or net.last)
    net.nodes[-1].attribute.append(helper.make_attribute("to", kind))
    return net


def flattened(batch: int | str = "N", *, opset: int = 17) -> Net:
    """``x.reshape(x.shape[0], -1)``."""
    net = Net(x=(batch, 3, 4, 5), opset=opset)
    net.op("Concat", taken(net, 0), ints(net, -1), axis=0)
    return net.op("Reshape", "x", net.last, name="reshape")


def padded() -> Net:
    """Amounts that are computed from the height, which is known."""
    net = Net(x=DYNAMIC)
    amount = net.op("Div", taken(net, 2), ints(net, 4)).last
    zeros = ints(net, 0, 0)
    net.op("Concat", zeros, amount, ints(net, 0), zeros, amount, ints(net, 0), axis=0)
    return net.op("Pad", "x", net.last, name="pad").conv()


def resized() -> Net:
    """Sizes as an exporter computes them, by way of float."""
    net = Net(x=DYNAMIC)
    cast(net, taken(net, 2, 3), TensorProto.FLOAT).op("Mul", net.last, net.constant(2.0))
    doubled = cast(net.op("Floor"), "", TensorProto.INT64).last
    net.op("Concat", taken(net, 0, 1), doubled, axis=0)
    return net.op("Resize", "x", "", "", net.last, mode="nearest")


def cropped() -> Net:
    """A window whose end is computed."""
    net = Net(x=DYNAMIC)
    end = net.op("Sub", taken(net, 3), ints(net, 2)).last
    return net.op("Slice", "x", ints(net, 1), end, ints(net, 3))


def nothing_left() -> Net:
    """``d - d`` of an extent that nobody knows."""
    net = Net(x=("N", 3, "H", 6)).op("Relu", "x", to="y")
    gap = net.op("Sub", taken(net, 2), taken(net, 2, source="y")).last
    net.op("Concat", gap, ints(net, 1), axis=0)
    zeros, tail = ints(net, 0, 0), net.last
    net.op("Concat", zeros, tail, zeros, tail, axis=0)
    return net.op("Pad", "y", net.last)


def expanded() -> Net:
    """Expand to the batch it has, along new channels."""
    net = Net(x=("N", 1, 6))
    net.op("Concat", taken(net, 0), ints(net, 4, 6), axis=0)
    return net.op("Expand", "x", net.last, name="expand")


def compared() -> Net:
    """Build PyTorch's ``expand(-1, 4, 6)``: a Where that lets an extent stay."""
    net = Net(x=("N", 1, 6))
    net.op("Concat", taken(net, 0), ints(net, 4, 6), axis=0)
    asked = net.last
    net.op("Equal", asked, ints(net, -1, -1, -1))
    return net.op("Where", net.last, ints(net, 1, 1, 1), asked).op("Expand", "x", net.last)


def attention() -> Net:
    """Heads split off and put back: batch and length are dynamic."""
    net = Net(x=("N", "T", 12))
    both = taken(net, 0, 1)
    heads = net.op("Concat", both, ints(net, 3, 4), axis=0).last
    net.op("Reshape", "x", heads).op("Transpose", perm=[0, 2, 1, 3]).op("Relu")
    net.op("Transpose", perm=[0, 2, 1, 3])
    back = net.last
    flat = net.op("Concat", both, ints(net, 12), axis=0).last
    return net.op("Reshape", back, flat)


def counted() -> Net:
    """A target from Size and a product of extents."""
    net = Net(x=("N", 4, 5), y=(2, 3))
    net.op("Size", "y").op("Reshape", net.last, ints(net, 1), to="six")
    area = net.op("ReduceProd", taken(net, 1, 2), keepdims=1).last
    net.op("Reshape", "y", "six").output()
    net.op("Concat", ints(net, -1), area, axis=0).op("Reshape", "x", net.last).output()
    return net


FIRES = [
    lambda: flattened().model(),
    lambda: flattened(2).model(),
    lambda: flattened(opset=11).model(),
    lambda: padded().model(),
    lambda: resized().model(),
    lambda: cropped().model(),
    lambda: nothing_left().model(),
    lambda: expanded().model(),
    lambda: compared().model(),
    lambda: attention().model(),
    lambda: counted().model(),
]


def two_unknown() -> Net:
    """A target of which two extents are new."""
    net = Net(x=(1, "A", "B"))
    net.op("Concat", taken(net, 2, 0, 1), axis=0)
    return net.op("Reshape", "x", net.last, name="reshape")


def unnamed(x=("?", 3, "?")) -> Net:
    """The difference of two extents that are called the same, and are not."""
    net = Net(x=x, z=("?", 3))
    gap = net.op("Sub", taken(net, 0), taken(net, 2)).last
    return net.op("Add", gap, gap).op("Slice", "z", net.last, ints(net, 9), ints(net, 0))


def shape_is_output() -> Net:
    """The arithmetic is what the model is asked for."""
    net = Net(x=DYNAMIC)
    taken(net, 2, 3)
    return net.output()


def beyond() -> Net:
    """An index that no extent has, behind a branch that is never read."""
    net = Net(x=("N", 3)).op("Relu", "x", to="y").output()
    net.op("Shape", "x")
    net.op("Gather", net.last, ints(net, 7)).op("Add", net.last, ints(net, 1)).output()
    return net


SILENT = [
    lambda: Net(x=DYNAMIC).conv().model(),
    lambda: two_unknown().model(),
    lambda: unnamed().model(),
    lambda: shape_is_output().model(),
    lambda: beyond().model(),
]


def last_inputs(model: Any, op: str, index: int) -> list[int]:
    node = model.nodes(op)[-1]
    return query.constant_input(node, index).tolist()


@pytest.mark.parametrize(
    ("build", "op", "index", "values"),
    [
        (flattened, "Reshape", 1, [0, -1]),
        (padded, "Pad", 1, [0, 0, 2, 0, 0, 0, 2, 0]),
        (cropped, "Slice", 2, [4]),
        (nothing_left, "Pad", 1, [0, 0, 0, 1, 0, 0, 0, 1]),
        (expanded, "Expand", 1, [1, 4, 6]),
        (compared, "Expand", 1, [1, 4, 6]),
        (attention, "Reshape", 1, [0, 0, 12]),
        (counted, "Reshape", 1, [-1, 20]),
    ],
)
def test_what_becomes_constant(build, op, index, values):
    """The arithmetic is gone, and what it made is written down."""
    model, ctx = read(build().model()), context()
    assert run_pass(NAME, model, ctx) >= 1
    assert not model.nodes("Shape", "Gather", "Concat")
    assert last_inputs(model, op, index) == values
    assert all(r.reference == "onnxruntime" and r.max_abs_difference == 0 for r in ctx.rewrites)
    same_numbers(build().model(), model)


def test_only_a_part_of_the_sizes_is_known():
    """Height and width become constants; the batch is still asked for."""
    model, ctx = read(resized().model()), context()
    assert run_pass(NAME, model, ctx) == 1
    assert [n.op for n in model.nodes()] == ["Shape", "Gather", "Concat", "Resize"]
    (record,) = ctx.rewrites
    assert record.before == "Shape + Gather + Cast x 2 + Mul + Floor"
    assert record.after == "the constant [16, 12]"


def test_what_is_left_says_why():
    """Two new extents cannot be written with one -1."""
    assert refusals(NAME, two_unknown()) == [
        ("reshape", "it asks for [?, 1, ?]: too much of that is known at run time only")
    ]


def test_the_name_of_no_name():
    """``?`` twice is two extents, also in one input; a name given twice is doubted."""
    for dims in (("?", 3, "?"), ("None", 3, "None"), ("n", 3, "n"), (None, 3, None)):
        assert run_pass(NAME, read(unnamed(dims).model())) == 0
    assert run_pass(NAME, read(nothing_left().model())) == 1


def test_an_output_of_known_elements_is_still_made():
    """Its readers need not wait for it; the model gives it as before."""
    net = Net(x=DYNAMIC)
    height = taken(net, 2)
    net.output(height).op("Concat", ints(net, 0, 3), height, ints(net, 6), axis=0)
    proto = net.op("Reshape", "x", net.last).output().model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [n.op for n in model.nodes()] == ["Shape", "Gather", "Reshape"]
    assert run_pass(NAME, model) == 0
    same_numbers(proto, model)


def test_allowzero_keeps_its_meaning():
    """An extent of 0 with allowzero means no cells, and copies nothing."""
    net = Net(x=("N", 3, 4))
    net.op("Concat", taken(net, 0), ints(net, 12), axis=0)
    assert run_pass(NAME, read(net.op("Reshape", "x", net.last, allowzero=1).model())) == 0


def test_shapes_follow():
    """Nodes behind a Reshape to a constant have extents."""
    net = flattened()
    model = read(net.op("Gemm", net.last, net.random(60, 7)).model())
    run_pass(NAME, model)
    assert query.shape(model.nodes("Reshape")[0].outputs[0]) == ("N", 60)
