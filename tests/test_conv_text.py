"""The numpy evaluation of the operator texts, against three others: by hand, onnxruntime, ONNX."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from support.asserts import session
from support.conv_graphs import OPSETS, Case, for_all
from support.conv_text import OPERATORS, SAME, attributes, evaluate, slide_of
from support.onnx_cases import onnx_cases


def run(op: str, x: list[float], *rest: list[float], opset: int = 17, **attrs: object) -> list:
    """One node on one channel of one axis."""
    arrays = [np.asarray(x, np.float32).reshape(1, 1, -1)]
    arrays += [np.asarray(r, np.float32).reshape((1, 1, -1) if i == 0 else (-1,))
               for i, r in enumerate(rest)]  # fmt: skip
    names = [f"i{k}" for k in range(len(arrays))]
    node = helper.make_node(op, names, ["y"], **attrs)
    inputs = [helper.make_tensor_value_info("i0", 1, arrays[0].shape)]
    constants = [numpy_helper.from_array(a, n) for a, n in zip(arrays[1:], names[1:], strict=True)]
    result = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "one", inputs, [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return evaluate(model, {"i0": arrays[0]})["y"][0, 0].tolist()


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({}, [21, 32]),
        ({"pads": [1, 0]}, [10, 21, 32]),
        ({"pads": [0, 2]}, [21, 32, 3, 0]),
        ({"auto_pad": "VALID"}, [21, 32]),
        ({"auto_pad": "SAME_UPPER"}, [21, 32, 3]),
        ({"auto_pad": "SAME_LOWER"}, [10, 21, 32]),
        ({"auto_pad": "SAME_UPPER", "dilations": [2]}, [20, 31, 2]),
        ({"auto_pad": "SAME_UPPER", "strides": [2]}, [21, 3]),
        ({"auto_pad": "SAME_LOWER", "strides": [2]}, [10, 32]),
        ({"dilations": [2]}, [31]),
        ({"strides": [2], "pads": [1, 0]}, [10, 32]),
    ],
)
def test_conv_by_hand(attrs, expected):
    """Every version gives the same for 1, 2, 3 with the kernel 1, 10."""
    for opset in (1, 11, 22):
        assert run("Conv", [1, 2, 3], [1, 10], opset=opset, **attrs) == expected
        with_bias = run("Conv", [1, 2, 3], [1, 10], [0.5], opset=opset, **attrs)
        assert with_bias == [y + 0.5 for y in expected]


def test_same_with_a_stride_beyond_the_kernel():
    """Two of five cells, and no padding: less than none would be needed."""
    for mode in SAME:
        assert run("Conv", [1, 2, 3, 4, 5], [1], auto_pad=mode, strides=[3]) == [1, 4]


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({}, [1, 10, 102, 20, 200]),
        ({"pads": [1, 1]}, [10, 102, 20]),
        ({"pads": [1, 1], "output_padding": [1]}, [10, 102, 20, 200]),
        ({"output_padding": [1]}, [1, 10, 102, 20, 200, 0]),
        ({"auto_pad": "VALID"}, [1, 10, 102, 20, 200]),
        ({"auto_pad": "SAME_UPPER"}, [1, 10, 102, 20]),
        ({"auto_pad": "SAME_LOWER"}, [10, 102, 20, 200]),
        ({"auto_pad": "SAME_UPPER", "output_padding": [1]}, [10, 102, 20, 200]),
        ({"output_shape": [4]}, [10, 102, 20, 200]),
        ({"output_shape": [4], "auto_pad": "SAME_UPPER"}, [1, 10, 102, 20]),
        ({"output_shape": [4], "pads": [2, 2]}, [10, 102, 20, 200]),
        ({"output_shape": [1, 1, 4]}, [10, 102, 20, 200]),
        ({"output_shape": [7]}, [1, 10, 102, 20, 200, 0, 0]),
    ],
)
def test_conv_transpose_by_hand(attrs, expected):
    """The input is 1, 2, the kernel 1, 10, 100, the stride 2."""
    for opset in (1, 11, 22):
        attrs |= {"strides": [2]}
        kernel = [1, 10, 100]
        assert run("ConvTranspose", [1, 2], kernel, opset=opset, **attrs) == expected
        with_bias = run("ConvTranspose", [1, 2], kernel, [0.5], opset=opset, **attrs)
        assert with_bias == [y + 0.5 for y in expected]


def test_conv_transpose_with_dilation():
    """The cells of the kernel lie apart."""
    assert run("ConvTranspose", [1, 2], [1, 10], dilations=[3]) == [1, 2, 0, 10, 20]


def test_a_negative_total_appends():
    """Stride 2 and kernel 1 leave out the last cell: it is added, and holds nothing."""
    for mode in SAME:
        assert run("ConvTranspose", [1, 2], [1], strides=[2], auto_pad=mode) == [1, 0, 2, 0]


@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [
        ("MaxPool", {"pads": [1, 1]}, [-1, -1, -2, -3]),
        ("MaxPool", {"strides": [2], "ceil_mode": 1}, [-1, -3]),
        ("MaxPool", {"strides": [2]}, [-1]),
        ("AveragePool", {"pads": [1, 1]}, [-1, -1.5, -2.5, -3]),
        ("AveragePool", {"pads": [1, 1], "count_include_pad": 1}, [-0.5, -1.5, -2.5, -1.5]),
        ("AveragePool", {"strides": [2], "ceil_mode": 1}, [-1.5, -3]),
        ("AveragePool", {"strides": [2], "ceil_mode": 1, "count_include_pad": 1}, [-1.5, -3]),
        ("AveragePool", {"auto_pad": "SAME_UPPER"}, [-1.5, -2.5, -3]),
        ("AveragePool", {"auto_pad": "SAME_LOWER"}, [-1, -1.5, -2.5]),
    ],
)
def test_pools_by_hand(op, attrs, expected):
    """Padding never wins for -1, -2, -3, two at a time, and counts on request."""
    assert run(op, [-1, -2, -3], kernel_shape=[2], **attrs) == expected


def told_apart(model: onnx.ModelProto) -> bool:
    """Return true if onnxruntime parts from the texts: SAME pads below nothing."""
    shapes = {c.name: tuple(c.dims) for c in model.graph.initializer}
    for node in model.graph.node:
        attrs = attributes(node)
        if attrs.get("auto_pad") in SAME:
            slide = slide_of(attrs, shapes.get(node.input[-1], ())[2:])
            if len(node.input) > 1:
                slide = slide_of(attrs, shapes[node.input[1]][2:])
            if any(s > r for s, r in zip(slide.strides, slide.reaches, strict=True)):
                return True
    return False


@pytest.mark.parametrize("opset", [o for o in OPSETS if o >= 7])
def test_against_onnxruntime(opset):
    """Random graphs as they are, wherever onnxruntime takes them."""
    ran = 0

    def law(case: Case) -> None:
        nonlocal ran
        try:
            values = session(case.model).run(None, case.feeds)
        except Exception:  # dilated SAME, pads of zero beside auto_pad; its own classes
            return
        if told_apart(case.model):
            return
        ran += 1
        for wanted, value in zip(evaluate(case.model, case.feeds).values(), values, strict=True):
            assert value.shape == wanted.shape
            assert np.abs(value - wanted).max() <= 1e-4 * np.abs(wanted).max() + 1e-6

    for_all(opset, 60, law)
    assert ran >= 15


@pytest.mark.e2e
def test_against_the_tests_of_onnx():
    """The texts agree with ONNX's own tests."""
    ran = set()
    for case in onnx_cases():
        kinds = {node.op_type for node in case.model.graph.node}
        single = len(case.model.graph.output) == 1
        if not kinds <= set(OPERATORS) or not single:
            continue
        (value,) = evaluate(case.model, case.feeds).values()
        np.testing.assert_allclose(value, case.outputs[0], case.rtol, 1e-5, err_msg=case.name)
        ran |= kinds
    assert ran >= set(OPERATORS) - {"Add", "Mul", "Flatten"}
