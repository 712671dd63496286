"""Tensors that the float pass observes, and its statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import npuconv
from npuconv.config import Preprocess
from npuconv.data import open_samples
from npuconv.data.model_inputs import first_convolution, sample_inputs
from npuconv.errors import CalibrationError
from npuconv.legalize.legal import LegalModel
from npuconv.quantize import calibrate as calibration
from npuconv.quantize import settings
from npuconv.quantize.calibrate import Calibration, calibrate, watched
from support.asserts import context, read
from support.builders import Net
from support.plans import planned
from support.target_files import HEAD

X = (1, 3, 8, 8)


def chain() -> Net:
    """Two layers with activations, and one that only the host follows."""
    net = Net(x=X).conv("x", (4, 3, 1, 1), name="first", to="a").op("Relu", "a", to="r")
    net.conv("r", (4, 4, 1, 1), name="second", to="b").op("Relu", "b", to="s")
    return net.conv("s", (2, 4, 1, 1), name="third", to="c").op("Sigmoid", "c", to="y")


def found(graph: LegalModel, values: np.ndarray | None, **steps: object) -> Calibration:
    """Calibrate on these samples, or on made-up ones for None."""
    proto = graph.proto
    source = None if values is None else {"x": values}
    inputs, _ = sample_inputs(graph.model, proto, source)
    samples = open_samples(source, inputs, Preprocess())
    return calibrate(graph, samples, steps.get("step", lambda *_: None))


@pytest.mark.parametrize("sides", [(4, 4), ("h", "w")])
def test_the_first_sample_is_tried(sides):
    """Extents may be open; only the first sample matters."""
    net = Net(x=(1, 4, *sides)).op("Log").conv(weight=(4, 4, 1, 1)).op("Relu")
    graph = planned(read(net.model()))
    values = np.ones((2, 4, 4, 4), np.float32)
    values[1] = -1
    inputs, _ = sample_inputs(graph.model, graph.proto, {"x": values})
    samples = open_samples({"x": values}, inputs, Preprocess())
    calibration.try_sample(graph, samples)
    with pytest.raises(CalibrationError, match="not finite"):
        calibration.try_sample(graph, samples[1:])


def test_ends_of_groups_are_watched():
    """Outputs of the first layer are observed, but not values that a later Relu cuts off."""
    assert dict(watched(planned(read(chain().model())))) == {"x": 1, "r": 1, "s": 1, "c": 1, "a": 1}


def test_what_training_has_statistics_of_is_watched():
    """A rule compares such tensors with the training."""
    model = read(chain().model())
    model.in_training = {"b": (np.zeros(4), np.ones(4))}
    assert "b" in watched(planned(model))


def test_tensors_of_one_scale_have_no_axis():
    """Integer inputs and outputs have one scale."""
    axes = watched(planned(read(chain().model()), context(io="int8")))
    assert (axes["x"], axes["r"]) == (None, 1)


@pytest.mark.parametrize(("build", "is_found"), [
    (lambda: Net(x=X).conv("x"), True),
    (lambda: Net(x=X).op("Transpose", perm=[0, 1, 3, 2]).conv(), True),
    (lambda: Net(x=X).pad([0, 0, 1, 1, 0, 0, 1, 1]).conv(), True),
    (lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2]).conv(), False),
    (lambda: Net(x=X, z=X).op("Add", "x", "z").conv(), False),
    (lambda: Net(x=X, w=(4, 3, 1, 1)).op("Conv", "x", "w"), False),
    (lambda: Net(x=(1, 3)).op("Relu"), False),
])  # fmt: skip
def test_the_first_convolution(build, is_found: bool):
    """Between it and an input are scale, offset and order alone."""
    assert (first_convolution(read(build().model())) is not None) == is_found


def test_statistics_and_windows():
    """All samples give statistics, a few give windows; each step is reported."""
    graph, steps = planned(read(chain().model())), []
    values = np.random.default_rng(0).standard_normal((40, 3, 8, 8)).astype(np.float32)
    seen = found(graph, values, step=lambda *step: steps.append(step))
    assert steps == [(k + 1, 40) for k in range(40)]
    assert set(seen.statistics) == set(watched(graph))
    assert seen.statistics["x"].samples == 40
    assert set(seen.hessians) == {"first", "second", "third"}
    own = settings.HESSIAN_SAMPLES - settings.HESSIAN_SAMPLES // settings.HESSIAN_HELD_OUT_EVERY
    assert seen.hessians["first"].count == own * 64


def test_a_model_without_layers():
    """A model without layers has no tensor to observe."""
    graph = planned(read(Net(x=X).op("Sigmoid").model()))
    seen = found(graph, np.zeros((4, 3, 8, 8), np.float32))
    assert (seen.statistics, seen.hessians) == ({}, {})


def test_whose_fault_it_is():
    """Made up samples are no fault of the user's; the model is named."""
    net = Net(x=X).op("Log", "x", to="l").conv("l", (4, 3, 1, 1))
    for values, hint in ((None, "made up"), (-np.ones((4, 3, 8, 8), np.float32), "normalization")):
        with pytest.raises(CalibrationError, match="test: ") as caught:
            found(planned(read(net.model())), values)
        assert hint in caught.value.hint


