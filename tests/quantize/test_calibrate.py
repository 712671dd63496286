"""Tensors that the float pass observes, and its statistics."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.calibration.inputs import first_convolution, sample_inputs
from npuconv.config import Preprocess
from npuconv.errors import CalibrationError
from npuconv.quantize import calibrate as calibration
from npuconv.quantize.calibrate import Calibration, calibrate, watched
from npuconv.quantize.settings import HESSIAN
from npuconv.quantize.state import DeviceGraph
from npuconv.samples import open_samples
from support.asserts import context, read
from support.builders import Net
from support.plans import planned

X = (1, 3, 8, 8)


def chain() -> Net:
    """Two layers with activations, and one that only the host follows."""
    net = Net(x=X).conv("x", (4, 3, 1, 1), name="first", to="a").op("Relu", "a", to="r")
    net.conv("r", (4, 4, 1, 1), name="second", to="b").op("Relu", "b", to="s")
    return net.conv("s", (2, 4, 1, 1), name="third", to="c").op("Sigmoid", "c", to="y")


def found(graph: DeviceGraph, values: np.ndarray | None, **steps: object) -> Calibration:
    """Calibrate on these samples, or on made-up ones for None."""
    proto = graph.proto()
    source = None if values is None else {"x": values}
    inputs, _ = sample_inputs(graph.model, proto, source)
    samples = open_samples(source, inputs, Preprocess())
    return calibrate(graph, proto, samples, steps.get("step", lambda *_: None))


@pytest.mark.parametrize("held", [2**26, 1])
@pytest.mark.parametrize("sides", [(4, 4), ("h", "w")])
def test_the_first_sample_is_tried(monkeypatch, sides, held: int):
    """Statistics are only made where the tensors of a sample are large, open extents or not."""
    made = []
    monkeypatch.setattr(calibration, "HELD_VALUES", held)
    monkeypatch.setattr(calibration, "collect", lambda *given: made.append(given))
    graph = planned(read(Net(x=(1, 4, *sides)).conv("x", (4, 4, 1, 1)).op("Relu").model()))
    values = np.ones((1, 4, 4, 4), np.float32)
    inputs, _ = sample_inputs(graph.model, graph.proto(), {"x": values})
    tried = open_samples({"x": values}, inputs, Preprocess())
    calibration.try_sample(graph, graph.proto(), tried)
    assert bool(made) == (held == 1)


def test_ends_of_groups_are_watched():
    """Outputs of the first layer are observed, but not values that a later Relu cuts off."""
    assert dict(watched(planned(read(chain().model())))) == {"x": 1, "r": 1, "s": 1, "c": 1, "a": 1}


def test_what_training_has_statistics_of_is_watched():
    """A rule compares such tensors with the training."""
    ctx = context()
    ctx.expected["b"] = (np.zeros(4), np.ones(4))
    assert "b" in watched(planned(read(chain().model()), ctx))


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
    assert steps == [(k + 1, 52) for k in range(52)]  # 12 of them for Hessians
    assert set(seen.statistics) == set(watched(graph))
    assert seen.statistics["x"].samples == 40
    assert set(seen.hessians) == {"first", "second", "third"}
    own = HESSIAN.samples - HESSIAN.samples // HESSIAN.held_out_every
    assert seen.hessians["first"].count == own * 64
    assert seen.notes == ()


def test_a_model_without_layers():
    """A model without layers has no tensor to observe."""
    graph = planned(read(Net(x=X).op("Sigmoid").model()))
    seen = found(graph, np.zeros((4, 3, 8, 8), np.float32))
    assert (seen.statistics, seen.hessians) == ({}, {})


def test_a_cache(tmp_path):
    """The next run finds the same, and says which files it could not use."""
    values = np.random.default_rng(0).standard_normal((8, 3, 8, 8)).astype(np.float32)
    runs = []
    for damaged in (False, False, True):
        for path in tmp_path.rglob("*") if damaged else ():
            if path.is_file():
                path.write_bytes(b"")
        graph = planned(read(chain().model()), context(cache=str(tmp_path)))
        runs.append(found(graph, values))
    assert [bool(run.notes) for run in runs] == [False, False, True]
    for run in runs[1:]:
        for name, stats in runs[0].statistics.items():
            np.testing.assert_array_equal(run.statistics[name].highs, stats.highs)


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
    inputs, _ = sample_inputs(graph.model, graph.proto(), {"x": values})
    every = open_samples({"x": values}, inputs, Preprocess())
    assert calibration.without_refused(graph, graph.proto(), every) is every
    values[[1, 4]] *= -1
    taken = calibration.without_refused(graph, graph.proto(), every)
    assert taken.indices == (0, 2, 3)
    assert taken.notes[-1].startswith("2 of 5 built-in samples are left out")
    values[:] = -1
    with pytest.raises(CalibrationError, match="sample 0"):
        calibration.without_refused(graph, graph.proto(), every)
