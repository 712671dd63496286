"""Integer products: exact on every processor, because both operands get one type."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from npuconv.executor import Session, saturates
from npuconv.model.integer_products import may_saturate, with_equal_types

TYPES = {"uint8": np.uint8, "int8": np.int8}
X_ZERO = {"uint8": 120, "int8": 13}
PAIRS = [(x, w) for x in TYPES for w in TYPES]
CONTRIB = helper.make_opsetid("com.microsoft", 1)


def extremes(dtype, shape, seed=0):
    """Random integers, half of them the ends of their type, where pairs of products are largest."""
    info, rng = np.iinfo(dtype), np.random.default_rng([seed, *shape])
    values = rng.integers(info.min, info.max + 1, shape)
    ends = rng.choice([info.min, info.max, info.max], shape)
    return np.where(rng.random(shape) < 0.5, ends, values).astype(dtype)


def product(op, x_type, w_type, *, channels=False, constant=True, domain=""):
    """One integer product of x and w; scales of 1 / 64, and of the result as its deviation."""
    is_conv = op.endswith(("Conv", "ConvInteger"))
    x_shape, w_shape = ((1, 8, 5, 5), (6, 8, 3, 3)) if is_conv else ((3, 64), (64, 6))
    w = extremes(TYPES[w_type], w_shape, 1)
    zero = np.asarray(7 if w_type == "int8" else 130, TYPES[w_type])
    arrays = {"w": w, "wz": np.full(6, zero) if channels else zero}
    arrays["xz"] = np.asarray(X_ZERO[x_type], TYPES[x_type])
    arrays["xs"] = np.float32(1 / 64)
    arrays["ws"] = np.full(6, 1 / 64, np.float32) if channels else np.float32(1 / 64)
    arrays |= {"ys": np.float32(2), "yz": arrays["xz"]}
    inputs = {
        "QLinearConv": "x xs xz w ws wz ys yz",
        "QLinearMatMul": "x xs xz w ws wz ys yz",
        "QGemm": "x xs xz w ws wz - ys yz",
        "ConvInteger": "x w xz wz",
        "MatMulInteger": "x w xz wz",
        "MatMulIntegerToFloat": "x w xs ws xz wz",
    }[op].replace("-", "")
    names = inputs.split(" ")
    kind = {"Integer": TensorProto.INT32, "ToFloat": TensorProto.FLOAT}
    result = next((t for end, t in kind.items() if op.endswith(end)), info_type(x_type))
    infos = [helper.make_tensor_value_info("x", info_type(x_type), x_shape)]
    if not constant:
        infos.append(helper.make_tensor_value_info("w", info_type(w_type), w_shape))
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], domain=domain)],
        "product",
        infos,
        [helper.make_tensor_value_info("y", result, None)],
        [
            numpy_helper.from_array(np.asarray(arrays[name]), name)
            for name in names
            if name in arrays and (constant or name != "w")
        ],
    )
    opsets = [helper.make_opsetid("", 17), CONTRIB]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    feeds = {"x": extremes(TYPES[x_type], x_shape), "w": w}
    return model, feeds, arrays


def info_type(name):
    return helper.np_dtype_to_tensor_dtype(np.dtype(name))


def exact(op, feeds, arrays):
    """The result in 64 bits."""
    x = feeds["x"].astype(np.int64) - int(arrays["xz"])
    w = feeds["w"].astype(np.int64)
    zeros = arrays["wz"].astype(np.int64)
    if x.ndim == 2:
        sums = x @ (w - zeros)
    else:
        w = w - zeros.reshape(-1, 1, 1, 1)
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
        sums = np.einsum("nchwij,ocij->nohw", windows, w)
    if op.endswith("Integer"):
        return sums
    if op.endswith("ToFloat"):
        return sums / 4096
    info = np.iinfo(feeds["x"].dtype)
    return np.clip(np.rint(sums / 8192) + int(arrays["yz"]), info.min, info.max)


PRODUCTS = [
    ("QLinearConv", ""),
    ("ConvInteger", ""),
    ("QLinearMatMul", ""),
    ("MatMulInteger", ""),
    ("QGemm", "com.microsoft"),
    ("MatMulIntegerToFloat", "com.microsoft"),
]


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("types", PAIRS)
@pytest.mark.parametrize(("op", "domain"), PRODUCTS)
def test_a_product_is_exact(op, domain, types, constant, optimize):
    """Constants and inputs as weights; int8 by uint8, which lacks kernels, runs as well."""
    for channels in (False, True) if op != "ConvInteger" else (False,):
        model, feeds, arrays = product(
            op, *types, channels=channels, constant=constant, domain=domain
        )
        found = Session(model, threads=1, optimize=optimize).run(feeds)["y"]
        np.testing.assert_array_equal(found, exact(op, feeds, arrays))


def test_saturation_is_recognized():
    """A tiny product shows whether onnxruntime alone computes a larger one wrongly."""
    model, feeds, arrays = product("MatMulInteger", "uint8", "int8")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    differs = (
        session.run(None, {"x": feeds["x"]})[0] != exact("MatMulInteger", feeds, arrays)
    ).any()
    assert saturates() == differs


def operand_types(model):
    """The element types of activations and weights of every product, also of bodies."""
    graph = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True).graph
    return list(_operand_types(graph, {}))


def _operand_types(graph, outer):
    infos = (*graph.input, *graph.value_info, *graph.output)
    types = outer | {i.name: i.type.tensor_type.elem_type for i in infos}
    types |= {t.name: t.data_type for t in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _operand_types(attribute.g, types)
        if node.op_type == "MatMulInteger":
            names = [name for name in node.input if name]
            yield tuple(helper.tensor_dtype_to_np_dtype(types[name]).name for name in names)


def parsed(text):
    header = '<ir_version: 9, opset_import: ["": 18, "own": 1]>\n'
    return onnx.parser.parse_model(header + text)


BODY = parsed("""
    g (bool c, float[2, 4] x, int8[4, 3] w) => (int32[2, 3] y) {
        q, s, z = DynamicQuantizeLinear (x)
        y = If (c) <
            then_branch = t () => (int32[2, 3] a) { a = MatMulInteger (q, w, z) },
            else_branch = e () => (int32[2, 3] b) {
                v = Identity (w)
                b = MatMulInteger (q, v)
            }
        >
    }
