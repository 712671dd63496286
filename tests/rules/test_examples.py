"""Tests of the examples that ``npuconv explain`` shows: the rule runs on each of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from npuconv.rules import RULES, Rule
from support.asserts import findings
from support.pictures import build, target_of

each_rule = pytest.mark.parametrize("rule", list(RULES), ids=lambda rule: rule.name)


@each_rule
def test_the_rule_fires_on_the_first_model(rule: Rule):
    """The target is the one that is shown."""
    example = rule.example
    assert findings(build(example.fires), rule.code, target_of(example.device))


@each_rule
def test_the_rule_is_silent_on_the_second_model(rule: Rule):
    """The target is the same, or another where the target differs."""
    example = rule.example
    target = target_of(example.other or example.device)
    assert not findings(build(example.silent), rule.code, target)


@each_rule
def test_the_models_differ_and_are_small(rule: Rule):
    """Examples fit a terminal."""
    example = rule.example
    assert (example.fires, example.device) != (example.silent, example.other or example.device)
    for text in (example.fires, example.silent, example.device, example.other):
        assert len(text.splitlines()) <= 10
        assert max(map(len, text.splitlines()), default=0) <= 76


def test_building_an_example():
    """Opset, inputs, weights with and without numbers, and nodes of any domain."""
    proto = build(
        """
opset 13
input x: float[N,3,8,8]
weight w: float[2,3,1,1] = 7, ...
weight all: float[2] = 1.5
weight each: int64[2] = 3, 4
a = Conv <strides = [2, 2]> (x, w, all)
y = org.example.Twice (a, each)
"""
    )
    assert {o.domain: o.version for o in proto.opset_import} == {"": 13, "org.example": 1}
    assert [n.op_type for n in proto.graph.node] == ["Conv", "Twice"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    values = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    assert values["w"].shape == (2, 3, 1, 1)
    assert values["w"].dtype == np.float32
    assert values["w"].reshape(-1)[0] == 7
    assert abs(values["w"].reshape(-1)[1:]).max() < 1
    assert values["all"].tolist() == [1.5, 1.5]
    assert values["each"].tolist() == [3, 4]
    assert build("input x: float[2]\ny = Relu (x)") == build("input x: float[2]\ny = Relu (x)")


def test_text_that_is_no_example():
    """The error is that of the parser."""
    with pytest.raises(onnx.parser.ParseError):
        build("input x: float[2]\nnonsense\ny = Relu (x)")
