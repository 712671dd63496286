"""Ratios between scales of channels that operators of the device keep."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.encoding import Encoding
from npuconv.partition.channels import REAL, UNTIED
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.profiles import choose_profile, merged, rows_of
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.scale_constraints import ScaleConstraints
from support.asserts import context, read
from support.builders import Net
from support.plans import AS_SEEN, planned, random_feeds, watch
from support.target_files import NUMBERS, chip


def group(highs: list[float], ties: list[int], **fixed: object) -> ScaleConstraints:
    """A group with these ranges around 0, and values up to them."""
    ends, count = np.asarray(highs, np.float64), len(highs)
    parts = {
        "name": "t", "slots": list(range(count)), "lows": -ends, "highs": ends,
        "values": np.linspace(-ends, ends, 9).T.astype(np.float32),
        "centred": np.zeros(count, bool), "caps": np.full(count, np.inf),
        "ties": np.asarray(ties),
    }  # fmt: skip
    return ScaleConstraints(**{**parts, **fixed})


def test_groups_of_one_profile_have_it():
    """Each range is met, whatever the level of a group."""
    found = choose_profile([group([1, 10, 100], [0, 1, 2]), group([3, 30, 300], [0, 1, 2])])
    assert found[1] / found[0] == pytest.approx(10, rel=1e-3)
    assert found[2] / found[0] == pytest.approx(100, rel=1e-3)


def test_profiles_that_contradict_each_other_are_balanced():
    """Neither decides; and what is as large in both is so in the result."""
    found = choose_profile([group([1, 100, 10], [0, 1, 2]), group([100, 1, 10], [0, 1, 2])])
    assert found[0] == pytest.approx(found[1])
    assert 0.5 < found[2] / found[0] < 2


def test_one_scale_where_a_profile_costs_more():
    """A group of two channels gains less by it than one with many loses."""
    many = group([1.0] * 20, list(range(20)))
    assert set(choose_profile([many, group([1, 1.5], [0, 1])]).values()) != {0.0}
    alike = choose_profile([many, many])
    assert set(alike.values()) == {1.0}


def test_real_numbers_have_the_ratio_1():
    """The choice is among what else is tied, if anything is."""
    assert choose_profile([group([1, 10], [REAL, UNTIED])]) == {}
    found = choose_profile([group([1, 10], [REAL, 4]), group([2, 20], [REAL, 4])])
    assert found == {4: pytest.approx(10, rel=0.01)}


def test_dead_channels_say_nothing():
    found = choose_profile([group([1, 0, 100], [0, 1, 2]), group([1, 0, 100], [0, 1, 2])])
    assert found[2] / found[0] == pytest.approx(100, rel=1e-3)
    assert np.isfinite(list(found.values())).all()


def test_tied_slots_become_one_row():
    """Free ones stay; the row holds what the others hold, over their ratios."""
    one = group([5, 1, 10], [UNTIED, 3, 4], caps=np.asarray([np.inf, 0.5, 20]))
    profile = {3: 1.0, 4: 5.0}
    found = merged(one, profile)
    assert found.highs.tolist() == [5, 2]
    assert found.lows.tolist() == [-5, -2]
    assert found.caps.tolist() == [np.inf, 0.5]
    assert found.values.shape == (2, 9)
    assert np.abs(found.values[1]).max() == 2
    rows, ratios = rows_of(one, profile)
    assert (rows.tolist(), ratios.tolist()) == ([0, 1, 1], [1, 1, 5])


def test_one_zero_point_must_be_0_where_that_of_one_channel_must():
    found = merged(group([1, 2], [3, 4], centred=np.asarray([True, False])), {3: 1.0, 4: 1.0})
    assert found.centred.tolist() == [True]


def test_free_slots_are_left_alone():
    one = group([5, 1], [UNTIED, UNTIED])
    assert merged(one, {}) is one
    moved = merged(group([5, 1], [REAL, UNTIED]), {})
    assert moved.highs.tolist() == [1, 5]


def encodings(*without: str, **limits: object) -> dict[str, Encoding]:
    """Encodings of a sum of layers whose channels differ by a factor of 1,000."""
    unlike = np.geomspace(1, 1000, 4).reshape(4, 1, 1, 1).astype(np.float32)
    net = Net(x=(1, 4, 8, 8))
    for name in ("a", "b"):
        weight = net.constant(unlike * np.random.default_rng(3).normal(size=(4, 4, 1, 1)), name)
        net.op("Conv", "x", weight, to=f"{name}_made")
    net.op("Add", "a_made", "b_made", to="sum").conv("", (4, 4, 1, 1), to="y")
    numbers = {**NUMBERS, "zero_point": {"range": [-128, 127], **limits}}
    ctx = context()
    ctx.target = chip("", also={"operators": {"Conv": {}, "Add": {}}, "activations": numbers})
    model = read(net.model())
    graph = planned(model, ctx)
    seen = Calibration(watch(graph, random_feeds(model)), {})
    return dict(choose_encodings(graph, seen, {}, (*AS_SEEN, *without)).encodings)


def test_scales_of_a_sum():
    """Each channel has its own; their ratio to the device's is that of the addends."""
    found = encodings()
    parts = [found[name] for name in ("a_made", "b_made", "sum")]
    for one in parts:
        assert one.scales[3] / one.scales[0] > 100
        assert len(set(one.zeros.tolist())) == 1
    ratios = [one.scales / one.nominal for one in parts]
    np.testing.assert_allclose(ratios[0], ratios[2], rtol=1e-6)
    np.testing.assert_allclose(ratios[1], ratios[2], rtol=1e-6)
    told = parts[0].in_integers
    assert (told.scales[0], told.zeros[0], told.axis) == (parts[0].nominal, parts[0].zeros[0], None)


def test_it_is_a_step_that_can_be_left_out():
    """All channels then have one scale, and steps of the largest of them."""
    found, fitted = encodings("channel-profiles"), encodings()
    for name in ("a_made", "b_made", "sum"):
        assert found[name].axis is None
        assert found[name].scales[0] == pytest.approx(fitted[name].scales.max(), rel=0.5)


def test_a_device_without_zero_points():
    found = encodings(range=[0, 0])
    assert not any(one.zeros.any() for name, one in found.items() if name not in "xy")
    assert found["sum"].axis == 1
