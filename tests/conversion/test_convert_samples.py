"""Samples and accuracy of a conversion: those used, held out, refused, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import npuconv
from npuconv.config import Preprocess
from npuconv.data import InputSpec, Samples, open_samples
from npuconv.errors import CalibrationError, ModelError
from npuconv.evaluate import interval
from npuconv.report import render
from support.builders import Net, digits, images

CAL = {"x": images(16, 1, 8, 8)}
X = (1, 4, 8, 8)
F32 = np.dtype(np.float32)


def test_synthetic_calibration_is_warned_of_first():
    """The first warning says that accuracy is unproven."""
    report = npuconv.convert(digits()).report
    assert report.summary.warnings[0].startswith("accuracy is unproven")
    assert "accuracy is unproven" in report.summary.headline
    assert report.quantization.synthetic
    assert not npuconv.convert(digits(), calibration=CAL).report.quantization.synthetic


@pytest.mark.parametrize(
    ("given", "kept"), [(8, 2), (9, 2), (12, 4), (16, 8), (32, 8), (64, 16), (400, 64)]
)
def test_samples_are_kept_apart(given, kept):
    """Samples held out measure the accuracy and calibrate nothing."""
    data = {"x": images(given, 1, 8, 8)}
    report = npuconv.convert(digits(), calibration=data, max_samples=given).report
    assert report.quantization.samples == given - kept
    assert (report.accuracy.held_out, report.accuracy.samples) == (True, kept)


def test_too_few_samples_to_keep_some_apart():
    """Accuracy is measured on all of them, which is said, and makes the interval wider."""
    few = npuconv.convert(digits(), calibration={"x": images(7, 1, 8, 8)}).report
    assert (few.accuracy.held_out, few.quantization.samples) == (False, 7)
    assert any("too few samples to keep some apart" in w for w in few.summary.warnings)
    below = few.accuracy.sqnr_db - few.accuracy.interval_db[0]
    assert below >= interval.CALIBRATED_DB + interval.WORSE_DB + interval.OTHER_DB


def test_the_interval_holds_the_figure_of_new_samples():
    """The interval holds for new samples of the kind; the worst sample has its number."""
    data = images(64, 1, 8, 8)
    done = npuconv.convert(digits(), calibration={"x": data[:32]})
    low, high = done.report.accuracy.interval_db
    assert low <= done.report.accuracy.sqnr_db <= high
    found = npuconv.verify(digits(), done.model, {"x": data[32:40]}).total
    assert low <= found.sqnr_db <= high
    worst = done.report.accuracy.worst_sample
    one = npuconv.verify(digits(), done.model, {"x": data[worst.number][None]}).total
    assert one.sqnr_db == pytest.approx(worst.sqnr_db, abs=0.02)
    assert worst.sqnr_db < done.report.accuracy.median_db


@pytest.mark.parametrize(("noise", "word"), [(0.0, "the same"), (1e-3, "nearly the same")])
def test_samples_that_are_nearly_the_same(noise, word):
    """A video of nothing happening shows one sample; the interval knows."""
    data = images(1, 1, 8, 8) + noise * np.random.default_rng(0).random((16, 1, 8, 8), np.float32)
    same, other = (
        npuconv.convert(digits(), calibration={"x": x}).report for x in (data, images(16, 1, 8, 8))
    )
    assert any(f"all 16 samples are {word}" in w for w in same.summary.warnings)
    assert not any("same" in w for w in other.summary.warnings)
    assert same.accuracy.sqnr_db - same.accuracy.interval_db[0] > interval.ALIKE_DB


def test_sources_of_samples(tmp_path):
    """A file, a dict and an iterable of complete inputs are the same samples."""
    np.savez(tmp_path / "c.npz", **CAL)
    feeds = [{"x": row[None]} for row in CAL["x"]]
    sources = (tmp_path / "c.npz", CAL, feeds)
    reports = [npuconv.convert(digits(), calibration=source).report for source in sources]
    assert len({r.quantization.tensors for r in reports}) == 1
    assert len({r.accuracy for r in reports}) == 1


def test_the_same_bytes_with_synthetic_samples():
    """Chance is seeded."""
    one, two = npuconv.convert(digits()), npuconv.convert(digits())
    assert one.model == two.model
    assert one.report == two.report
    assert npuconv.convert(digits(), seed=1).report.quantization != one.report.quantization


def test_accuracy_is_reported():
    """Whole and per layer, in dB and cosine; nearly exact for a model this small."""
    report = npuconv.convert(digits(), calibration={"x": images(32, 1, 8, 8)}).report
    assert report.accuracy.sqnr_db > 20
    assert report.accuracy.cosine > 0.99
    assert [o.name for o in report.accuracy.outputs] == ["t9"]
    assert [row.name for row in report.quantization.layers] == ["conv0", "conv4", "conv6", "gemm9"]
    assert min(row.sqnr_db for row in report.quantization.layers) > 20


def test_poor_accuracy_is_warned_of():
    """Calibrated on inputs that say nothing of the real ones."""
    samples = images(16, 1, 8, 8)
    used, _ = Samples(lambda _: {}, tuple(range(16)), "").split(8)
    samples[list(used.indices)] *= 1e-3
    report = npuconv.convert(digits(), calibration={"x": samples}).report
    assert report.accuracy.sqnr_db < 15
    assert "CAL005" in {f.code for f in report.findings}


def test_an_output_of_zeros():
    """An output of zeros has no direction, and the report says so."""
    net = Net(x=X)
    zero = net.constant(np.zeros((4, 4, 1, 1), np.float32))
    report = npuconv.convert(net.op("Conv", "x", zero).model()).report
    assert "an output is all zeros or not finite" in report.summary.warnings


def test_samples_that_cannot_be_used():
    """A missing file and numbers that are not finite are the user's matter."""
    with pytest.raises(CalibrationError, match="no such file"):
        npuconv.convert(digits(), calibration="gone.npz")
    with pytest.raises(CalibrationError, match="NaN or infinity"):
        npuconv.convert(digits(), calibration={"x": np.full((2, 1, 8, 8), np.nan, np.float32)})
    with pytest.raises(ModelError):
        npuconv.convert("gone.onnx")


