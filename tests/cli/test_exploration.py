"""Curves of undocumented limits."""

from __future__ import annotations

import json
import re

import onnx
import pytest

from npuconv.cli.exploration import Curve, Exploration, Point, explore, pick_evenly
from npuconv.cli.explore import render_page
from npuconv.errors import UsageError
from support.builders import Net


@pytest.fixture
def models(tmp_path):
    """Two models: one with a large kernel, one with a stride."""
    nets = {
        "wide.onnx": Net(x=(1, 4, 16, 16)).conv("x", (4, 4, 7, 3), pads=[3, 1, 3, 1]),
        "strided.onnx": Net(x=(1, 4, 16, 16)).conv("x", (8, 4, 3, 3), strides=[2, 2], bias=False),
    }
    for name, net in nets.items():
        onnx.save(net.model(), tmp_path / name)
    return [str(tmp_path / name) for name in nets]


def curves(found):
    return {curve.fact: curve for curve in found.curves}


def test_from_what_is_needed_down_to_one(models):
    """The first value costs nothing; the tighter, the more models are rewritten."""
    found = curves(explore(models))["kernel_h"]
    assert found.needed == (3, 7)
    assert [p.value for p in found.points] == [7, 3, 1]
    loose, *_, tight = found.points
    assert (loose.cost, loose.macs, loose.rewritten, loose.refused) == (0, 0, 0, 0)
    assert (tight.rewritten, tight.refused) == (2, 0)
    assert tight.cost > found.points[1].cost > 0
    assert tight.convolutions > 0


def test_the_knee_is_the_tightest_cheap_value(models):
    """The knee is the tightest value whose cost is cheap by the settings."""
    loose = explore(models, knee=0.2)
    assert curves(loose)["stride_h"].knee == 1
    strict = explore(models, knee=0.0)
    assert curves(strict)["kernel_h"].knee == 7


def test_a_bias_is_there_or_not(models):
    """Both answers."""
    found = curves(explore(models))["bias"]
    assert [(p.value, p.rewritten) for p in found.points] == [(True, 1), (False, 1)]


def test_height_and_width_cost_the_same_of_images_turned_around(models):
    """Convolutions with equal strides along both axes."""
    found = curves(explore(models))
    assert found["stride_h"].points == found["stride_w"].points


def test_another_limit_may_be_answered_meanwhile(models):
    """The limit is open no longer."""
    found = explore(models, assume=("kernel_h=3",))
    assert "kernel_h" not in curves(found)
    with pytest.raises(UsageError, match="no undocumented limit"):
        explore(models, assume=("rank=4",))


def test_a_model_that_is_refused_already_is_left_out(models, tmp_path):
    """The reason is given."""
    path = tmp_path / "deep.onnx"
    onnx.save(Net(x=(1, 4, 9, 9, 9)).conv("x", (4, 4, 3, 3, 3)).model(), path)
    found = explore([*models, str(path)])
    assert found.models == tuple(models)
    assert found.left_out[str(path)].startswith("SHP001")


def test_a_shape_is_for_the_models_that_have_its_input(models, tmp_path):
    """The others are explored as they are; a name that no model has is a mistake."""
    path = tmp_path / "open.onnx"
    onnx.save(Net(image=(1, 4, "h", "w")).conv("image", (4, 4, 5, 5)).model(), path)
    found = explore([*models, str(path)], input_shape={"image": (1, 4, 16, 16)})
    assert found.models == (*models, str(path))
    alone = explore([str(path)], input_shape={"image": (1, 4, 16, 16)})
    assert found.macs == explore(models).macs + alone.macs
    with pytest.raises(UsageError, match="imgae"):
        explore([*models, str(path)], input_shape={"imgae": (1, 4, 16, 16)})


def test_few_of_many_values():
    """Both ends among them."""
    assert pick_evenly([1, 2, 3], 7) == [3, 2, 1]
    found = pick_evenly(list(range(1, 101)), 5)
    assert (found[0], found[-1], len(found)) == (100, 1, 5)


def test_json_and_page(models):
    """The page has a plot for each curve, and no address of the network."""
    found = explore(models)
    data = json.loads(found.as_json())
    assert data["schema_version"] == 1
    assert data["curves"][0]["limit"].startswith("Conv.")
    text = render_page(found)
    assert text.count("<svg") == len(found.curves)
    assert 'class="knee"' in text
    assert "http" not in text


def test_labels_of_the_largest_costs_are_not_cut():
    """A character of the font is at most as wide as six tenths of its size, 9."""
    points = tuple(Point(value, 1, 0, 1, 0.1, 1, 1, 0, cost) for value, cost in ((2, 0), (1, 99.0)))
    curve = Curve("Conv.kernel_h", "kernel_h", (1, 2), points, 2)
    text = render_page(Exploration("chip", ("m.onnx",), {}, 1500, 1, (curve,)))
    assert "1.5 k MACs" in text
    ends = re.findall(r'<text x="(\d+)"[^>]*text-anchor="end">([^<]*)<', text)
    assert [label for _, label in ends] == ["+9900 %", "0 %"]
    assert all(0.6 * 9 * len(label) <= int(x) for x, label in ends)
