"""Running models: on onnxruntime, on ONNX's reference, and what a refusal looks like."""

from __future__ import annotations

import numpy as np
import onnx
import psutil
import pytest
from google.protobuf.message import EncodeError
from onnx import helper, numpy_helper

from npuconv import executor
from npuconv.executor import RuntimeRefusedError, Session, first_line, refusal, run_reference
from support.builders import Net, digits, images, integer_conv


def negation():
    return Net(x=("n", 3), other=(1, 3)).op("Neg", "x").op("Abs", "x").output("t0", "t1").model()


def test_a_session_runs():
    """Arrays by name come out; inputs the model does not have are ignored."""
    session = Session(negation())
    assert (session.inputs, session.outputs) == (["x", "other"], ["t0", "t1"])
    assert not refusal(negation(), {"x": images(2, 3), "other": images(1, 3)})
    x = images(2, 3)
    found = session.run({"x": x, "other": images(1, 3), "unknown": x})
    assert list(found) == ["t0", "t1"]
    assert np.array_equal(found["t0"], -x)
    assert list(session.run({"x": x, "other": images(1, 3)}, ["t1"])) == ["t1"]


def test_a_layout_that_the_optimizer_spoils():
    """Channels that move to the end spoil a cubic Resize, which has no kernel for that."""
    proto = integer_conv(np.ones((2, 2, 1, 1), np.int8))
    net = proto.graph.node
    net[-1].output[0] = "wide"
    net.append(helper.make_node("Resize", ["wide", "", "scales"], ["y"], mode="cubic"))
    scales = numpy_helper.from_array(np.asarray([1, 1, 0.5, 1], np.float32), "scales")
    proto.graph.initializer.append(scales)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [1, 2, 4, 8]))
    assert Session(proto).run({"x": images(1, 2, 8, 8)})["y"].shape == (1, 2, 4, 8)


def test_a_transpose_that_the_optimizer_moves():
    """Behind a linear Resize of height and width it would be one that has no kernel."""
    net = Net(x=(1, 3, 4, 6)).op("Transpose", perm=[0, 2, 3, 1])
    scales = net.constant(np.asarray([1, 1, 2, 0.5], np.float32))
    proto = net.op("Resize", net.last, "", scales, mode="linear", to="y").model()
    both = [Session(proto, optimize=it) for it in (True, False)]
    assert "graph_optimization_level of its SessionOptions to ORT_" in refusal(proto)
    made = [session.run({"x": images(1, 3, 4, 6)})["y"] for session in both]
    np.testing.assert_array_equal(*made)


def test_a_normalization_that_the_optimizer_sees():
    """Fused, it refuses a scale that is broadcast, and only when it runs."""
    net = Net(x=(1, 16, 2, 1)).op("ReduceMean", axes=[-1], to="mean").op("Sub", "x", "mean", to="d")
    net.op("Pow", "d", net.constant(np.float32(2))).op("ReduceMean", axes=[-1])
    net.op("Add", net.last, net.constant(np.float32(1e-5))).op("Sqrt", to="deviation")
    scaled = net.op("Div", "d", "deviation").op("Mul", net.last, net.random(16))
    proto = scaled.op("Add", net.last, net.random(16), to="y").model()
    both = [Session(proto, optimize=it) for it in (True, False)]
    made = [session.run({"x": images(1, 16, 2, 1)})["y"] for session in both]
    assert not refusal(proto)
    assert "does not run the file at its default settings" in refusal(
        proto, {"x": images(1, 16, 2, 1)}
    )
    np.testing.assert_array_equal(*made)


def test_a_large_model_runs_as_it_is_written(monkeypatch):
    """Optimizing takes longer than running, and the values are those of the model."""
    x = {"x": images(1, 1, 8, 8)}
    plain, written = Session(digits(), threads=1), Session(digits(), threads=1, optimize=False)
    monkeypatch.setattr(executor, "LARGE", len(digits().graph.node) - 1)
    large = Session(digits(), threads=1)
    values = [next(iter(one.run(x).values())) for one in (large, written, plain)]
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_allclose(values[0], values[2], rtol=1e-5)
    levels = [one._session.get_session_options().graph_optimization_level for one in (large, plain)]
    assert levels[0] != levels[1]


