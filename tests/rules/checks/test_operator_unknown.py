"""Tests of operator-unknown."""

from __future__ import annotations

from onnx import helper

from support.asserts import finding
from support.builders import Net

CODE = "OPS002"
X = (1, 3, 8, 8)


def local():
    proto = Net(x=X).op("Twice", domain="org.example").model()
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    imports = [helper.make_opsetid("", 17)]
    proto.functions.append(
        helper.make_function("org.example", "Twice", ["a"], ["b"], body, imports)
    )
    return proto


FIRES = [
    lambda: Net(x=X).op("Mystery", name="m", domain="org.example").model(),
    lambda: Net(x=X).conv("x").op("Relu", domain="org.example").model(),
]
SILENT = [
    lambda: Net(x=X).op("Relu").model(),
    lambda: Net(x=X).op("Gelu", domain="com.microsoft").model(),
    lambda: Net(x=(1, 4)).op("Scaler", domain="ai.onnx.ml", offset=[0.0], scale=[1.0]).model(),
    local,
]


def test_it_names_the_domain():
    """The domain is the unknown part."""
    found = finding(FIRES[0](), CODE)
    assert found.message == "Mystery belongs to domain 'org.example', which no runtime here runs"
    assert (found.node, found.op_type) == ("m", "org.example.Mystery")
    assert found.value == "org.example"


def test_a_function_of_another_name_does_not_help():
    """The model must carry this one."""
    proto = local()
    proto.functions[0].name = "Thrice"
    assert finding(proto, CODE).value == "org.example"
