"""``npuconv target explore``: curves of undocumented limits, their table and their page."""

from __future__ import annotations

import json
import re

import onnx
import pytest
from click.testing import CliRunner

from npuconv.cli.explore import (
    Curve,
    Exploration,
    Point,
    explore_limits,
    pick_evenly,
    render_page,
)
from npuconv.cli.target import target
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
    found = curves(explore_limits(models))["kernel_h"]
    assert found.needed == (3, 7)
    assert [p.value for p in found.points] == [7, 3, 1]
    loose, *_, tight = found.points
    assert (loose.cost, loose.macs, loose.rewritten, loose.refused) == (0, 0, 0, 0)
    assert (tight.rewritten, tight.refused) == (2, 0)
    assert tight.cost > found.points[1].cost > 0
    assert tight.convolutions > 0


def test_the_knee_is_the_tightest_cheap_value(models):
    """The knee is the tightest value whose cost is cheap by the settings."""
    loose = explore_limits(models, knee=0.2)
    assert curves(loose)["stride_h"].knee == 1
    strict = explore_limits(models, knee=0.0)
    assert curves(strict)["kernel_h"].knee == 7


def test_a_bias_is_there_or_not(models):
    """Both answers."""
    found = curves(explore_limits(models))["bias"]
    assert [(p.value, p.rewritten) for p in found.points] == [(True, 1), (False, 1)]


def test_height_and_width_cost_the_same_of_images_turned_around(models):
    """Convolutions with equal strides along both axes."""
    found = curves(explore_limits(models))
    assert found["stride_h"].points == found["stride_w"].points


def test_another_limit_may_be_answered_meanwhile(models):
    """The limit is open no longer."""
    found = explore_limits(models, assume=("kernel_h=3",))
    assert "kernel_h" not in curves(found)
    with pytest.raises(UsageError, match="no undocumented limit"):
        explore_limits(models, assume=("rank=4",))


def test_a_model_that_is_refused_already_is_left_out(models, tmp_path):
    """The reason is given."""
    path = tmp_path / "deep.onnx"
    onnx.save(Net(x=(1, 4, 9, 9, 9)).conv("x", (4, 4, 3, 3, 3)).model(), path)
    found = explore_limits([*models, str(path)])
    assert found.models == tuple(models)
    assert found.left_out[str(path)].startswith("SHP001")


def test_a_shape_is_for_the_models_that_have_its_input(models, tmp_path):
    """The others are explored as they are; a name that no model has is a mistake."""
    path = tmp_path / "open.onnx"
    onnx.save(Net(image=(1, 4, "h", "w")).conv("image", (4, 4, 5, 5)).model(), path)
    found = explore_limits([*models, str(path)], input_shape={"image": (1, 4, 16, 16)})
    assert found.models == (*models, str(path))
    alone = explore_limits([str(path)], input_shape={"image": (1, 4, 16, 16)})
    assert found.macs == explore_limits(models).macs + alone.macs
    with pytest.raises(UsageError, match="imgae"):
        explore_limits([*models, str(path)], input_shape={"imgae": (1, 4, 16, 16)})


def test_few_of_many_values():
    """Both ends among them."""
    assert pick_evenly([1, 2, 3], 7) == [3, 2, 1]
    found = pick_evenly(list(range(1, 101)), 5)
    assert (found[0], found[-1], len(found)) == (100, 1, 5)


def test_json_and_page(models):
    """The page has a plot for each curve, and no address of the network."""
    found = explore_limits(models)
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


@pytest.fixture
def model(tmp_path):
    """A model with a kernel of 5."""
    path = tmp_path / "m.onnx"
    onnx.save(Net(x=(1, 4, 12, 12)).conv("x", (4, 4, 5, 5)).model(), path)
    return path


def run(*arguments: str):
    return CliRunner().invoke(target, ["explore", *arguments, "-q"], standalone_mode=False)


def test_text(model):
    """A row for each limit: needed, knee with its cost, tightest; -v: a table for each."""
    brief, full = run(str(model)), run(str(model), "-v")
    assert (brief.return_value, full.return_value) == (0, 0)
    assert "1 model, 1 convolution, " in brief.stdout
    (row,) = [line.split() for line in brief.stdout.splitlines() if "Conv.kernel_h" in line]
    assert (row[1], row[5], row[-1]) == ("5", "1", "0")
    title = "Conv.kernel_h: the models need up to 5"
    values = full.stdout.partition(title)[2].partition("Conv.")[0].splitlines()[2:]
    assert [line.split()[0] for line in values if line] == ["5", "2", "1"]
    (knee,) = [line.split() for line in values if line.endswith("knee")]
    assert (knee[0], " ".join(knee[1:3])) == (row[2], " ".join(row[3:5]))


def test_json_and_files(model, tmp_path):
    """The suffix picks the renderer."""
    files = [tmp_path / "e.html", tmp_path / "e.json"]
    reports = [part for path in files for part in ("--report", str(path))]
    result = run(str(model), "--output-format", "json", *reports)
    assert json.loads(result.stdout) == json.loads(files[1].read_text())
    assert files[0].read_text().startswith("<!doctype html>")


def test_mistakes(model):
    """A suffix that no renderer has; a model that cannot be read."""
    assert isinstance(run(str(model), "--report", "e.pdf").exception, UsageError)
    bad = model.with_name("bad.onnx")
    bad.write_bytes(b"no model")
    result = run(str(bad), str(model))
    assert result.return_value == 2
    assert "bad.onnx" in result.stderr
