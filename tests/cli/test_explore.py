"""``npuconv target explore``: curves of undocumented limits, their table and their page."""

from __future__ import annotations

import json

import onnx
import pytest
from click.testing import CliRunner

from npuconv.cli.explore import candidates, explore_limits
from npuconv.cli.target import target
from npuconv.errors import UsageError
from support.builders import Net
from support.target_files import HEAD


@pytest.fixture(autouse=True)
def chip(tmp_path, monkeypatch):
    """A target with few undocumented limits, of Conv and of every operator."""
    limits = "{kernel_h: '?', stride_h: '?', stride_w: '?', bias: '?', kernel_w: {max: 7}}"
    (tmp_path / "chip.yaml").write_text(
        f"{HEAD}  Conv: {{limits: {limits}}}\n"
        "all_operators: {limits: {in_n: '?', rank: {equals: 4}}}\n"
    )
    monkeypatch.chdir(tmp_path)


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
    found = curves(explore_limits(models, "chip.yaml"))["kernel_h"]
    assert found.needed == (3, 7)
    assert [p.value for p in found.points] == [7, 3, 1]
    loose, *_, tight = found.points
    assert (loose.cost, loose.macs, loose.rewritten, loose.refused) == (0, 0, 0, 0)
    assert (tight.rewritten, tight.refused) == (2, 0)
    assert tight.cost > found.points[1].cost > 0
    assert tight.convolutions > 0


def test_the_knee_is_the_tightest_cheap_value(models):
    """The knee is the tightest value whose cost is cheap by the settings."""
    loose = explore_limits(models, "chip.yaml", knee=0.2)
    assert curves(loose)["stride_h"].knee == 1
    strict = explore_limits(models, "chip.yaml", knee=0.0)
    assert curves(strict)["kernel_h"].knee == 7


def test_a_bias_is_there_or_not(models):
    """Both answers."""
    found = curves(explore_limits(models, "chip.yaml"))["bias"]
    assert [(p.value, p.rewritten) for p in found.points] == [(True, 1), (False, 1)]


def test_a_limit_of_all_operators(models):
    """Only one that Conv does not document itself."""
    assert list(curves(explore_limits(models, "chip.yaml"))) == [
        "in_n", "kernel_h", "stride_h", "stride_w", "bias"
    ]  # fmt: skip


def test_height_and_width_cost_the_same_of_images_turned_around(models):
    """Convolutions with equal strides along both axes."""
    found = curves(explore_limits(models, "chip.yaml"))
    assert found["stride_h"].points == found["stride_w"].points


def test_another_limit_may_be_answered_meanwhile(models):
    """The limit is open no longer."""
    found = explore_limits(models, "chip.yaml", assume=("kernel_h=3",))
    assert "kernel_h" not in curves(found)
    with pytest.raises(UsageError, match="no undocumented limit"):
        explore_limits(models, "chip.yaml", assume=("rank=4",))


def test_a_model_that_is_refused_already_is_left_out(models, tmp_path):
    """The reason is given."""
    path = tmp_path / "deep.onnx"
    onnx.save(Net(x=(1, 4, 9, 9, 9)).conv("x", (4, 4, 3, 3, 3)).model(), path)
    found = explore_limits([*models, str(path)], "chip.yaml")
    assert found.models == tuple(models)
    assert found.left_out[str(path)].startswith("SHP001")


def test_a_shape_is_for_the_models_that_have_its_input(models, tmp_path):
    """The others are explored as they are; a name that no model has is a mistake."""
    path = tmp_path / "open.onnx"
    onnx.save(Net(image=(1, 4, "h", "w")).conv("image", (4, 4, 5, 5)).model(), path)
    found = explore_limits([*models, str(path)], "chip.yaml", input_shape={"image": (1, 4, 16, 16)})
    assert found.models == (*models, str(path))
    alone = explore_limits([str(path)], "chip.yaml", input_shape={"image": (1, 4, 16, 16)})
    assert found.macs == explore_limits(models, "chip.yaml").macs + alone.macs
    with pytest.raises(UsageError, match="imgae"):
        explore_limits([*models, str(path)], "chip.yaml", input_shape={"imgae": (1, 4, 16, 16)})


def test_a_model_that_cannot_be_read_may_have_had_the_input(models, tmp_path):
    """Its own error has been told already."""
    (tmp_path / "broken.onnx").write_text("no model")
    paths = [*models, str(tmp_path / "broken.onnx")]
    found = explore_limits(paths, "chip.yaml", input_shape={"image": (1, 4, 16, 16)})
    assert found.models == tuple(models)
    assert list(found.left_out) == paths[-1:]


def test_few_of_many_values():
    """Both ends are among them."""
    assert candidates("kernel_h", [3]) == [3, 1]
    assert candidates("pad_top", [1, 2]) == [2, 1, 0]
    many = candidates("in_c", list(range(1, 101)))
    assert (many[0], many[-1], len(many)) == (100, 1, 7)
    assert candidates("bias", [True]) == [True, False]
    assert candidates("bias", []) == candidates("group", []) == []


@pytest.fixture
def model(tmp_path):
    """A model with a kernel of 5."""
    path = tmp_path / "m.onnx"
    onnx.save(Net(x=(1, 4, 12, 12)).conv("x", (4, 4, 5, 5)).model(), path)
    return path


def run(*arguments: str):
    return CliRunner().invoke(
        target, ["explore", *arguments, "-q", "--target", "chip.yaml"], standalone_mode=False
    )


def test_text(model):
    """A row for each limit: needed, knee with its cost, tightest; -v: a row for each value."""
    brief, full = run(str(model)), run(str(model), "-v")
    assert (brief.return_value, full.return_value) == (0, 0)
    assert "1 model, 1 convolution, " in brief.stdout
    (row,) = [line.split() for line in brief.stdout.splitlines() if "Conv.kernel_h" in line]
    assert (row[1], row[5], row[-1]) == ("5", "1", "0")
    words = [line.split() for line in full.stdout.splitlines() if line]
    place = next(number for number, line in enumerate(words) if line[0] == "kernel_h")
    values = [words[place][1:], words[place + 1], words[place + 2]]
    assert [value[0] for value in values] == ["5", "2", "1"]
    (knee,) = [value for value in values if value[-1] == "knee"]
    assert (knee[0], " ".join(knee[1:3])) == (row[2], " ".join(row[3:5]))


def test_json(model):
    """The numbers for programs."""
    data = json.loads(run(str(model), "--output-format", "json").stdout)
    assert data["schema_version"] == 1
    assert data["curves"][0]["limit"].startswith("Conv.")


def test_mistakes(model):
    """A model that cannot be read; the other is explored."""
    bad = model.with_name("bad.onnx")
    bad.write_bytes(b"no model")
    result = run(str(bad), str(model))
    assert result.return_value == 2
    assert "bad.onnx" in result.stderr