def test_samples_that_are_refused():
    """Numbers of the others stay those in the source; if none is taken, the first says why."""
    graph = planned(read(Net(x=X).op("Log", "x", to="l").conv("l", (4, 3, 1, 1)).model()))
    values = np.ones((5, 3, 8, 8), np.float32)
    inputs, _ = sample_inputs(graph.model, graph.proto, {"x": values})
    every = open_samples({"x": values}, inputs, Preprocess())
    assert calibration.without_refused(graph, every) is every
    values[[1, 4]] *= -1
    taken = calibration.without_refused(graph, every)
    assert taken.indices == (0, 2, 3)
    assert taken.notes[-1].startswith("2 of 5 built-in samples are left out")
    values[:] = -1
    with pytest.raises(CalibrationError, match="sample 0"):
        calibration.without_refused(graph, every)


_KEEP = np.tril(np.ones((8, 8), bool))


def masked(low: float, form: str) -> Net:
    """Scores of attention with a causal mask, which is added in some form, and a projection."""
    net = Net(x=(1, 8, 1, 8), **({"keep": (1, 8, 8)} if form == "input" else {}))
    for name in "qkv":
        net.conv("x", (8, 8, 1, 1), bias=False).reshape([1, 8, 8])
        net.op("Transpose", perm=[0, 1, 2] if name == "k" else [0, 2, 1], to=name)
    net.op("MatMul", "q", "k", to="scores")
    bias = np.where(_KEEP, 0, low).astype(np.float32)
    if form == "where":
        net.op("Where", net.constant(_KEEP), "scores", net.constant(np.float32(low)))
    elif form == "subtracted":
        net.op("Sub", "scores", net.constant(-bias))
    elif form == "input":
        net.op("Sub", net.constant(np.float32(1)), "keep").op("Mul", net.last, net.constant(low))
        net.op("Add", "scores", net.last)
    else:
        net.op("Add", "scores", net.constant(bias))
    if form == "moved":
        net.op("Transpose", perm=[0, 2, 1]).op("Softmax", axis=1).op("Transpose", perm=[0, 2, 1])
    else:
        net.op("Softmax", axis=-1)
    return net.op("MatMul", net.last, "v").reshape([1, 8, 1, 8]).conv(weight=(8, 8, 1, 1))


def device(folder: Path, *operators: str) -> Path:
    """A target file that lists these operators without limits."""
    path = folder / "device.yaml"
    path.write_text(HEAD + "".join(f"  {op}: {{}}\n" for op in operators))
    return path


@pytest.mark.parametrize("low", [-np.inf, -3.4e38, -1e9, -1e4])
@pytest.mark.parametrize("form", ["added", "subtracted", "where", "moved", "input"])
def test_a_mask_takes_no_steps_of_the_scores(tmp_path: Path, low: float, form: str):
    """A Softmax ignores what is far below its largest input; so does the range of that tensor."""
    if form == "input" and low == -np.inf:
        return  # 0 times -inf: such a model makes NaN
    target = device(
        tmp_path, "Conv", "Add", "Sub", "Mul", "MatMul", "Softmax", "Reshape", "Transpose"
    )
    model, rng = masked(low, form).model(), np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(8, 8, 1, 8)).astype(np.float32)}
    if form == "input":
        feeds["keep"] = np.repeat(_KEEP[None], 8, axis=0).astype(np.float32)
    result = npuconv.convert(model, target=target, calibration=feeds)
    places = {n.placement for n in result.report.nodes if n.op == "Softmax"}
    assert places == ({"host"} if form == "where" else {"device"})
    one = {name: values[:1] for name, values in feeds.items()}
    plain, made = (
        ort.InferenceSession(proto.SerializeToString()).run(None, one)[0]
        for proto in (model, result.model)
    )
    assert 20 * np.log10(np.linalg.norm(plain) / np.linalg.norm(made - plain)) > 25


def test_a_mask_without_a_softmax_stays_on_the_host(tmp_path: Path):
    """No integer stands for -inf, which LogSoftmax hands on."""
    net = Net(x=(1, 8, 8)).op("Add", "x", "mask")
    net.constant(np.where(_KEEP, 0, -np.inf), "mask")
    target = device(tmp_path, "Conv", "Add")
    report = npuconv.check(net.op("LogSoftmax").model(), target=target)
    assert {n.placement for n in report.nodes if n.op == "Add"} == {"host"}
