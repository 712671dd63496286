"""Int8 operators between conversions: which are found, and what they read."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from npuconv.emit import keys
from npuconv.emit.int8_operators import Int8Graph, int8_operators
from support.int8_operators import CASES, FINE, MADE, WIDE


@pytest.mark.parametrize("name", CASES)
def test_operators_are_found_with_their_scales(name):
    """The result is the int8 tensor; what is between conversions is inside."""
    case = CASES[name]
    found = int8_operators(case.model())
    one = found.by_result["y"]
    assert (one.op, one.name) == (case.op, "op")
    assert one.sources == tuple(f"x{k}" for k in range(len(case.scales) - 1))
    wanted = [(np.float32(at.scale), at.zero) for at in case.scales]
    assert [(np.float32(at.scale), at.zero) for at in one.scales] == wanted
    assert {"f", "d0"} <= found.inside
    assert set(one.constants) == {f"x{k}" for k in case.constants}


def test_lists_become_attributes():
    """Axes, slopes, factors and sizes are no tensors of the device."""
    seen = {name: int8_operators(CASES[name].model()).by_result["y"].attributes for name in CASES}
    assert seen["mean"]["axes"].tolist() == [2, 3]
    assert seen["prelu"]["alpha"] == pytest.approx([0.3])
    assert seen["resize"]["scales"].tolist() == [1, 1, 2, 2]
    assert seen["resize-corners"]["sizes"].tolist() == [1, 3, 5, 12]


def test_operators_of_the_host_are_not_found():
    """The metadata say which the device computes; others may stand between conversions, too."""
    model = CASES["add"].model()
    helper.set_model_props(model, {keys.OPERATORS: "another"})
    assert (int8_operators(model).by_result, int8_operators(model).inside) == ({}, frozenset())


def test_what_others_read_is_not_inside():
    """A dequantized tensor that is an output, or that another node reads, must be made."""
    model = CASES["add"].model()
    model.graph.node.append(helper.make_node("Neg", ["d0"], ["n"]))
    assert int8_operators(model).inside == {"d1", "f"}
    model.graph.output.append(helper.make_empty_tensor_value_info("d1"))
    assert int8_operators(model).inside == {"f"}


def test_scales_per_channel_are_none():
    """TFLite's operators have one scale for a tensor."""
    model = CASES["add"].model()
    (scale,) = [t for t in model.graph.initializer if t.name == "s1"]
    scale.CopyFrom(helper.make_tensor("s1", 1, [3], [1.0, 2.0, 3.0]))
    assert int8_operators(model).by_result == {}


def test_integer_operators_of_onnxruntime():
    """QLinearAdd and QLinearConcat name their scales in another order."""
    add = helper.make_node("QLinearAdd", ["x0", "s0", "z0", "x1", "s1", "z1", "s2", "z2"], ["y"])
    concat = helper.make_node("QLinearConcat", ["s2", "z2", *add.input[:6]], ["y"], axis=1)
    graph = Int8Graph(CASES["add"].model().graph)
    for node, op in ((add, "Add"), (concat, "Concat")):
        one = graph.read(node)
        assert one is not None
        assert (one.op, one.sources, one.result) == (op, ("x0", "x1"), "y")
        assert [at.zero for at in one.scales] == [WIDE.zero, FINE.zero, MADE.zero]
