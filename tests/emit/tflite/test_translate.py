"""Whole models: orders of axes, operators of the host, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuconv.emit.tflite.translate import find_obstacles, translate, write
from npuconv.errors import ModelError
from npuconv.evaluate.simulator import as_float
from npuconv.executor import Session
from support.builders import Net
from support.int8_operators import CASES, FINE, WIDE
from support.tflite_files import operators, read, reference_kernels, stored

FLOAT = TensorProto.FLOAT


def net(nodes: list[onnx.NodeProto], shape: tuple, **constants) -> onnx.ModelProto:
    """Return a model from x to y."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def one(op: str, *inputs: str, **attrs) -> onnx.NodeProto:
    """Return the node that makes y."""
    return helper.make_node(op, ["x", *inputs], ["y"], name=op.lower(), **attrs)


def test_images_have_their_channels_last():
    """A pool stores both ends so."""
    made = translate(net([one("MaxPool", kernel_shape=[2, 2])], (1, 3, 8, 6)))
    assert made.inputs[0].tensor.shape == (1, 8, 6, 3)
    assert made.outputs[0].order == (0, 2, 3, 1)


def test_constants_that_no_node_can_read():
    """The model is wrong, and the node is named: an element of a list that is empty."""
    nodes = [
        helper.make_node("Gather", ["none", "last"], ["g"], name="pick"),
        helper.make_node("Mul", ["x", "g"], ["y"]),
    ]
    none, last = np.zeros(0, np.float32), np.int64(-1)
    with pytest.raises(ModelError, match="'pick': cannot be computed"):
        translate(net(nodes, (2,), none=none, last=last))


def test_an_output_that_no_operator_makes():
    """TFLite has the largest values, and not where they were."""
    proto = net([one("MaxPool", kernel_shape=[2, 2])], (1, 3, 8, 6))
    proto.graph.node[0].output.append("where")
    place = helper.make_tensor_value_info("where", TensorProto.INT64, None)
    proto.graph.output.append(place)
    assert [o.problem for o in find_obstacles(proto)] == [
        "TFLite has no operator that makes 'where'"
    ]


def test_a_transpose_is_another_view():
    """A model whose own images have their channels last stays as it is."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[0, 3, 1, 2]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2]),
        helper.make_node("Transpose", ["b"], ["y"], perm=[0, 2, 3, 1]),
    ]
    made = translate(net(nodes, (1, 8, 6, 3)))
    assert [o.code for o in made.graph.operators] == ["MAX_POOL_2D"]
    assert made.inputs[0].order == made.outputs[0].order == (0, 1, 2, 3)


def test_a_reshape_takes_values_as_onnx_has_them():
    """A TRANSPOSE precedes it, unless only axes of one element change places."""
    flat = helper.make_node("Flatten", ["a"], ["y"])
    pool = helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2])
    found = operators(net([pool, flat], (1, 3, 8, 6)))
    assert found == ["MAX_POOL_2D", "TRANSPOSE", "RESHAPE"]
    assert operators(net([pool, flat], (1, 3, 2, 2))) == ["MAX_POOL_2D", "RESHAPE"]


def test_a_first_extent_that_is_not_known_becomes_1():
    """TFLite's own converter does so; any other extent is an obstacle with the flag to give."""
    made = translate(net([one("Relu")], ("N", 3, 8, 6)))
    assert made.inputs[0].tensor.shape == (1, 8, 6, 3)
    (found,) = find_obstacles(net([one("Relu")], (1, 3, "H", "W")))
    assert found.problem == "input 'x': extent 2 is H, 3 is W, but TFLite needs numbers"
    assert "--input-shape x=" in found.fix


def test_obstacles_are_found_before_calibration():
    """The float model has the attributes of the integer one; each node has one obstacle."""
    nodes = [
        helper.make_node("Einsum", ["x"], ["a"], name="einsum", equation="abcd->abdc"),
        helper.make_node("Pad", ["a", "p"], ["b"], name="pad", mode="wrap"),
        helper.make_node("Attention", ["b", "b", "b", "m"], ["y"], name="attention"),
    ]
    proto = net(nodes, (1, 3, 8, 6), p=np.ones(8, np.int64), m=np.ones((5, 5), np.int16))
    assert [(o.node, o.problem) for o in find_obstacles(proto)] == [
        ("einsum", "TFLite has no operator for Einsum"),
        ("pad", "TFLite has no Pad of mode 'wrap', or with negative pads"),
        ("attention", "TFLite has no operator for Attention"),
    ]
    with pytest.raises(ModelError, match="'einsum': TFLite has no operator for Einsum; 'pad'"):
        translate(proto)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_pool_of_one_axis_is_named(op):
    """TFLite has none; what the target lists may bring one here."""
    proto = Net(x=(1, 4, 40)).op(op, kernel_shape=[3]).model()
    with pytest.raises(ModelError, match="'x': what reads it takes 2 spatial axes in TFLite"):
        translate(proto)