""")
FUNCTION = parsed("""
    g (float[2, 4] x, int8[4, 3] w) => (int32[2, 3] y) { y = own.product (x, w) }
    <domain: "own", opset_import: ["": 18]>
    product (x, w) => (y) {
        q, s, z = DynamicQuantizeLinear (x)
        y = MatMulInteger (q, w, z)
    }
""")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (BODY, [("uint8",) * 4, ("uint8",) * 4]),
        (FUNCTION, [("uint8",) * 4]),
    ],
    ids=["subgraph", "function"],
)
def test_products_inside(model, expected):
    """Types in bodies and functions are inferred; a missing zero point is added."""
    before = model.SerializeToString(deterministic=True)
    made = with_equal_types(model)
    found = operand_types(made)
    assert [types[:2] + types[-1:] for types in found] == [types[:3] for types in expected]
    assert model.SerializeToString(deterministic=True) == before, "the model itself is not changed"
    feeds = {"x": extremes(np.int8, (2, 4)).astype(np.float32), "w": extremes(np.int8, (4, 3))}
    feeds |= {"c": np.asarray(True)} if "c" in {i.name for i in model.graph.input} else {}
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(Session(model).run(feeds)["y"], wanted)


def test_several_weights_of_a_node():
    """An LSTM that quantizes its inputs has two matrices."""
    scale = numpy_helper.from_array(np.full(1, 0.01, np.float32), "s")
    zero = numpy_helper.from_array(np.zeros(1, np.int8), "z")
    weights = [
        numpy_helper.from_array(extremes(np.int8, (1, size, 16)), name)
        for name, size in (("w", 5), ("r", 4))
    ]
    inputs = ["x", "w", "r", *[""] * 5, "s", "z", "s", "z"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", inputs, ["y"], domain="com.microsoft", hidden_size=4
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 1, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "lstm", [x], [y], [scale, zero, *weights])
    opsets = [helper.make_opsetid("", 17), CONTRIB]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    lstm = with_equal_types(model).graph.node[-1]
    assert [lstm.input[i].endswith(f"/{i}") for i in (1, 2, 9, 11)] == [True] * 4
    assert np.isfinite(Session(model).run({"x": np.ones((3, 1, 5), np.float32)})["y"]).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_products_of_one_type_stay(dtype):
    """Both kinds are exact, and faster."""
    model, _, _ = product("QLinearConv", dtype, dtype)
    assert with_equal_types(model) is model


def conversions(x_type, w_type, *, quantize=True):
    """A MatMul between conversions, which onnxruntime fuses."""
    source = "q = QuantizeLinear (x, s, xz)\n d = DequantizeLinear (q, s, xz)" if quantize else ""
    data = "d" if quantize else "x"
    model = parsed(f"""
        g (float[2, 64] x, {w_type}[64, 3] w) => (float[2, 3] y)
        <float s = {{0.0625}}, {x_type} xz = {{0}}, {w_type} wz = {{0}}> {{
            {source}
            v = DequantizeLinear (w, s, wz)
            y = MatMul ({data}, v)
        }}
    """)
    weights = extremes(TYPES[w_type], (64, 3))
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    del model.graph.input[1]
    return model, weights


def activations(dtype, weights):
    """Inputs of a MatMul between conversions, and its result."""
    integers = extremes(np.uint8, (2, 64)) >> (dtype == "int8")
    wanted = integers.astype(np.int64) @ weights.astype(np.int64) / 256
    return integers.astype(np.float32) / 16, wanted


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_conversions_are_not_fused_into_products(types):
    """Their optimizer makes uint8 of int8 activations, and then multiplies by int8."""
    model, weights = conversions(*types)
    x, wanted = activations(types[0], weights)
    np.testing.assert_array_equal(Session(model).run({"x": x})["y"], wanted)


@pytest.mark.parametrize(
    ("types", "option"),
    [
        (("int8", "int8"), "session.x64quantprecision"),
        (("int8", "int8"), "session.qdqisint8allowed"),
        (("int8", "int8"), "session.disable_quant_qdq"),
        (("uint8", "int8"), "session.x64quantprecision"),
        (("uint8", "int8"), "session.disable_quant_qdq"),
    ],
)
def test_session_options_of_the_guide(types, option):
    """Each makes onnxruntime exact, which it is not by default where sums saturate."""
    model, weights = conversions(*types)
    x, wanted = activations(types[0], weights)
    options = ort.SessionOptions()
    for expected in (saturates(), False):
        session = ort.InferenceSession(model.SerializeToString(), options)
        assert (session.run(None, {"x": x})[0] != wanted).any() == expected
        options.add_session_config_entry(option, "1")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (conversions("uint8", "int8")[0], True),
        (conversions("int8", "int8")[0], True),
        (conversions("uint8", "uint8")[0], False),
        (conversions("int8", "int8", quantize=False)[0], False),
        (product("QLinearMatMul", "uint8", "int8")[0], True),
        (product("QLinearMatMul", "int8", "int8")[0], False),
        (BODY, True),
        (FUNCTION, True),
    ],
)
def test_models_whose_sums_may_saturate(model, expected):
    """Conversions with int8 weights, and products of two types; float weights do not count."""
    assert may_saturate(model) is expected
