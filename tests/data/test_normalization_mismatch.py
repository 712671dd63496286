"""Tests of the comparison of samples with those of training."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Preprocess
from npuconv.data import open_samples
from npuconv.data.model_inputs import first_convolution, sample_inputs
from npuconv.data.normalization_mismatch import Profile, Trials, better_fits, run_trials
from npuconv.data.normalizations import IMAGENET, SIGNED, UNIT
from npuconv.model import save
from support.asserts import read
from support.builders import Net


@pytest.mark.parametrize("levels", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_a_first_layer_without_output_is_no_evidence(
    levels: tuple[float, float],
) -> None:
    """Zeros on all samples support no normalization."""
    given, other = (Profile(0.5, 0.1, x, 1.0) for x in levels)
    assert better_fits(Trials(UNIT, {UNIT: given, IMAGENET: other})) == ([], "")


PIXELS = np.linspace(0, 255, 4 * 3 * 16 * 16, dtype=np.float32).reshape(4, 3, 16, 16)


def run(proto, array: np.ndarray) -> Trials | None:
    model = read(proto)
    first = first_convolution(model)
    assert first is not None
    plain = save.to_proto(model)
    inputs, _ = sample_inputs(model, plain, None)
    samples = open_samples({"x": array}, inputs, Preprocess())
    return run_trials(model, plain, samples, first)


def test_what_is_given_comes_first():
    """The normalization of the samples, then candidates that the first layer does not exclude."""
    found = run(Net(x=("N", 3, 16, 16)).conv("x").model(), PIXELS / 255)
    assert found is not None
    assert found.baseline == UNIT
    assert list(found.profiles) == [UNIT, SIGNED]
    assert not found.makes_images


def test_a_model_that_makes_images():
    """An output with as many colours and at least the extents is an image."""
    net = Net(x=("N", 3, 16, 16)).conv("x", (3, 3, 3, 3), pads=[1, 1, 1, 1])
    found = run(net.model(), PIXELS / 255)
    assert found is not None
    assert found.makes_images


@pytest.mark.parametrize("build", [
    lambda: Net(x=("N", 3, 16, 16)).conv("x").op("Elu").model(),
    lambda: Net(x=("N", 3, 16, 16)).op("Transpose", perm=[0, 1, 3, 2]).conv().model(),
    lambda: Net(x=("N", 3, 16, 16)).pad([0, 0, 1, 1, 0, 0, 1, 1]).conv().model(),
])  # fmt: skip
def test_what_may_stand_before_the_first_convolution(build):
    """Order, padding, scale and offset may stand before the first convolution."""
    assert run(build(), PIXELS) is not None


def test_sound_is_no_image():
    """Sound has no other normalization to try."""
    sound = np.linspace(-1, 1, 4 * 1 * 64, dtype=np.float32).reshape(4, 1, 64)
    assert run(Net(x=("N", 1, 64)).conv("x", (4, 1, 3)).model(), sound) is None


def test_other_ranges_are_not_tried():
    """Samples of an unknown range are not tried."""
    assert run(Net(x=("N", 3, 16, 16)).conv("x").model(), PIXELS * 7) is None