def test_a_type_that_tflite_does_not_compute_with_is_found_before_calibration():
    """No tensor of the file has a number for it."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Cast", ["wide"], ["y"], to=FLOAT),
    ]
    obstacles = find_obstacles(net(nodes, (1, 3, 8, 6)))
    assert obstacles[0].problem == "'wide' is float64, which TFLite computes nothing with"


def test_a_constant_is_computed():
    """Shapes of what is known are no operators."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Reshape", ["x", "s"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    assert operators(net(nodes, (2, 3))) == ["RELU"]


def test_the_file():
    """Equal models give equal bytes; inputs and outputs are described for people."""
    model = net([one("Relu")], (1, 3, 8, 6))
    model.metadata_props.add(key="npuconv.format", value="tflite")
    file = write(model)
    assert file.data == write(model).data
    assert file.inputs == ("x: float32 [1, 8, 6, 3] (NHWC)",)
    assert file.operators == {"RELU": 1}
    assert read(file.data).metadata == {
        "npuconv.format": "tflite",
        "npuconv.ends": '[["x",[0,2,3,1]],["y",[0,2,3,1]]]',
    }


C = np.arange(1, 4, dtype=np.float32).reshape(3, 1, 1) / 4
PADS, TWICE = np.asarray([0, 0, 1, 2, 0, 0, 3, 0]), np.asarray([1, 1, 2, 2], np.float32)
FLOATS = {
    "add": ([one("Add", "c")], {"c": C}),
    "sub": ([one("Sub", "c")], {"c": C}),
    "div": ([one("Div", "c")], {"c": C}),
    "max": ([one("Max", "c")], {"c": C}),
    "clip": ([one("Clip", "l", "h")], {"l": np.float32(-0.2), "h": np.float32(0.3)}),
    "relu6": ([one("Clip", "l", "h")], {"l": np.float32(0), "h": np.float32(6)}),
    "prelu": ([one("PRelu", "c")], {"c": C}),
    "leaky": ([one("LeakyRelu", alpha=0.3)], {}),
    "hard": ([one("HardSigmoid", alpha=0.3, beta=0.4)], {}),
    "sigmoid": ([one("Sigmoid")], {}),
    "softmax": ([one("Softmax", axis=1)], {}),
    "softmax last": ([one("Softmax", axis=-1)], {}),
    "log softmax": ([one("LogSoftmax", axis=2)], {}),
    "mean": ([one("ReduceMean", axes=[2, 3])], {}),
    "mean flat": ([one("ReduceMean", axes=[1], keepdims=0)], {}),
    "global": ([one("GlobalAveragePool")], {}),
    "average": ([one("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])], {}),
    "average, counted": (
        [one("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)], {},
    ),
    "average, odd": (
        [one("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])], {},
    ),
    "pool, odd": (
        [one("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])], {},
    ),
    "pad": ([one("Pad", "p", "v")], {"p": PADS, "v": np.float32(2)}),
    "reflect": ([one("Pad", "p", mode="reflect")], {"p": PADS}),
    "slice": (
        [one("Slice", "a", "b", "c", "d")],
        {"a": np.asarray([-1, 1]), "b": np.asarray([-99, 5]), "c": np.asarray([1, 2]),
         "d": np.asarray([-1, 2])},
    ),
    "gather": ([one("Gather", "i", axis=1)], {"i": np.asarray([2, 0, -1])}),
    "gather one": ([one("Gather", "i", axis=2)], {"i": np.asarray(1)}),
    "concat": ([one("Concat", "c", axis=1)], {"c": np.ones((1, 2, 8, 6), np.float32)}),
    "instance": (
        [one("InstanceNormalization", "g", "h", epsilon=1e-3)],
        {"g": C.reshape(3), "h": C.reshape(3) + 1},
    ),
    "conv": (
        [one("Conv", "w", pads=[1, 1, 1, 1], strides=[2, 2])],
        {"w": np.linspace(-1, 1, 5 * 27, dtype=np.float32).reshape(5, 3, 3, 3)},
    ),
    "nearest": (
        [one("Resize", "", "s", mode="nearest", coordinate_transformation_mode="asymmetric",
             nearest_mode="floor")],
        {"s": np.asarray([1, 1, 2, 3], np.float32)},
    ),
    "nearest, rounded": (
        [one("Resize", "", "s", coordinate_transformation_mode="asymmetric")],
        {"s": np.asarray([1, 1, 3, 2], np.float32)},
    ),
    "gather several": (
        [one("GatherND", "i")], {"i": np.asarray([[[0, -1, 2], [0, 1, -3]]])},
    ),
    "gelu": ([one("Gelu", approximate="tanh")], {}),
    "gelu by erf": ([one("Gelu")], {}),
    "gelu in parts": (
        [
            helper.make_node("Pow", ["x", "three"], ["cube"]),
            helper.make_node("Mul", ["cube", "share"], ["part"]),
            helper.make_node("Add", ["x", "part"], ["sum"]),
            helper.make_node("Mul", ["sum", "factor"], ["inner"]),
            helper.make_node("Tanh", ["inner"], ["tanh"]),
            helper.make_node("Add", ["tanh", "unit"], ["gate"]),
            helper.make_node("Mul", ["x", "gate"], ["twice"]),
            helper.make_node("Mul", ["twice", "half"], ["y"]),
        ],
        {"three": np.float32(3), "share": np.float32(0.044715), "unit": np.float32(1),
         "factor": np.float32((2 / np.pi) ** 0.5), "half": np.float32(0.5)},
    ),
    "not a number": (
        [
            helper.make_node("IsNaN", ["x"], ["n"]),
            helper.make_node("Where", ["n", "c", "x"], ["y"]),
        ],
        {"c": np.float32(0)},
    ),
    "linear": ([one("Resize", "", "s", mode="linear")], {"s": TWICE}),
    "corners": (
        [one("Resize", "", "s", mode="linear", coordinate_transformation_mode="align_corners")],
        {"s": TWICE},
    ),
    "matmul": ([one("MatMul", "w")], {"w": np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)}),
    "reflect all": (
        [one("Pad", "p", mode="reflect")], {"p": np.asarray([0, 0, 7, 5, 0, 2, 7, 5])},
    ),
    "product": ([one("ReduceProd", axes=[1])], {}),
    "to depth": ([one("SpaceToDepth", blocksize=2)], {}),
}  # fmt: skip


RATIOS, SIZES = np.asarray([1, 1, 0.7, 1.6], np.float32), np.asarray([1, 3, 5, 11])
RESIZED = {
    "cubic": ("", "s", {"mode": "cubic"}, RATIOS),
    "cubic, corners": (
        "", "s", {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}, TWICE,
    ),
    "cubic, inside": ("", "s", {"mode": "cubic", "exclude_outside": 1}, RATIOS),
    "cubic, smoother": ("", "", "s", {"mode": "cubic", "cubic_coeff_a": -0.5}, SIZES),
    "cubic, antialias": ("", "", "s", {"mode": "cubic", "antialias": 1}, SIZES),
    "linear, antialias": ("", "", "s", {"mode": "linear", "antialias": 1}, SIZES),
    "linear, scale": ("", "s", {"mode": "linear"}, RATIOS),
    "linear, symmetric": (
        "", "s",
        {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}, RATIOS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RESIZED)
def test_a_resize_that_tflite_lacks_is_two_products(name):
    """Constant weights of rows and of columns; a scale is not the ratio of extents."""
    *inputs, attrs, values = RESIZED[name]
    model = net([one("Resize", *inputs, **attrs)], (1, 3, 8, 6), s=values)
    model.opset_import[0].version = 19
    x = np.random.default_rng(5).normal(0, 1, (1, 3, 8, 6)).astype(np.float32)
    made = translate(model).graph
    rows, columns = [o for o in made.operators if o.code == "BATCH_MATMUL"]
    left, right = (made.tensors[k].values for k in (rows.inputs[0], columns.inputs[1]))
    wanted = Session(model).run({"x": x})["y"]
    np.testing.assert_allclose(left @ x @ right, wanted, atol=2e-6)


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_indices_that_are_computed(axis):
    """ONNX counts negative ones from the end, TFLite does not."""
    model = net([one("Gather", "i", axis=axis)], (1, 3, 8, 6))
    place = helper.make_tensor_value_info("i", TensorProto.INT64, [2])
    model.graph.input.append(place)
    feeds = {"x": np.random.default_rng(5).normal(0, 1, (1, 3, 8, 6)).astype(np.float32)}
    feeds["i"] = np.asarray([-1, 0])
    made = translate(model)
    assert {"FLOOR_MOD", "GATHER"} <= {operator.code for operator in made.graph.operators}
    (found,) = reference_kernels(made.graph, [stored(e, feeds[e.name]) for e in made.inputs])
    wanted = Session(model).run(feeds)["y"]
    np.testing.assert_array_equal(found, stored(made.outputs[0], wanted))


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name):
    """Operators of the host: LiteRT gives what onnxruntime gives."""
    nodes, constants = FLOATS[name]
    model = net(nodes, (1, 3, 8, 6), **constants)
    model.opset_import[0].version = 20 if name.startswith("gelu") else 17
    x = np.random.default_rng(5).normal(0, 1, (1, 3, 8, 6)).astype(np.float32)
    made = translate(model)
    (found,) = reference_kernels(made.graph, [x.transpose(made.inputs[0].order)])
    wanted = Session(model).run({"x": x})["y"]
    np.testing.assert_allclose(found, stored(made.outputs[0], wanted), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("pads", [[0, 0, 8, 0, 0, 0, 0, 0], [0, 0, -1, 1, 0, 0, 0, 0]])
def test_a_reflection_that_tflite_refuses(pads):
    """More values than the axis has, and a crop."""
    model = net([one("Pad", "p", mode="reflect")], (1, 3, 8, 6), p=np.asarray(pads))
    with pytest.raises(ModelError, match="reflect"):
        translate(model)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode):
    """Both orders of channels."""
    model = net([one("DepthToSpace", blocksize=2, mode=mode)], (1, 12, 2, 3))
    x = np.arange(72, dtype=np.float32).reshape(1, 12, 2, 3)
    made = translate(model)
    (found,) = reference_kernels(made.graph, [x.transpose(made.inputs[0].order)])
    np.testing.assert_array_equal(found, stored(made.outputs[0], Session(model).run({"x": x})["y"]))


CODES = {
    "Add": "ADD", "Sub": "SUB", "Mul": "MUL", "MatMul": "BATCH_MATMUL", "HardSwish": "HARD_SWISH",
    "AveragePool": "AVERAGE_POOL_2D", "GlobalAveragePool": "MEAN", "ReduceMean": "MEAN",
    "Concat": "CONCATENATION", "Resize": "RESIZE_BILINEAR", "Softmax": "SOFTMAX",
    "Sigmoid": "LOGISTIC", "Tanh": "TANH", "LeakyRelu": "LEAKY_RELU", "PRelu": "LEAKY_RELU",
    "prelu-channels": "PRELU",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_is_int8(name):
    """No conversion to float is left; the result has the scale that is wanted."""
    case = CASES[name]
    made = translate(case.model())
    assert CODES.get(name, CODES[case.op]) in [operator.code for operator in made.graph.operators]
    kinds = {t.dtype.name for t in made.graph.tensors if t.values is None}
    assert kinds == {"int8"}
    own, wanted = made.outputs[0].tensor.quantization, case.scales[-1]
    assert (own.scale, own.zero) == (np.float32(wanted.scale), wanted.zero)


def test_a_scale_that_tflite_does_not_make_is_made_by_quantize():
    """LOGISTIC makes multiples of 1/256, a pool the scale that it reads, and so on."""
    assert operators(CASES["sigmoid"].model()) == ["LOGISTIC"]
    made = translate(CASES["sigmoid-rescaled"].model()).graph
    assert [o.code for o in made.operators] == ["LOGISTIC", "QUANTIZE"]
    own = made.tensors[made.operators[0].outputs[0]].quantization
    assert (own.scale, own.zero) == (np.float32(1 / 256), -128)
    assert operators(CASES["average-pool-rescaled"].model())[-1] == "QUANTIZE"


def test_a_concatenation_has_one_scale():
    """TFLite's kernel refuses another; the input that has the scale of the result stays."""
    made = translate(CASES["concat"].model()).graph
    assert [o.code for o in made.operators] == ["QUANTIZE", "CONCATENATION"]
    scales = {made.tensors[k].quantization.scale for k in made.operators[-1].inputs}
    assert scales == {np.float32(CASES["concat"].scales[-1].scale)}


def test_constants_have_their_scale():
    """An int8 constant is a tensor like any other, its channels last."""
    made = translate(CASES["add-constant"].model()).graph
    constant = made.tensors[made.operators[-1].inputs[1]]
    assert constant.shape == (1, 1, 1, 3)
    assert (constant.quantization.scale, constant.quantization.zero) == (FINE.scale, FINE.zero)


def test_counted_padding_is_padded_before():
    """AVERAGE_POOL_2D never counts its padding; PAD fills with the zero point."""
    made = translate(CASES["average-pool-padded"].model()).graph
    assert [o.code for o in made.operators] == ["PAD", "AVERAGE_POOL_2D"]
    assert made.tensors[made.operators[0].outputs[0]].quantization.zero == WIDE.zero


@pytest.mark.parametrize("name", CASES)
def test_reference_kernels_give_the_integers_of_the_simulator(name):
    case = CASES[name]
    model, feeds = case.model(), case.feeds()
    made = translate(model)
    wanted = Session(as_float(model)).run(feeds)["y"]
    given = [stored(end, feeds[end.name]) for end in made.inputs]
    (found,) = reference_kernels(made.graph, given)
    np.testing.assert_array_equal(found, stored(made.outputs[0], wanted))
