"""The evaluator of com.ms.internal.nhwc in the tests, against a loop over the text of Conv-11."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from npuconv import executor
from npuconv.model import conv
from npuconv.model.nhwc import ACTIVATIONS, DOMAIN, to_first, to_last
from support.nhwc_reference import evaluate, run_reference


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def proto(op: str, arrays: dict[str, np.ndarray], *, domain: str = "", opset: int = 21, **attrs):
    """A model of one operator."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in arrays.items()
    ]
    node = helper.make_node(op, list(arrays), ["y"], domain=domain, **attrs)
    output = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "one", inputs, [output])
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 11))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def by_onnxruntime(op: str, arrays: dict[str, np.ndarray], **attrs) -> np.ndarray:
    """The standard operator between two transpositions."""
    first = dict(arrays)
    rank = first["x"].ndim
    first["x"] = np.ascontiguousarray(first["x"].transpose(to_first(rank)))
    session = executor.Session(proto(op, first, **attrs), threads=1, optimize=False)
    return session.run(first)["y"].transpose(to_last(rank))


def by_loop(x: np.ndarray, w: np.ndarray, b: np.ndarray, pads, strides, dilations, group: int):
    """Conv-11, one output cell after the other: Y[n, m, o] = B[m] + sum of X times W."""
    kernel, spatial = w.shape[2:], x.shape[1:-1]
    extents = [
        (size + sum(pad) - ((k - 1) * d + 1)) // s + 1
        for size, pad, k, d, s in zip(spatial, pads, kernel, dilations, strides, strict=True)
    ]
    y = np.zeros((x.shape[0], *extents, w.shape[0]))
    per_group, maps = w.shape[1], w.shape[0] // group
    for n, m, *out in np.ndindex(x.shape[0], w.shape[0], *extents):
        total = float(b[m])
        for c, *k in np.ndindex(per_group, *kernel):
            rows = zip(out, strides, k, dilations, pads, strict=True)
            at = [o * s + i * d - begin for o, s, i, d, (begin, _) in rows]
            if all(0 <= a < size for a, size in zip(at, spatial, strict=True)):
                total += float(x[(n, *at, m // maps * per_group + c)]) * float(w[(m, c, *k)])
        y[(n, *out, m)] = total
    return y


def flat(pads) -> list[int]:
    return [begin for begin, _ in pads] + [end for _, end in pads]


def close(a: np.ndarray, b: np.ndarray) -> None:
    assert a.shape == b.shape
    assert np.max(np.abs(a - b), initial=0.0) <= 1e-5 * max(1.0, float(np.abs(b).max(initial=0)))


@st.composite
def convolutions(draw):
    """X, W, B and attributes of one to three spatial axes."""
    axes = draw(st.integers(1, 3))

    def each(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=axes, max_size=axes))

    group, per_group = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    kernel, strides, dilations = each(1, 3), each(1, 3), each(1, 2)
    spatial, begins, ends = each(3, 6), each(0, 2), each(0, 2)
    pads = list(zip(begins, ends, strict=True))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    fits = [n + sum(p) >= e for n, p, e in zip(spatial, pads, reach, strict=True)]
    assume(all(fits))
    maps = group * draw(st.integers(1, 2))
    x = random(draw(st.integers(1, 2)), *spatial, group * per_group)
    w, b = random(maps, per_group, *kernel), random(maps)
    return x, w, b, pads, strides, dilations, group


@given(convolutions())
@settings(max_examples=60)
def test_conv_is_the_text(case):
    """All attributes at once, against the loop."""
    x, w, b, pads, strides, dilations, group = case
    attrs = {"pads": flat(pads), "strides": strides, "dilations": dilations, "group": group}
    found = evaluate("Conv", [x, w, b], attrs)
    close(found, by_loop(x, w, b, pads, strides, dilations, group))


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_auto_pad_with_dilation(mode):
    """onnxruntime refuses it; the text says ceil(in / stride) cells, padded on both sides."""
    x, w, b = random(1, 7, 6, 2), random(2, 2, 3, 2), random(2)
    attrs = {"auto_pad": mode, "strides": [2, 1], "dilations": [2, 3]}
    found = evaluate("Conv", [x, w, b], attrs)
    assert found.shape == (1, 4, 6, 2)
    rows = zip((7, 6), (3, 2), (2, 1), (2, 3), strict=True)
    pads = [conv.conv_pads(mode, n, k, s, d) for n, k, s, d in rows]
    close(found, by_loop(x, w, b, pads, [2, 1], [2, 3], 1))


STANDARD = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "LeakyRelu": {"alpha": 0.3},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_activations(name, op):
    """Activations are the standard operators of that name, parameters in order."""
    inputs = [random(1, 6, 7, 3), random(4, 3, 2, 2)][: 2 if op == "Conv" else 1]
    attrs = {} if op == "Conv" else {"kernel_shape": [2, 2]}
    params = [-0.25, 0.5] if name == "Clip" else list(STANDARD[name].values())
    found = evaluate(op, inputs, {**attrs, "activation": name, "activation_params": params})
    plain = evaluate(op, inputs, attrs)
    if name == "Clip":
        close(found, np.clip(plain, -0.25, 0.5))
        return
    model = proto(name, {"x": plain}, **STANDARD[name])
    close(found, executor.Session(model).run({"x": plain})["y"])


def test_crossed_bounds():
    """The upper one wins, as in ONNX's Clip."""
    params = {"activation": "Clip", "activation_params": [2.0, 1.0], "kernel_shape": [1, 1]}
    assert np.all(evaluate("MaxPool", [random(1, 2, 2, 1)], params) == 1)


def test_onnx_reference_runs_it():
    """Nodes are found by domain, with attributes as strings and floats."""
    x, w = random(1, 5, 5, 3), random(4, 3, 3, 3)
    attrs = {"activation": "LeakyRelu", "activation_params": [0.25], "auto_pad": "SAME_UPPER"}
    model = proto("Conv", {"x": x, "w": w}, domain=DOMAIN, **attrs)
    found = run_reference(model, {"x": x, "w": w})["y"]
    plain = by_onnxruntime("Conv", {"x": x, "w": w}, auto_pad="SAME_UPPER")
    assert found.dtype == np.float32
    close(found, np.where(plain < 0, 0.25 * plain, plain))