def test_a_model_that_is_refused(capfd):
    """One line says why, without the runtime's prefix, and nothing is printed."""
    model = Net(x=(1, 3)).op("Thing", domain="com.example").model()
    with pytest.raises(RuntimeRefusedError) as caught:
        Session(model)
    assert "Thing" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "[ONNXRuntimeError]" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_inputs_that_are_refused(capfd):
    """A shape that does not fit is a refusal as well."""
    session = Session(digits())
    with pytest.raises(RuntimeRefusedError, match="dimension"):
        session.run({"x": images(1, 1, 7, 7)})
    with pytest.raises(RuntimeRefusedError, match="x"):
        session.run({})
    assert capfd.readouterr() == ("", "")


class TooLarge:
    """A model as protobuf sees one of more than 2 GB: it cannot be serialized."""

    graph, functions = onnx.GraphProto(), ()

    def SerializeToString(self):  # noqa: N802
        """Fail as protobuf does."""
        raise EncodeError("Failed to serialize proto")


HUGE = """<ir_version: 8, opset_import: ["": 17]>
huge (float[1] x, int64[1] size) => (float[n] y) { y = Expand (x, size) }"""
HUGE_FEED = {"x": np.zeros(1, np.float32), "size": np.array([10**15])}


@pytest.mark.parametrize(
    "run",
    [
        lambda model: Session(model).run(HUGE_FEED),
        lambda model: refusal(model, HUGE_FEED),
        lambda model: run_reference(model, HUGE_FEED),
    ],
)
def test_a_lack_of_memory_is_never_tried_again(monkeypatch, run):
    """It is no refusal: onnxruntime crashes in a session that begins while memory is short."""
    loads, load = [], executor.ort.InferenceSession
    monkeypatch.setattr(
        executor.ort, "InferenceSession", lambda *a, **k: loads.append(a) or load(*a, **k)
    )
    with pytest.raises(MemoryError):
        run(onnx.parser.parse_model(HUGE))
    assert len(loads) <= 1


@pytest.mark.parametrize(
    "text", ["std::bad_alloc", "pthread_create failed: Cannot allocate memory"]
)
def test_a_lack_of_memory_of_a_new_session(monkeypatch, capsys, text):
    """Neither npuconv tries again, with less optimization, nor onnxruntime, with its fallback."""
    loads = []

    def fail(*_, **__):
        loads.append(text)
        raise RuntimeError(text)

    monkeypatch.setattr(executor.ort.InferenceSession, "_create_inference_session", fail)
    with pytest.raises(MemoryError):
        Session(negation())
    assert loads == [text]
    assert capsys.readouterr() == ("", "")


def test_a_model_over_two_gigabytes():
    """onnxruntime cannot take it in one piece, and that is no crash."""
    with pytest.raises(RuntimeRefusedError, match="serialize"):
        Session(TooLarge())


def test_the_reference():
    """The reference runs a model that onnxruntime refuses: SAME padding with dilation."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), auto_pad="SAME_UPPER", dilations=[2, 2])
    model = net.model()
    (found,) = run_reference(model, {"x": images(1, 3, 8, 8)}).values()
    assert found.shape == (1, 4, 8, 8)


def test_the_reference_refuses_too():
    """An operator that nobody knows runs nowhere."""
    model = Net(x=(1, 3)).op("Thing", domain="com.example").model()
    with pytest.raises(RuntimeRefusedError):
        run_reference(model, {"x": images(1, 3)})


def test_the_reference_prints_no_warnings():
    """Numbers that overflow are the model's business."""
    net = Net(x=(1, 3)).op("Exp")
    (found,) = run_reference(net.model(), {"x": np.full((1, 3), 1e4, np.float32)}).values()
    assert np.isinf(found).all()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError(""), "ValueError"),
        (ValueError("[ONNXRuntimeError] : 1 : FAIL : Load failed: why"), "Load failed: why"),
        (ValueError("a : b : c : d"), "a : b : c : d"),
    ],
)
def test_first_line(error, line):
    """The message comes without the status in front of it."""
    assert first_line(error) == line


