"""Tests of shape arithmetic on guessed extents: known elements are right for any extent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from npuconv import executor, limits
from npuconv.legalize.tools import shape_values
from npuconv.legalize.tools.shape_values import Guesses
from npuconv.model import shapes

DIMS = ("N", 3, "H", 5)
SIZES = ({"N": 2, "H": 7}, {"N": 1, "H": 4}, {"N": 9, "H": 1})
N = H = None  # elements that depend on an open extent


class Arithmetic:
    """Nodes that start at the shape ``s`` of the input ``x``."""

    def __init__(self, opset: int = 18) -> None:
        self.opset, self.nodes, self.constants = opset, [], []
        self.op("Shape", "x", made="s")

    def op(self, op: str, *inputs: Any, made: str = "", count: int = 1, **attrs: Any) -> str:
        """Append a node; an input that is no name is a constant."""
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        stem = made or f"t{len(self.nodes)}"
        outputs = [stem + (f"_{i}" if i else "") for i in range(count)]
        node = helper.make_node(op, names, outputs, name=stem)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attrs.items())
        self.nodes.append(node)
        return stem

    def constant(self, values: Any) -> str:
        """An initializer; returns its name."""
        array = np.asarray(values)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def model(self):
        """Every tensor is an output, so that a runtime shows what it is."""
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, DIMS)]
        names = [name for node in self.nodes for name in node.output]
        outputs = [helper.make_empty_tensor_value_info(name) for name in names]
        graph = helper.make_graph(self.nodes, "arithmetic", inputs, outputs, self.constants)
        imports = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def evaluated(chain: Arithmetic) -> dict[str, Guesses]:
    """Values of each tensor, by name."""
    values = shape_values.evaluate(read_with_types(chain))
    return {guesses.tensor.name: guesses for guesses in values.guesses.values()}


def read_with_types(chain: Arithmetic):
    """A Model; outputs get their types by inference."""
    return loaded(chain.model())


def loaded(proto):
    from npuconv.model import load

    try:
        inferred = shape_inference.infer_shapes(proto, data_prop=True)
    except shape_inference.InferenceError:
        inferred = proto
    known = {info.name: info for info in inferred.graph.output}
    for info in proto.graph.output:
        if known[info.name].type.tensor_type.HasField("shape"):
            info.CopyFrom(known[info.name])
        else:
            kind = known[info.name].type.tensor_type.elem_type or TensorProto.INT64
            info.CopyFrom(helper.make_tensor_value_info(info.name, kind, ["?"]))
    # What is refused of a stranger still has to be reckoned with rightly.
    with limits.applied(limits.Limits(tensor_mib=2**200)):
        model = load.load(proto)
    shapes.infer(model)
    return model


def known(guesses: Guesses) -> np.ndarray:
    """Elements that are known; None for the others."""
    return np.where(shape_values.is_known(guesses.array), guesses.array[0], None)


def hold(chain: Arithmetic) -> dict[str, list[Any]]:
    """Run the arithmetic on real inputs, and compare every known element."""
    claims = {name: known(guesses) for name, guesses in evaluated(chain).items()}
    proto = chain.model()
    for sizes in SIZES:
        feeds = {"x": np.zeros([sizes.get(d, d) for d in DIMS], np.float32)}
        values = executor.Session(proto, threads=1, optimize=False).run(feeds)
        for name, elements in claims.items():
            assert elements.shape == values[name].shape, name
            pairs = zip(elements.flat, values[name].reshape(-1).tolist(), strict=True)
            assert all(element is None or element == value for element, value in pairs), name
    return {name: elements.tolist() for name, elements in claims.items()}


Build = Callable[[Arithmetic], str]
i32, f32, f16 = np.int32, np.float32, np.float16
CASES: list[tuple[Build, Any]] = [
    (lambda a: a.op("Identity", "s"), [N, 3, H, 5]),
    (lambda a: a.op("Shape", "x", start=1, end=-1), [3, H]),
    (lambda a: a.op("Shape", "x", start=-2), [H, 5]),
    (lambda a: a.op("Shape", "x", start=-9, end=99), [N, 3, H, 5]),
    (lambda a: a.op("Shape", a.op("Relu", "x"), start=0, end=1), [N]),
    (lambda a: a.op("Gather", "s", np.int64(-1)), 5),
    (lambda a: a.op("Gather", "s", np.int64(0)), N),
    (lambda a: a.op("Gather", "s", [[3, 1]]), [[5, 3]]),
    (lambda a: a.op("Slice", "s", [-1], [-(2**63)], [0], [-1]), [5, H, 3, N]),
    (lambda a: a.op("Slice", "s", [1], [2**63 - 1]), [3, H, 5]),
    (lambda a: a.op("Slice", "s", [9], [-9], [-1], [-2]), [5, 3]),
    (lambda a: a.op("Slice", "s", [-9], [2]), [N, 3]),
    (lambda a: a.op("Concat", "s", [7], "s", axis=-1), [N, 3, H, 5, 7, N, 3, H, 5]),
    (lambda a: a.op("Split", "s", axis=0, num_outputs=2, count=2), [N, 3]),
    (lambda a: a.op("Split", "s", [1, 3], count=2), [N]),
    (lambda a: a.op("Unsqueeze", "s", [0, -1]), [[[N], [3], [H], [5]]]),
    (lambda a: a.op("Squeeze", a.op("Unsqueeze", "s", [0]), [-2]), [N, 3, H, 5]),
    (lambda a: a.op("Squeeze", a.op("Gather", "s", [1])), 3),
    (lambda a: a.op("Transpose", a.op("Reshape", "s", [2, -1])), [[N, H], [3, 5]]),
    (lambda a: a.op("Transpose", a.op("Reshape", "s", [2, -1]), perm=[0, 1]), [[N, 3], [H, 5]]),
    (lambda a: a.op("Reshape", a.op("Reshape", "s", [2, 2]), [0, 1, -1]), [[[N, 3]], [[H, 5]]]),
    (lambda a: a.op("Expand", a.op("Gather", "s", [1]), [2, 2]), [[3, 3], [3, 3]]),
    (lambda a: a.op("Tile", a.op("Gather", "s", [1, 2]), [2]), [3, H, 3, H]),
    (lambda a: a.op("ConstantOfShape", a.op("Gather", "s", [1])), [0.0, 0.0, 0.0]),
    (lambda a: a.op("Add", "s", [1, 1, 1, 1]), [N, 4, H, 6]),
    (lambda a: a.op("Sub", "s", "s"), [0, 0, 0, 0]),
    (lambda a: a.op("Sub", a.op("Add", "s", [4, 4, 4, 4]), "s"), [4, 4, 4, 4]),
    (lambda a: a.op("Sub", a.op("Mul", "s", np.int64(2)), "s"), [N, 3, H, 5]),
    (lambda a: a.op("Mul", "s", [2, 2, 0, -1]), [None, 6, 0, -5]),
    (lambda a: a.op("Mul", a.op("Gather", "s", [0]), a.op("Gather", "s", [2])), [None]),
    (lambda a: a.op("Div", a.op("Mul", "s", np.int64(4)), np.int64(-2)),
     [None, -6, None, -10]),
    (lambda a: a.op("Div", "s", np.int64(2)), [None, 1, None, 2]),
    (lambda a: a.op("Div", a.op("Sub", "s", [0, 8, 0, 8]), np.int64(2)), [None, -2, None, -1]),
    (lambda a: a.op("Mod", "s", np.int64(2)), [None, 1, None, 1]),
    (lambda a: a.op("Mod", a.op("Neg", "s"), np.int64(4)), [None, 1, None, 3]),
    (lambda a: a.op("Mod", a.op("Neg", "s"), np.int64(4), fmod=1), [None, -3, None, -1]),
    (lambda a: a.op("Mod", a.op("Mul", "s", np.int64(6)), np.int64(3)), [0, 0, 0, 0]),
    (lambda a: a.op("Neg", "s"), [None, -3, None, -5]),
    (lambda a: a.op("Abs", a.op("Sub", "s", [0, 9, 0, 0])), [None, 6, None, 5]),
    (lambda a: a.op("Min", "s", np.int64(-1), np.int64(4)), [-1, -1, -1, -1]),
    (lambda a: a.op("Max", "s", np.int64(4)), [None, 4, None, 5]),
    (lambda a: a.op("Max", "s", np.int64(-4)), [N, 3, H, 5]),
    (lambda a: a.op("Equal", "s", [-1, 3, 3, 4]), [False, True, None, False]),
    (lambda a: a.op("Less", "s", [0, 4, 3, 5]), [False, True, None, False]),
    (lambda a: a.op("Greater", "s", [-1, 2, 3, 5]), [True, True, None, False]),
    (lambda a: a.op("LessOrEqual", "s", [-1, 3, 3, 4]), [False, True, None, False]),
    (lambda a: a.op("GreaterOrEqual", "s", [0, 3, 3, 6]), [True, True, None, False]),
    (lambda a: a.op("Not", a.op("Equal", "s", [3, 3, 3, 3])), [None, False, None, True]),
    (lambda a: a.op("And", a.op("Equal", "s", [3, 3, 3, 3]), [False, True, True, True]),
     [False, True, None, False]),
    (lambda a: a.op("Or", a.op("Equal", "s", [3, 3, 3, 3]), [True, False, False, False]),
     [True, True, None, False]),
    (lambda a: a.op("Xor", a.op("Equal", "s", [3, 3, 3, 3]), [True, True, True, True]),
     [None, False, None, True]),
    (lambda a: a.op("Where", a.op("Equal", "s", [-1, 3, 3, 3]), [1, 1, 1, 1], "s"),
     [N, 1, None, 5]),
    (lambda a: a.op("Where", a.op("Equal", "s", [2, 2, 2, 2]), "s", "s"), [N, 3, H, 5]),
    (lambda a: a.op("Cast", "s", to=TensorProto.INT32), [N, 3, H, 5]),
    (lambda a: a.op("Cast", "s", to=TensorProto.INT8), [None, 3, None, 5]),
    (lambda a: a.op("Cast", "s", to=TensorProto.FLOAT), [None, 3.0, None, 5.0]),
    (lambda a: a.op("Cast", "s", to=TensorProto.BOOL), [None, True, None, True]),
    (lambda a: a.op("Cast", a.op("Neg", "s"), to=TensorProto.UINT8), [None, 253, None, 251]),
    (lambda a: a.op("Cast", a.op("Div", a.op("Cast", "s", to=1), f32(-2)), to=7),
     [None, -1, None, -2]),
    (lambda a: a.op("Ceil", a.op("Mul", a.op("Cast", "s", to=1), f32(1.5))),
     [None, 5.0, None, 8.0]),
    (lambda a: a.op("Floor", a.op("Add", a.op("Cast", "s", to=1), f32(0.5))),
     [None, 3.0, None, 5.0]),
    (lambda a: a.op("Round", a.op("Div", a.op("Cast", "s", to=1), f32(2))),
     [None, 2.0, None, 2.0]),
    (lambda a: a.op("Sub", a.op("Cast", "s", to=10), f16(0.1)),
     [None, float(f16(3) - f16(0.1)), None, float(f16(5) - f16(0.1))]),
    (lambda a: a.op("Mod", a.op("Cast", "s", to=1), f32(1.3), fmod=1),
     [None, float(np.fmod(f32(3), f32(1.3))), None, float(np.fmod(f32(5), f32(1.3)))]),
    (lambda a: a.op("ReduceProd", a.op("Gather", "s", [1, 2, 3]), keepdims=0),
     None),
    (lambda a: a.op("ReduceSum", "s", [0]), [None]),
    (lambda a: a.op("ReduceSum", a.op("Gather", "s", [0, 1]), [-1], keepdims=0),
     None),
    (lambda a: a.op("ReduceSum", "s", noop_with_empty_axes=1), [N, 3, H, 5]),
    (lambda a: a.op("ReduceMax", a.op("Reshape", "s", [2, 2]), [0]), [[None, 5]]),
    (lambda a: a.op("ReduceMin", a.op("Reshape", a.op("Gather", "s", [1, 3]), [2, 1]), [1]),
     [[3], [5]]),
    (lambda a: a.op("Size", "x"), None),
    (lambda a: a.op("Size", a.op("Unsqueeze", "s", [0])), 4),
]  # fmt: skip


@pytest.mark.parametrize(("build", "expected"), CASES)
def test_an_operator(build, expected):
    """Known values of a result hold for two sizes of the input."""
    chain = Arithmetic()
    name = build(chain)
    assert hold(chain).get(name) == expected


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda a: a.op("Squeeze", a.op("Unsqueeze", "s", axes=[1]), axes=[-1]), [N, 3, H, 5]),
        (lambda a: a.op("Slice", "s", starts=[1], ends=[3], axes=[0]), [3, H]),
        (lambda a: a.op("Split", "s", split=[3, 1], count=2), [N, 3, H]),
        (lambda a: a.op("ReduceSum", a.op("Gather", "s", [0, 1]), axes=[0]),
         [None]),
    ],
)  # fmt: skip
def test_what_was_an_attribute(build, expected):
    """Axes, starts and lengths of opset 9."""
    chain = Arithmetic(opset=9)
    name = build(chain)
    assert hold(chain).get(name) == expected


@pytest.mark.parametrize(
    "build",
    [
        lambda a: a.op("Gather", "s", [4]),
        lambda a: a.op("Gather", "s", [0], axis=1),
        lambda a: a.op("Gather", [4, 5, 6, 7], "s"),
        lambda a: a.op("Slice", "s", [0], [1], [0], [0]),
        lambda a: a.op("Slice", "s", [0], [1], [3]),
        lambda a: a.op("Reshape", "s", [3, -1]),
        lambda a: a.op("Squeeze", "s", [0]),
        lambda a: a.op("Squeeze", "s", [5]),
        lambda a: a.op("Transpose", "s", perm=[1, 0]),
        lambda a: a.op("Split", "s", [1, 1], count=2),
        lambda a: a.op("Concat", "s", [[1]], axis=0),
        lambda a: a.op("Concat", "s", [1], axis=3),
        lambda a: a.op("Add", "s", [1, 2, 3]),
        lambda a: a.op("Div", "s", [0, 0, 0, 0]),
        lambda a: a.op("Mod", "s", [0, 0, 0, 0]),
        lambda a: a.op("Expand", "s", [2**40, 2**40, 4]),
        lambda a: a.op("Expand", "s", [3]),
        lambda a: a.op("Tile", "s", [2**62]),
        lambda a: a.op("Tile", "s", [1, 1]),
        lambda a: a.op("ConstantOfShape", a.op("Mul", "s", np.int64(2**40))),
        lambda a: a.op("ConstantOfShape", a.op("Gather", a.op("Neg", "s"), [1])),
        lambda a: a.op("Range", np.int64(-(2**63)), a.op("Gather", "s", np.int64(1)), np.int64(1)),
        lambda a: a.op("Range", np.int64(1), a.op("Gather", "s", np.int64(1)), np.int64(0)),
        lambda a: a.op("ReduceSum", "s", [2]),
        lambda a: a.op("Expand", a.op("Reshape", "s", [2, 2]), "s"),
    ],
)
def test_nonsense_is_unknown(build):
    """Nonsense that no runtime would run gives no value and no error."""
    chain = Arithmetic()
    assert build(chain) not in evaluated(chain)


@pytest.mark.parametrize("value", [0, 1, 2, 5, 64, 700])
@pytest.mark.parametrize("operator", ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
def test_a_comparison_of_an_open_extent_is_unknown(operator, value):
    """Both answers are possible, but for an extent below 0."""
    chain = Arithmetic()
    name = chain.op(operator, chain.op("Gather", "s", [0]), [value])
    always = {("Less", 0): [False], ("GreaterOrEqual", 0): [True]}
    assert hold(chain)[name] == always.get((operator, value), [None])


@pytest.mark.parametrize(
    ("operator", "constant", "element"),
    [("Less", 0, None), ("Max", -5, None), ("Mul", 0, 0), ("Add", 1, None)],
)
def test_an_integer_of_the_run_time_is_unknown(operator, constant, element):
    """Integers may be negative, unlike extents; their product with 0 is 0."""
    chain = Arithmetic()
    joined = chain.op("Concat", chain.op("Gather", "s", [1]), "k", axis=0)
    name = chain.op(operator, joined, [constant, constant])
    proto = chain.model()
    proto.graph.input.append(helper.make_tensor_value_info("k", TensorProto.INT64, [1]))
    values = shape_values.evaluate(loaded(proto))
    guesses = next(g for g in values.guesses.values() if g.tensor.name == name)
    assert known(guesses)[1] == element
    assert known(guesses)[0] is not None


def test_arithmetic_that_does_not_run_hides_no_other():
    """An index beyond the end makes its own chain unknown only."""
    chain = Arithmetic()
    beyond = chain.op("Add", chain.op("Gather", "s", [7]), [1])
    height = chain.op("Add", chain.op("Gather", "s", [1]), [1])
    values = evaluated(chain)
    assert beyond not in values
    assert known(values[height]).tolist() == [4]


def test_the_nodes_of_a_chain_begin_at_its_shape():
    """Nodes in front of the Shape are not part of it."""
    chain = Arithmetic()
    last = chain.op("Gather", chain.op("Shape", chain.op("Relu", "x")), [1])
    values = shape_values.evaluate(read_with_types(chain))
    guesses = next(g for g in values.guesses.values() if g.tensor.name == last)
    assert [n.op for n in shape_values.chain(values, guesses.tensor)] == ["Shape", "Gather"]
    assert shape_values.as_text(guesses.array) == "[3]"
