"""Scales under which what fills whole areas of a sample is stored well."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.ranges import choose_encodings, with_less_correlated_error
from npuconv.quantize.scale_constraints import ConstraintsOf, ScaleConstraints
from npuconv.quantize.settings import CORRELATED
from support.asserts import context, read
from support.builders import Net
from support.plans import planned, watch, without

EACH, SAMPLES = 32, 8


def group(
    values: np.ndarray, samples: np.ndarray | None = None, **fixed: object
) -> ScaleConstraints:
    """A group with these values [K,P], so many of each sample."""
    count = len(values)
    lows, highs = np.minimum(values.min(axis=1), 0), np.maximum(values.max(axis=1), 0)
    parts = {
        "name": "t", "slots": list(range(count)), "values": values.astype(np.float32),
        "lows": lows.astype(float), "highs": highs.astype(float),
        "centred": np.zeros(count, bool), "caps": np.full(count, np.inf),
        "computed": np.zeros(count, bool),
        "samples": np.repeat(np.arange(SAMPLES), EACH) if samples is None else samples,
    }  # fmt: skip
    return ScaleConstraints(**{**parts, **fixed})


def full(value: float, seed: int = 0, share: float = 0.7) -> np.ndarray:
    """A channel that is this value in most places of every sample."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0, 1, EACH * SAMPLES)
    values[rng.random(values.size) < share] = value
    values[0] = 1.0
    return values


def plain(found: ScaleConstraints) -> tuple[np.ndarray, np.ndarray]:
    """Scales that reach just as far as the values, and zero points."""
    scales = (found.highs / 127).astype(np.float32)
    return scales, np.zeros(len(found.slots), np.int32)


def shared(found: ScaleConstraints, scales: np.ndarray) -> np.ndarray:
    """Mean square over samples of the mean error of each [K]."""
    steps = scales[:, None].astype(float)
    errors = np.clip(np.rint(found.values / steps), -128, 127) * steps - found.values
    return np.square(errors.reshape(len(found.slots), SAMPLES, EACH).mean(axis=2)).mean(axis=1)


@pytest.mark.parametrize("at", [20.5, 60.5, 110.5])
def test_a_background_between_two_steps(at):
    """Half a step off, all of it; a step that is a little wider holds it nearly exactly."""
    found = group(np.stack([full(at / 127), full(at / 127, seed=1)]))
    before, zeros = plain(found)
    after = with_less_correlated_error(found, before, zeros)
    assert np.all(after > before)
    assert np.all(after <= before * np.float32(CORRELATED.factors[-1]))
    assert np.all(shared(found, after) < 0.05 * shared(found, before))


def test_several_backgrounds():
    """Backgrounds of all samples count, so none of them is half a step off."""
    rng = np.random.default_rng(2)
    each = [np.where(rng.random(EACH) < 0.8, rng.random(), rng.random(EACH)) for _ in range(8)]
    found = group(np.concatenate(each)[None])
    before, zeros = plain(found)
    assert shared(found, with_less_correlated_error(found, before, zeros)) < 0.7 * shared(
        found, before
    )


def test_samples_without_a_background():
    """Unlike values have unlike errors, so the steps stay."""
    found = group(np.random.default_rng(1).normal(size=(4, EACH * SAMPLES)))
    before, zeros = plain(group(np.abs(found.values)))
    moved = with_less_correlated_error(found, before, zeros) != before
    assert moved.mean() < 0.5


def test_a_bound_of_a_clip_stays():
    """No step may reach beyond it."""
    found = group(full(60.5 / 127)[None], caps=np.ones(1))
    before, zeros = plain(found)
    assert with_less_correlated_error(found, before, zeros) == before


@given(st.integers(0, 2**32 - 1))
def test_it_is_never_worse(seed):
    """The cost never rises, and no further value is clipped."""
    rng = np.random.default_rng(seed)
    found = group(np.abs(rng.normal(size=(3, EACH * SAMPLES))).round(int(rng.integers(3))))
    before, zeros = plain(found)
    before = np.maximum(before, np.float32(1e-6))
    after = with_less_correlated_error(found, before, zeros)
    assert np.all(after >= before)

    def cost(scales: np.ndarray) -> np.ndarray:
        steps = scales[:, None].astype(float)
        errors = np.clip(np.rint(found.values / steps), -128, 127) * steps - found.values
        return np.square(errors).mean(axis=1) + CORRELATED.weight * shared(found, scales)

    # What is chosen by leaves out what chance alone would share.
    assert np.all(cost(after) <= 1.5 * cost(before) + 1e-9)


def test_without_samples_scales_stay():
    """Slots with values of different samples share no known error."""
    found = group(full(60.5 / 127)[None])
    before, zeros = plain(found)
    assert with_less_correlated_error(found, before, zeros) != before
    found.samples = None
    assert with_less_correlated_error(found, before, zeros) is before


# From calibration to encodings


X = (1, 3, 16, 16)


def bright(seed: int) -> np.ndarray:
    """Noise on a background that is in no sample on a step."""
    rng = np.random.default_rng(seed)
    image = rng.uniform(0, 255, X)
    return np.where(rng.random(X) < 0.7, 120.5, image).astype(np.float32)


def scales(*steps: str, **options: str) -> np.ndarray:
    """Return the scales of the input of a layer."""
    graph = planned(read(Net(x=X).conv("x", pads=[1] * 4).model()), context(**options))
    feeds = [{"x": bright(seed)} for seed in range(40)]
    seen = Calibration(watch(graph, feeds), {})
    return choose_encodings(without(graph, "range-margin", *steps), seen, {}).encodings["x"].scales


def test_it_is_a_step_that_can_be_left_out():
    """Ranges are then those of the values."""
    fit, bare = scales(), scales("correlated-error")
    assert (fit > bare).all()
    assert (fit <= bare * CORRELATED.factors[-1] * 1.0001).all()


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_ranges_that_the_user_chose_stay(method: str):
    """Only where npuconv chooses may a range be wider than it says."""
    assert np.array_equal(scales(method=method), scales("correlated-error", method=method))


def samples_of(net: Net) -> dict[str, list[int] | None]:
    """The sample of every value that is looked at, by group."""
    graph = planned(read(net.model()))
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((1, 3, 4, 4)).astype(np.float32)} for _ in range(3)]
    constraints = ConstraintsOf(graph, watch(graph, feeds), {}, {})
    every = {group.name: constraints(group) for group in graph.plan.groups}
    for one in every.values():
        assert one.samples is None or len(one.samples) == one.values.shape[1]
    return {name: None if c.samples is None else c.samples.tolist() for name, c in every.items()}


def test_the_sample_of_every_value():
    """Return the sample of every value, if there are several."""
    net = Net(x=(1, 3, 4, 4)).conv("x", (2, 3, 1, 1), to="a").conv("a", (2, 2, 4, 4), to="b")
    found = samples_of(net)
    assert found["x"] == [0] * 16 + [1] * 16 + [2] * 16
    assert found["a"] == found["x"]
    assert found["b"] is None