def test_a_session_does_not_change_the_model():
    """The same proto can be run again."""
    model = digits()
    before = model.SerializeToString()
    executor.Session(model)
    assert model.SerializeToString() == before
    onnx.checker.check_model(model)


def test_cores_that_the_process_may_run_on(monkeypatch):
    """Only cores that the process is bound to count; fewer on request."""
    monkeypatch.setattr(executor.os, "sched_getaffinity", lambda _pid: {3}, raising=False)
    monkeypatch.setattr(executor.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(executor, "_limit", 0)
    assert executor.cores() == executor.available() == 1
    monkeypatch.setattr(executor, "_limit", 2)
    assert executor.cores() == 2
    monkeypatch.delattr(executor.os, "sched_getaffinity")
    assert executor.available() == 64


def test_more_outputs():
    """Each once, behind those that there are; the model itself has no more."""
    model = digits()
    end = model.graph.output[0].name
    made = executor.with_outputs(model, ["t0", end])
    assert [o.name for o in made.graph.output] == [end, "t0"]
    assert [o.name for o in model.graph.output] == [end]
    assert set(executor.Session(made).run({"x": images(1, 1, 8, 8)})) == {end, "t0"}


def draws(op: str) -> Net:
    net = Net(x=(1, 64)).op("Sigmoid", "x")
    if op == "Dropout":
        return net.op(op, net.last, net.constant(0.5), net.constant(np.asarray(True)))
    return net.op(op, net.last)


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli", "Dropout"])
def test_random_operators_draw_the_same_numbers(op: str) -> None:
    """Two models draw the same numbers for the same draw, in any order; others for another."""
    small = draws(op)
    large = draws(op).op("Identity").op("Identity")
    x = {"x": images(1, 64)}
    one, two = Session(small.model()), Session(large.model())
    runs = [one.run(x, draw=k)[small.last] for k in (0, 1, 0)]
    again = [two.run(x, draw=k)[large.last] for k in (1, 0)]
    assert np.array_equal(runs[0], runs[2])
    assert not np.array_equal(runs[0], runs[1])
    assert np.array_equal(runs[0], again[1])
    assert np.array_equal(runs[1], again[0])


def test_random_operators_in_branches_and_beside_each_other() -> None:
    """Each has numbers of its own, those in subgraphs as well."""
    net = Net(x=(1, 64)).op("RandomNormalLike", "x", to="a").op("RandomNormalLike", "x", to="b")
    then, otherwise = (Net(prefix=p).op("RandomNormalLike", "x") for p in ("t", "e"))
    model = net.branch(then, otherwise).output("a", "b", net.last).model()
    x = {"x": images(1, 64)}
    first, second = Session(model).run(x), Session(model).run(x)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["a"], first["b"])
    assert not np.array_equal(first["a"], first[net.last])


def test_one_arena():
    """Sessions share memory within the statement; behind it the memory is free, also on errors."""
    model = Net(x=("N",)).op("Neg").op("Abs").model()
    values = np.ones(2**24, np.float32)  # 64 MiB

    def resident() -> float:
        return psutil.Process().memory_info().rss / 2**20

    with executor.one_arena():
        before = resident()
        for _ in range(3):
            result = executor.Session(model).run({"x": values})["t1"]
            assert (result == 1).all()
            del result
        held = resident() - before
    assert 64 <= held < 3 * 64 + 32
    assert resident() - before < 32
    with pytest.raises(ZeroDivisionError), executor.one_arena():
        raise ZeroDivisionError
    assert (executor.Session(model).run({"x": -values[:4]})["t1"] == 1).all()