def test_a_model_that_breaks_on_made_up_samples():
    """Made-up samples may have no finite result, as the logarithm of negative numbers."""
    net = Net(x=X).op("Log", "x", to="l").conv("l", (4, 4, 1, 1))
    with pytest.raises(CalibrationError, match="give some with --calibration"):
        npuconv.convert(net.model())
    given = {"x": -np.ones((8, *X[1:]), np.float32)}
    with pytest.raises(CalibrationError, match="normalization of the samples"):
        npuconv.convert(net.model(), calibration=given)


def test_a_stated_batch_that_the_samples_contradict():
    """An inner tensor may keep the batch of a model whose input was opened afterwards."""
    proto = Net(x=("N", 3, 15)).conv("x", (8, 3, 2)).op("HardSwish").model()
    proto.graph.value_info.append(helper.make_tensor_value_info("t0", 1, [77, 8, 14]))
    samples = [{"x": images(2, 3, 15)}]
    assert npuconv.check(proto, calibration=samples).summary.exit_code == 0
    assert npuconv.convert(proto, calibration=samples).report.accuracy.sqnr_db > 20


def test_made_up_samples_that_a_model_does_not_take():
    """Built-in ones are left out, as nobody can mend them; a user's own end the conversion."""
    specs = [InputSpec("x", F32, (1, 5, 8, 8))]
    made = [feed["x"] for feed in open_samples(None, specs, Preprocess())]
    sign = np.sign(made[0].mean())
    bad = sum(np.sign(x.mean()) != sign for x in made)
    assert 0 < bad < len(made)
    net = Net(x=(1, 5, 8, 8)).conv("x", (4, 5, 1, 1), to="y").op("ReduceMean", "x", to="m")
    net.op("Mul", "m", net.constant(sign)).op("Sqrt").op("Mul", net.last, "y")
    model = net.conv("", (4, 4, 1, 1)).model()
    assert npuconv.check(model).summary.not_judged == ()
    report = npuconv.convert(model).report
    said = f"{bad} of 32 built-in samples are left out, which the model does not take"
    assert said in report.summary.warnings
    assert report.quantization.samples + report.accuracy.samples == 32 - bad
    own = {"x": np.concatenate([made[0], -made[0]])}
    left = npuconv.check(model, calibration=own).summary.not_judged
    assert left == ("all samples but the first of 2: only convert runs them",)
    with pytest.raises(CalibrationError, match=r"sample 1: .* not finite"):
        npuconv.convert(model, calibration=own)


def test_random_operators_are_no_error():
    """Both models draw the same numbers, and two conversions write the same bytes."""
    net = Net(x=("N", 3, 12, 12)).conv("x", (8, 3, 3, 3)).op("Relu", to="a")
    net.op("RandomNormalLike", "a").op("Add", "a", net.last).conv(weight=(4, 8, 1, 1))
    data = {"x": images(16, 3, 12, 12)}
    first, second = (npuconv.convert(net.model(), calibration=data) for _ in range(2))
    assert first.report.accuracy.sqnr_db > 30
    assert npuconv.verify(net.model(), first.model, data).total.sqnr_db > 30
    assert first.model.SerializeToString() == second.model.SerializeToString()


@pytest.mark.parametrize("count", [16, 24, 32, 64])
def test_samples_that_alternate(count):
    """Ranges come from both kinds of samples, and the figure holds on new ones."""
    net = Net(x=("N", 3, 8, 8)).conv("x", (8, 3, 3, 3)).op("Relu").conv(weight=(4, 8, 1, 1))
    sizes = np.where(np.arange(count + 32) % 2, 1.0, 0.1).astype(np.float32)[:, None, None, None]
    x = images(count + 32, 3, 8, 8) * sizes
    made = npuconv.convert(net.model(), calibration={"x": x[:count]})
    found = npuconv.verify(net.model(), made.model, {"x": x[count:]})
    assert found.total.sqnr_db > 30
    low, high = made.report.accuracy.interval_db
    assert low < found.total.sqnr_db < high


def detector():
    """A model of scores, the places of those above a threshold, and the values there."""
    net = Net(x=("N", 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("Sigmoid", to="scores")
    net.op("Greater", "scores", net.constant(0.55)).op("NonZero")
    net.op("Transpose", perm=[1, 0], to="places").op("GatherND", "scores", "places", to="found")
    return net.output("scores", "places", "found").model()


def test_indices_and_lists_of_found_places():
    """Places are no values, and samples with other numbers of places are counted in every form."""
    made = npuconv.convert(detector(), calibration={"x": images(16, 3, 8, 8)}, min_sqnr=25)
    scores, places, found = made.report.accuracy.outputs
    assert made.report.accuracy.sqnr_db > 30
    assert scores.uncompared == 0
    assert places.holds_indices
    assert 0 < places.uncompared == found.uncompared < 8
    said = f"compared on {8 - found.uncompared} of 8 samples"
    for form in ("text", "markdown", "html", "json"):
        text = " ".join(render(made.report, form).split())
        assert said in text
    assert "equal" in render(made.report, "text")
