"""Tests of the examples that ``npuconv explain`` shows: the rule runs on each of them."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.parser
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from npuconv.rules import RULES, Rule
from npuconv.target import Target
from support.asserts import builtin, findings
from support.target_files import chip

OPSET = 17
_GIVEN = re.compile(r"(input|weight) (\w+): (\w+)\[([^\]]*)\](?: = (.*))?")
_SET_UP = re.compile(r"opset (\d+)")
_RESULT = re.compile(r"^(\w+) = ((?:\w+\.)*)\w+", re.MULTILINE)


def target_of(device: str) -> Target:
    """The built-in target, or a small one that says what is shown."""
    return chip("", also=yaml.safe_load(device)) if device else builtin()


def build(picture: str) -> onnx.ModelProto:
    """The model of a picture.

    Raises:
        onnx.parser.ParseError: nodes that are not written as ONNX writes them.
        ValueError: a line that is neither.
    """
    lines = picture.strip().splitlines()
    opset = next((int(found[1]) for line in lines if (found := _SET_UP.fullmatch(line))), OPSET)
    given = [found.groups() for line in lines if (found := _GIVEN.fullmatch(line))]
    nodes = "\n".join(line for line in lines if not (_GIVEN.match(line) or _SET_UP.match(line)))
    inputs = ", ".join(f"{t}[{dims}] {n}" if dims else f"{t}[] {n}"
                       for kind, n, t, dims, _ in given if kind == "input")  # fmt: skip
    results = _RESULT.findall(nodes)
    domains = {"": opset, **{domain.rstrip("."): 1 for _, domain in results if domain}}
    imports = ", ".join(f'"{domain}" : {version}' for domain, version in domains.items())
    text = f"<ir_version: 8, opset_import: [{imports}]>\n"
    text += f"picture ({inputs}) => ({results[-1][0]}) {{ {nodes} }}"
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for kind, name, dtype, dims, numbers in given:
        if kind == "weight":
            array = _weight(rng, dtype, dims, numbers)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    return _typed(model)


def _weight(rng: np.random.Generator, dtype: str, dims: str, numbers: str | None) -> np.ndarray:
    shape = [int(d) for d in dims.split(",")] if dims else []
    array = rng.uniform(-1, 1, shape)
    parts = [part.strip() for part in (numbers or "...").split(",")]
    first = [float(part) for part in parts if part != "..."]
    if parts[-1] == "...":
        array.reshape(-1)[: len(first)] = first
    else:
        array = np.broadcast_to(np.asarray(first if len(first) > 1 else first[0]), shape)
    kind = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(dtype.upper()))
    return np.ascontiguousarray(array).reshape(shape).astype(kind)


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The output gets the type that inference finds, or is float."""
    inferred = onnx.shape_inference.infer_shapes(model).graph.output[0].type
    if inferred.tensor_type.elem_type:
        model.graph.output[0].type.CopyFrom(inferred)
    else:
        rank = len(model.graph.input[0].type.tensor_type.shape.dim)
        kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [f"y{at}" for at in range(rank)])
        model.graph.output[0].type.CopyFrom(kind)
    return model


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
    target = target_of(example.silent_device or example.device)
    assert not findings(build(example.silent), rule.code, target)


@each_rule
def test_the_models_differ_and_are_small(rule: Rule):
    """Examples fit a terminal."""
    example = rule.example
    assert (example.fires, example.device) != (
        example.silent,
        example.silent_device or example.device,
    )
    for text in (example.fires, example.silent, example.device, example.silent_device):
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
