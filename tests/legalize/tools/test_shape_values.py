"""Shape arithmetic on elements that may be unknown: nothing is claimed that is not so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuconv import executor, limits
from npuconv.legalize.tools import shape_elements as scalars
from npuconv.legalize.tools import shape_values
from npuconv.legalize.tools.shape_elements import Extent
from npuconv.legalize.tools.shape_operators import (
    OPERATORS,
    Partial,
    UnknownError,
    sliced_positions,
)
from npuconv.model import shapes

DIMS = ("N", 3, "H", 5)
SIZES = ({"N": 2, "H": 7}, {"N": 1, "H": 4})
INT64 = np.dtype(np.int64)
N = Extent(("N", -1))
H = Extent(("H", -1))


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
        node = helper.make_node(op, names, outputs)
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


def evaluated(chain: Arithmetic) -> dict[str, Partial]:
    """Return the known values of each tensor, by name."""
    facts = shape_values.evaluate(read_with_types(chain))
    return {tensor.name: part for tensor, part in facts.tensors.values()}


def read_with_types(chain: Arithmetic):
    """A Model; outputs get their types by inference."""
    from npuconv.model import load

    proto = chain.model()
    inferred = shapes._inferred(proto)[0] or proto
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


def hold(chain: Arithmetic) -> dict[str, list[Any]]:
    """Run the arithmetic for real, and check everything that is claimed of it."""
    claims = evaluated(chain)
    proto = chain.model()
    for sizes in SIZES:
        feeds = {"x": np.zeros([sizes.get(d, d) for d in DIMS], np.float32)}
        values = executor.Session(proto, threads=1, optimize=False).run(feeds)
        for name, part in claims.items():
            assert part.elements.shape == values[name].shape, name
            assert part.dtype == values[name].dtype, name
            pairs = zip(part.elements.flat, values[name].reshape(-1).tolist(), strict=True)
            for element, found in pairs:
                assert element is None or number(element, sizes) == found, name
    return {name: part.elements.tolist() for name, part in claims.items()}


def number(element: Any, sizes: dict[str, int]) -> float:
    if isinstance(element, Extent):
        return element.factor * sizes[element.symbol[0]] + element.offset
    return element


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
    (lambda a: a.op("Range", np.int64(0), a.op("Gather", "s", np.int64(3)), np.int64(2)),
     [0, 2, 4]),
    (lambda a: a.op("Add", "s", [1, 1, 1, 1]), [Extent(("N", -1), 1, 1), 4,
                                                Extent(("H", -1), 1, 1), 6]),
    (lambda a: a.op("Sub", "s", "s"), [0, 0, 0, 0]),
    (lambda a: a.op("Sub", a.op("Add", "s", [4, 4, 4, 4]), "s"), [4, 4, 4, 4]),
    (lambda a: a.op("Sub", a.op("Mul", "s", np.int64(2)), "s"), [N, 3, H, 5]),
    (lambda a: a.op("Mul", "s", [2, 2, 0, -1]), [Extent(("N", -1), 2), 6, 0, -5]),
    (lambda a: a.op("Mul", a.op("Gather", "s", [0]), a.op("Gather", "s", [2])), None),
    (lambda a: a.op("Div", a.op("Mul", "s", np.int64(4)), np.int64(-2)),
     [Extent(("N", -1), -2), -6, Extent(("H", -1), -2), -10]),
    (lambda a: a.op("Div", "s", np.int64(2)), [None, 1, None, 2]),
    (lambda a: a.op("Div", a.op("Sub", "s", [0, 8, 0, 8]), np.int64(2)), [None, -2, None, -1]),
    (lambda a: a.op("Mod", "s", np.int64(2)), [None, 1, None, 1]),
    (lambda a: a.op("Mod", a.op("Neg", "s"), np.int64(4)), [None, 1, None, 3]),
    (lambda a: a.op("Mod", a.op("Neg", "s"), np.int64(4), fmod=1), [None, -3, None, -1]),
    (lambda a: a.op("Mod", a.op("Mul", "s", np.int64(6)), np.int64(3)), [0, 0, 0, 0]),
    (lambda a: a.op("Neg", "s"), [Extent(("N", -1), -1), -3, Extent(("H", -1), -1), -5]),
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
    (lambda a: a.op("Cast", a.op("Neg", "s"), to=TensorProto.UINT8), None),
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
     Extent(("H", -1), 15)),
    (lambda a: a.op("ReduceSum", "s", [0]), None),
    (lambda a: a.op("ReduceSum", a.op("Gather", "s", [0, 1]), [-1], keepdims=0),
     Extent(("N", -1), 1, 3)),
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
         [Extent(("N", -1), 1, 3)]),
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
        lambda a: a.op("Reshape", "s", [4], allowzero=1),
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


def test_what_leaves_the_range_of_its_type():
    """Runtimes wrap around, more or less; no number is claimed."""
    chain = Arithmetic()
    name = chain.op("Mul", chain.op("Add", "s", np.int64(2**62)), np.int64(4))
    assert name not in evaluated(chain)
    small = chain.op("Cast", "s", to=TensorProto.INT32)
    name = chain.op("Mul", small, np.int32(2**31 - 1))
    assert [e for e in evaluated(chain)[name].elements if isinstance(e, int)] == []


def test_floats_that_are_none():
    """Division by zero is an infinity, which no shape has."""
    chain = Arithmetic()
    name = chain.op("Div", chain.op("Cast", "s", to=1), f32(0))
    assert name not in evaluated(chain)


@pytest.mark.parametrize("extent", range(6))
@pytest.mark.parametrize("step", [-3, -2, -1, 1, 2, 3])
def test_slices_like_the_runtime(extent, step):
    """Every start and end around an axis, at either step."""
    if extent == 0 and step < 0:
        with pytest.raises(UnknownError):
            sliced_positions(extent, 0, 0, step)
        return
    bounds = [(start, end) for start in range(-7, 8) for end in range(-7, 8)]
    source = np.arange(extent)
    nodes, constants = [], [numpy_helper.from_array(source, "x")]
    for i, (start, end) in enumerate(bounds):
        for name, value in (("s", start), ("e", end)):
            constants.append(numpy_helper.from_array(np.array([value]), f"{name}{i}"))
        nodes.append(helper.make_node("Slice", ["x", f"s{i}", f"e{i}", "axes", "steps"], [f"y{i}"]))
    constants += [
        numpy_helper.from_array(np.array([v]), k) for k, v in (("axes", 0), ("steps", step))
    ]
    outputs = [helper.make_empty_tensor_value_info(n.output[0]) for n in nodes]
    graph = helper.make_graph(nodes, "slices", [], outputs, constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    values = executor.Session(proto, threads=1, optimize=False).run({})
    for i, (start, end) in enumerate(bounds):
        assert list(sliced_positions(extent, start, end, step)) == values[f"y{i}"].tolist()


def test_elements():
    """Numbers beat extents only where the comparison holds for every extent."""
    twice, more = Extent(N.symbol, 2), Extent(N.symbol, 1, 1)
    assert scalars.is_equal(N, more, INT64) is False
    assert scalars.is_equal(N, twice, INT64) is None
    assert scalars.is_less(N, more, INT64) is True
    assert scalars.is_less(more, N, INT64) is False
    assert scalars.is_less(N, H, INT64) is None
    assert scalars.larger(N, more, INT64) == more
    assert scalars.add(N, H, INT64) is None
    assert scalars.subtract(None, N, INT64) is None
    assert scalars.multiply(None, 0, INT64) == 0
    assert scalars.divide(twice, 2, INT64) == N
    assert scalars.divide(more, 2, INT64) is None
    assert scalars.divide(2, N, INT64) is None
    assert scalars.modulo(more, 2, INT64) is None
    assert scalars.add(N, 1, np.dtype(np.uint8)) is None
    assert scalars.multiply(Extent(N.symbol, 2**62), 4, INT64) is None


def test_a_chain_starts_where_the_shape_is_read():
    """The nodes that a change replaces, in order; the network before them stays out."""
    chain = Arithmetic()
    last = chain.op("Gather", chain.op("Shape", chain.op("Relu", "x")), [1])
    model = read_with_types(chain)
    facts = shape_values.evaluate(model)
    tensor = next(t for t, _ in facts.tensors.values() if t.name == last)
    assert [n.op for n in shape_values.chain(facts, tensor)] == ["Shape", "Gather"]
    assert not shape_values.confirm(model, facts, [tensor])


def test_an_operator_without_operands_is_unknown():
    """A Max of nothing has no value; it is not our business to say what is wrong with it."""
    with pytest.raises(UnknownError):
        list(OPERATORS["Max"](gs.Node("Max"), []))
