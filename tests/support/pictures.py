"""The examples of rules as models: what ``npuconv explain`` shows is built here and judged.

A picture is a line for each tensor that is given, then nodes as ``onnx.parser`` reads them:

    opset 17
    input x: float[1,3,8,8]
    weight w: float[4,3,3,3] = 100, ...
    y = Conv <group = 1> (x, w)

Numbers that are not written are random between -1 and 1; one number is all of them.
"""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.parser
import yaml
from onnx import TensorProto, helper, numpy_helper

from npuconv.target import Target
from support.asserts import builtin
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
