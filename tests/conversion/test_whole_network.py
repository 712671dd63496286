"""Conversion of a network whose operators the target lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml

import npuconv
from npuconv import executor
from npuconv.evaluate.simulator import as_float
from support.builders import Net
from support.target_files import NUMBERS, WEIGHTS

X = (1, 3, 12, 12)
OPS = (
    "Conv", "Relu", "Clip", "Add", "Mul", "Sub", "HardSwish", "Sigmoid", "AveragePool",
    "GlobalAveragePool", "Concat", "MaxPool", "Resize",
)  # fmt: skip


def target_file(
    folder: Path, *ops: str, zero_point: object = (-128, 127), requantize: object = "float"
) -> str:
    """A target that lists these operators."""
    text = {
        "schema": 1,
        "name": "chip",
        "operators": {op: {"requantizes": True} if op == "Concat" else {} for op in ops},
        "activations": {
            **NUMBERS,
            "zero_point": {"range": list(zero_point)},
            "requantize": requantize,
        },
        "weights": WEIGHTS,
        "fused_activations": {"one_of": ["Relu", "Clip"]},
        "unlisted_operators": "host",
    }
    path = folder / "chip.yaml"
    path.write_text(yaml.safe_dump(text), "utf-8")
    return str(path)


def network() -> Net:
    """A residual block with a gate, a pool, a Concat and a constant between convolutions."""
    net = Net(x=X)
    net.conv("x", (8, 3, 3, 3), pads=[1] * 4, to="a").op("HardSwish", to="h")
    net.conv("h", (8, 8, 3, 3), pads=[1] * 4, to="b").op("Relu", to="r").op("Add", "r", "h", to="s")
    net.op("GlobalAveragePool", "s", to="m").conv("m", (8, 8, 1, 1), to="g").op("Sigmoid", to="e")
    net.op("Mul", "s", "e", to="p").op("Sub", "p", net.random(8, 1, 1), to="q")
    net.op("AveragePool", "q", kernel_shape=[3, 3], pads=[1] * 4, to="v")
    net.op("Concat", "v", "s", axis=1, to="c")
    return net.conv("c", (4, 16, 1, 1), to="y")


def samples(count: int = 12) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {"x": rng.standard_normal((count, *X[1:])).astype(np.float32)}


def convert(folder: Path, *, ops: tuple[str, ...] = OPS, **options: object) -> npuconv.Conversion:
    kind = {key: options.pop(key) for key in ("zero_point", "requantize") if key in options}
    target = target_file(folder, *ops, **kind)
    return npuconv.convert(network().model(), target, calibration=samples(), **options)


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_nothing_crosses_but_input_and_output(tmp_path, form):
    """Accuracy stays: every tensor but those two is int8."""
    made = convert(tmp_path, format=form)
    assert made.report.summary.transitions == 2
    assert {n.placement for n in made.report.nodes} == {"device"}
    assert made.report.accuracy.sqnr_db > 25
    onnx.checker.check_model(made.model)
    rows = {t.name: t for t in made.report.quantization.tensors}
    assert {"a", "h", "r", "s", "m", "e", "p", "q", "v", "c"} <= rows.keys()
    assert all(rows[name].channels == 1 for name in "hrsmepqvc")


def test_forms_of_operators(tmp_path):
    """Integer operators of onnxruntime, or the standard domain only; the numbers are near."""
    ours, standard = convert(tmp_path), convert(tmp_path, standard_ops=True)
    found = {n.op_type for n in ours.model.graph.node if n.domain == "com.microsoft"}
    assert found == {
        "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearAveragePool",
        "QLinearGlobalAveragePool", "QLinearConcat",
    }  # fmt: skip
    assert {n.domain for n in standard.model.graph.node} == {""}
    assert ours.report.accuracy.sqnr_db == pytest.approx(standard.report.accuracy.sqnr_db, abs=1)


def test_the_simulator_is_bit_exact(tmp_path):
    """Float carriers hold the integers that onnxruntime computes, node by node."""
    made = convert(tmp_path, format="qoperator").model
    names = [n.output[0] for n in made.graph.node if n.op_type.startswith("QLinear")]
    feed = {"x": samples()["x"][:1]}
    exact = executor.Session(executor.with_outputs(made, names), optimize=False).run(feed, names)
    ours = executor.Session(as_float(made, names), optimize=False).run(feed, names)
    for name in names:
        np.testing.assert_array_equal(ours[name], exact[name], name)


def test_convolutions_only_cross_everywhere(tmp_path):
    """The same network where nothing else is listed."""
    made = convert(tmp_path, ops=("Conv", "Relu"))
    assert made.report.summary.transitions == 10
    assert {n.op for n in made.report.nodes if n.placement == "device"} == {"Conv", "Relu"}


def test_zero_points_where_the_device_takes_them(tmp_path):
    """Positive tensors have all levels; a device without zero points has half of them."""
    free = convert(tmp_path).report.quantization.tensors
    fixed = convert(tmp_path, zero_point=(0, 0)).report.quantization.tensors
    assert {t.name: t.zero_point for t in free}["e"] == -128
    assert {t.name: t.zero_point for t in fixed if t.name in "hrsmepqvc"} == dict.fromkeys(
        "hrsmepqvc", 0
    )


def test_check_shows_what_convert_does(tmp_path):
    made = convert(tmp_path).report
    seen = npuconv.check(network().model(), target_file(tmp_path, *OPS), calibration=samples())
    assert seen.summary.transitions == made.summary.transitions
    assert [(n.name, n.placement, n.reason) for n in seen.nodes] == [
        (n.name, n.placement, n.reason) for n in made.nodes
    ]


def test_an_operator_reads_the_input_of_the_model(tmp_path):
    """The host quantizes it once, for the operator and for the convolution."""
    net = Net(x=X)
    net.conv("x", (3, 3, 1, 1), to="a").op("Add", "a", "x", to="s").conv("s", (4, 3, 1, 1))
    target = target_file(tmp_path, "Conv", "Add")
    made = npuconv.convert(net.model(), target, calibration=samples())
    assert made.report.summary.transitions == 2
    assert sum(n.op_type == "QuantizeLinear" for n in made.model.graph.node) <= 2
    session = onnxruntime.InferenceSession(made.model.SerializeToString())
    assert np.isfinite(session.run(None, {"x": samples()["x"][:1]})[0]).all()


@pytest.mark.parametrize("extra", [{"max_extra_macs": 60.0}, {"pad_on_host": "all"}])
def test_steps_for_accuracy_keep_the_choice(tmp_path, extra):
    """Copies of layers and host padding change the graph, not which operators run in int8."""
    made = convert(tmp_path, fail_on="never", **extra)
    device = {n.op for n in made.report.nodes if n.placement == "device"}
    assert {"HardSwish", "Sigmoid", "Mul"} <= device
    assert made.report.accuracy.sqnr_db > 20


def test_a_spelled_out_function_is_one_table(tmp_path):
    """HardSwish in four operators is rounded once: as exact as in one."""

    def converted(spelled: bool) -> npuconv.Conversion:
        net = Net(x=X).conv("x", (8, 3, 3, 3), to="a")
        none, three, six = map(net.constant, (0.0, 3.0, 6.0))  # in both: weights are the same
        if spelled:
            net.op("Add", "a", three, to="b").op("Clip", "b", none, six, to="c")
            net.op("Mul", "a", "c", to="d").op("Div", "d", six, to="h")
        else:
            net.op("HardSwish", "a", to="h")
        net.conv("h", (4, 8, 1, 1))
        target = target_file(tmp_path, *OPS, "Div")
        return npuconv.convert(net.model(), target, calibration=samples())

    one, four = converted(spelled=False), converted(spelled=True)
    assert one.report.summary.transitions == four.report.summary.transitions == 2
    rows = {t.name: t for t in four.report.quantization.tensors}
    assert rows.keys().isdisjoint("bcd")
    kept = {t.name: t for t in one.report.quantization.tensors}
    assert rows["h"].scale == pytest.approx(kept["h"].scale, rel=1e-5)
    assert one.report.accuracy.sqnr_db == pytest.approx(four.report.accuracy.sqnr_db, abs=0.1)


@pytest.mark.parametrize("kind", ["float", "shift"])
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_a_normalization_is_one_operator_of_the_device(tmp_path, form, kind):
    """Nothing crosses, and the simulator has the integers of the device."""
    target = target_file(tmp_path, *OPS, "LayerNormalization", requantize=kind)
    net = Net(opset=17, x=X).conv("x", (8, 3, 3, 3), to="a")
    net.op("LayerNormalization", "a", net.random(10, low=0.5, high=2), net.random(10), to="n")
    model = net.conv("n", (4, 8, 1, 1), to="y").model()
    made = npuconv.convert(model, target, calibration=samples(), format=form)
    assert made.report.summary.transitions == 2
    assert made.report.accuracy.sqnr_db > 30
    feeds = {"x": samples()["x"][:1]}
    ours = executor.Session(as_float(made.model)).run(feeds)["y"]
    session = onnxruntime.InferenceSession(made.model.SerializeToString())
    theirs = session.run(None, feeds)[0]
    assert np.abs(ours - theirs).max() <= (0 if kind == "float" else 0.1 * theirs.max())


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_a_device_that_shifts_is_simulated(tmp_path, form):
    """Integers of few bits, which are not those of onnxruntime; all operators but tables."""
    coarse = {"kind": "shift", "multiplier_bits": 4, "rounding": "half_up"}
    made = convert(tmp_path, format=form, requantize=coarse)
    graph = as_float(made.model)
    left = {node.op_type for node in graph.graph.node}
    assert "GlobalAveragePool" not in left
    assert {op for op in left if op.startswith("QLinear")} <= {"QLinearSigmoid"}
    feeds = {"x": samples()["x"][:1]}
    ours = executor.Session(graph).run(feeds)["y"]
    theirs = onnxruntime.InferenceSession(made.model.SerializeToString()).run(None, feeds)[0]
    exact = onnxruntime.InferenceSession(network().model().SerializeToString()).run(None, feeds)[0]
    assert not np.array_equal(ours, theirs)
    assert np.square(ours - exact).sum() < 0.05 * np.square(exact).sum()


@pytest.mark.parametrize("lowest", [-128, 0])
def test_a_constant_of_one_sign_has_all_levels(tmp_path, lowest):
    """A device that has no zero point but 0 has half of them; a tenth may be unused."""
    net = Net(x=X).conv("x", (8, 3, 3, 3), to="a").op("HardSwish", "a", to="h")
    net.op("Sub", "h", net.random(8, 1, 1, low=1, high=3), to="b")
    net.op("GlobalAveragePool", "b", to="g").conv("g", (4, 8, 1, 1), to="y")
    target = target_file(tmp_path, *OPS, zero_point=(lowest, -lowest - (lowest < 0)))
    made = npuconv.convert(net.model(), target, calibration=samples(), format="qdq").model
    found = {t.name: onnx.numpy_helper.to_array(t) for t in made.graph.initializer}
    (name,) = (name for name in found if name.endswith("/constant/int8"))
    stem = name.removesuffix("/int8")
    assert int(found[f"{stem}/zero_point"]) == lowest
    assert int(found[name].max()) - lowest >= (127 - lowest) / 1.1 - 1
    real = (found[name].astype(int) - lowest) * found[f"{stem}/scale"]
    assert 1 <= real.min() < real.max() <= 3.02
