"""Tests of eliminate-cast."""

from __future__ import annotations

from onnx import TensorProto, helper

from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "eliminate-cast"


def cast(net: Net, kind: int = TensorProto.FLOAT) -> Net:
    """Append a Cast (``to`` is taken by the builder)."""
    result = f"cast{len(net.nodes)}"
    net.nodes.append(helper.make_node("Cast", [net.last], [result], name=result, to=kind))
    net.last = result
    return net


FIRES = [
    lambda: cast(Net(x=(1, 3, 8, 8)).op("Relu")).op("Neg").model(),
    lambda: cast(Net(x=(1, 3, 8, 8)).conv()).model(),
    lambda: cast(cast(Net(x=("N", 4)).op("Relu"))).model(),
    lambda: cast(cast(Net(x=("N", 4)), TensorProto.DOUBLE)).op("Relu").model(),
]
SILENT = [
    lambda: cast(cast(Net(x=(1, 4)), TensorProto.DOUBLE)).model(),
    lambda: cast(Net(x=(1, 4))).model(),
    lambda: Net(x=(1, 4)).op("Relu").model(),
    lambda: cast(cast(Net(x=(1, 4)), TensorProto.FLOAT16)).op("Relu").model(),
    lambda: cast(cast(Net(x=(1, 4)), TensorProto.INT64)).op("Relu").model(),
]


def test_the_name_of_an_output_stays():
    """The convolution before it makes the output then."""
    proto = FIRES[1]()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [n.op for n in model.nodes()] == ["Conv"]
    assert model.graph.outputs[0].name == proto.graph.output[0].name
    same_numbers(proto, model)


def test_a_chain_goes_at_once():
    """Both Casts go in one run, each recorded and measured."""
    model, ctx = read(FIRES[2]()), context()
    assert run_pass(NAME, model, ctx) == 2
    assert [r.before for r in ctx.rewrites] == ["Cast to float32"] * 2
    assert [r.max_abs_difference for r in ctx.rewrites] == [0.0, 0.0]


def test_a_wider_type_and_back():
    """Numbers are not rounded on the way; others may still read the wider tensor."""
    net = cast(Net(x=(1, 4)), TensorProto.DOUBLE)
    wide = net.last
    proto = cast(net).op("Relu", to="y").op("Neg", wide, to="z").output("y").model()
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.DOUBLE, [1, 4]))
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    assert [n.op for n in model.nodes()] == ["Cast", "Relu", "Neg"]
    assert [r.before for r in ctx.rewrites] == ["Cast and Cast"]
    same_numbers(proto, model)


def test_an_input_that_is_also_an_output_keeps_its_cast():
    """Both names belong to the user, so something must copy."""
    model, ctx = read(SILENT[1]()), context()
    assert run_pass(NAME, model, ctx) == 0
    (refusal,) = ctx.refusals
    assert refusal.node == "cast0"
    assert "copies an input or a shared tensor" in refusal.reason


def test_a_cast_to_another_type_is_no_near_miss():
    """A cast to another type is not mentioned."""
    assert refusals(NAME, cast(Net(x=(1, 4)), TensorProto.DOUBLE)) == []
