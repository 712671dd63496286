"""Options: defaults, bounds, precedence, and where a config file is wrong."""

from __future__ import annotations

import pytest

from npuconv.config import Options, Preprocess, make_options, merge
from npuconv.config_files import find_config, read_config
from npuconv.errors import ConfigError, UsageError


def written(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return path


def wrong(path):
    """The error of a config file."""
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert caught.value.exit_code == 2
    return caught.value


def test_defaults():
    """No key is required."""
    options = make_options({})
    assert (options.target, options.format, options.method) == ("npu-int8", "qoperator", "auto")
    assert (options.fail_on, options.unknown, options.io) == ("error", "warn", "float")
    assert options.preprocess == Preprocess()


def test_every_key_has_a_help_text():
    """--help, the schema and the reference are made of them."""
    for model in (Options, Preprocess):
        assert all(field.metadata["description"] for field in model.model_fields.values())


def test_precedence():
    """A flag wins over YAML, YAML over the default, key by key also inside mappings."""
    default = {"method": "auto", "seed": 0, "preprocess": {"preset": "unit", "color": "rgb"}}
    yaml = {"method": "entropy", "seed": 3, "preprocess": {"color": "bgr"}}
    flags = {"seed": 7}
    assert merge(default, yaml, flags) == {
        "method": "entropy", "seed": 7, "preprocess": {"preset": "unit", "color": "bgr"},
    }  # fmt: skip
    assert merge() == {}


def test_precedence_of_what_is_no_mapping():
    """A list or a number replaces what was there, whatever it was."""
    assert merge({"select": ["A"]}, {"select": ["B"]}) == {"select": ["B"]}
    assert merge({"a": {"b": 1}}, {"a": 2}) == {"a": 2}
    assert merge({"a": 2}, {"a": {"b": 1}}) == {"a": {"b": 1}}


def test_merging_changes_nothing():
    """The layers stay as they were."""
    first = {"preprocess": {"color": "rgb"}}
    merge(first, {"preprocess": {"color": "bgr"}})
    assert first == {"preprocess": {"color": "rgb"}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"formt": "qdq"}, ["'formt'", "unknown key"]),
        ({"format": "caffe"}, ["'format'", "'caffe' is not one of", "qoperator"]),
        ({"max_samples": 0}, ["'max_samples'", "at least 1"]),
        ({"seed": -1}, ["'seed'", "at least 0"]),
        ({"input_shape": {"x": ["a"]}}, ["'input_shape.x.0'", "whole number"]),
        ({"preprocess": {"std": [1.0, 0.0]}}, ["'preprocess.std'", "above 0"]),
        ({"preprocess": {"crop": [1]}}, ["'preprocess.crop"]),
        ({"preprocess": {"mean": True}}, ["'preprocess.mean'", "must be a list, not true"]),
        ({"preprocess": "imagnet"}, ["'preprocess'", "did you mean 'imagenet'?"]),
        ({"preprocess": "photo"}, ["'preprocess'", "'photo' is no preset: one of unit, signed"]),
        ({"metod": "mse"}, ["'metod'", "unknown key (did you mean 'method'?)"]),
        ({"keep_float": "head/*"}, ["'keep_float'", "must be a list, as [head/*], not"]),
        ({"input_shape": {"x": 5}}, ["'input_shape.x'", "must be a list, as [5], not 5"]),
        ({"select": "a, b"}, ["'select'", "must be a list, not 'a, b'"]),
    ],
)
def test_values_that_are_not_taken(values, words):
    """The line names the option and what it takes."""
    with pytest.raises(UsageError) as caught:
        make_options(values)
    assert all(word in str(caught.value) for word in ["option", *words])


@pytest.mark.parametrize(
    ("key", "pair"),
    [("mean", (9.0,)), ("std", (9.0,)), ("resize", (9,)), ("crop", (9, 9))],
)
def test_one_number_for_a_list(key, pair):
    """All channels, the short side, or a square; the JSON schema says so as well."""
    found = make_options({"preprocess": {key: 9}})
    assert getattr(found.preprocess, key) == pair
    schema = Preprocess.model_json_schema()["properties"][key]["anyOf"]
    assert schema[0]["type"] in ("number", "integer")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("quiet: true\n", "quiet: unknown key (a flag of the command line, not a key)"),
        ("output: a.onnx\n", "output: unknown key (a flag of the command line, not a key)"),
        ("crop: 8\n", "crop: unknown key (crop is a key inside preprocess)"),
        ("no_verify: true\n", "no_verify: unknown key (write verify: false)"),
    ],
)
def test_flags_that_are_no_keys(tmp_path, text, said):
    """No key of a like name is suggested."""
    assert said in str(wrong(written(tmp_path, text)))


def test_options_do_not_change():
    """Options are values."""
    options = make_options({})
    with pytest.raises(AttributeError, match="seed"):
        options.seed = 3


def test_read_config(tmp_path):
    """Only what is written is returned, so that defaults stay below it."""
    path = written(tmp_path, "method: entropy\npreprocess:\n  preset: unit\n")
    assert read_config(path) == {"method": "entropy", "preprocess": {"preset": "unit"}}


def test_a_misspelt_key(tmp_path):
    """File, line and column, and what was meant."""
    error = wrong(written(tmp_path, "seed: 1\nmehtod: entropy\n"))
    assert (error.line, error.column) == (2, 1)
    assert str(error) == f"{tmp_path / 'c.yaml'}:2:1: mehtod: unknown key (did you mean 'method'?)"


def test_a_misspelt_key_inside(tmp_path):
    """The path to it is given."""
    error = wrong(written(tmp_path, "preprocess:\n  preset: unit\n  colour: bgr\n"))
    assert (error.line, error.column) == (3, 3)
    assert "preprocess.colour: unknown key (did you mean 'color'?)" in str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("format: caffe\n", ["1:1", "'caffe' is not one of"]),
        ("a: [\n", ["2:1"]),
        ("- method\n", ["top level must be a mapping"]),
        ("seed: 1\nseed: 2\n", ["2:1", "duplicate key"]),
    ],
)
def test_other_faults(tmp_path, text, words):
    """Wrong values and wrong YAML have a place as well."""
    message = str(wrong(written(tmp_path, text)))
    assert all(word in message for word in words)


def test_no_such_file(tmp_path):
    """A missing file is named."""
    assert "gone.yaml: no such file" in str(wrong(tmp_path / "gone.yaml"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -101, 201])
def test_goals_that_are_none(value):
    """No SQNR is infinite or no number, and none of 200 dB is measured."""
    with pytest.raises(UsageError, match="min_sqnr"):
        make_options({"min_sqnr": value})


@pytest.mark.parametrize(
    "given", [{"std": [0]}, {"std": [-5]}, {"mean": [float("nan")]}, {"std": [float("inf")]}]
)
def test_pixels_are_not_divided_by_nothing(given):
    """Nor by what turns them round, nor moved to where no number is."""
    with pytest.raises(UsageError, match="preprocess"):
        make_options({"preprocess": given})


def test_what_was_asked_for_in_one_phrase():
    """The phrase is that of a report."""
    assert Preprocess().phrase == ""
    assert Preprocess(preset="imagenet", resize=(256,), crop=(224, 224)).phrase == (
        "imagenet, resize 256, crop 224 224"
    )
    assert Preprocess(mean=(103.94, 117), std=(58,), color="bgr").phrase == (
        "mean 103.94 117, std 58, color bgr"
    )


def test_name_of_a_preset(tmp_path):
    """A preset alone stands for the key of it; other layers are merged with it."""
    assert make_options({"preprocess": "imagenet"}).preprocess == Preprocess(preset="imagenet")
    path = written(tmp_path, "preprocess: signed\n")
    found = make_options(merge(read_config(path), {"preprocess": {"color": "bgr"}}))
    assert found.preprocess == Preprocess(preset="signed", color="bgr")


def test_all_errors_at_once(tmp_path):
    """Every wrong key is named, with its line and what was meant."""
    text = "metod: mse\nseed: -1\nfromat: qdq\ntarget: npu-int9\n"
    said = str(wrong(written(tmp_path, text)))
    assert "4 errors: " in said
    assert "c.yaml:4:9: target: unknown target 'npu-int9' (did you mean 'npu-int8'?)" in said
    places = [said.index(f"c.yaml:{line}:1: ") for line in (1, 2, 3)]
    assert places == sorted(places)
    assert "did you mean 'method'?" in said
    assert "did you mean 'format'?" in said


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    """Paths hold from any folder; absolute paths and names of built-in targets stay."""
    folder = tmp_path / "deep"
    folder.mkdir()
    written(folder, "target: chip.yaml\ncalibration: data/x.npz\nbaseline: /b.json\n")
    monkeypatch.chdir(tmp_path)
    found = read_config("deep/c.yaml")
    assert found == {
        "target": "deep/chip.yaml", "calibration": "deep/data/x.npz", "baseline": "/b.json",
    }  # fmt: skip
    monkeypatch.chdir(folder)
    assert read_config("c.yaml")["calibration"] == "data/x.npz"
    written(folder, "target: rknn\n")
    assert read_config("c.yaml") == {"target": "rknn"}


def test_find_config(tmp_path, monkeypatch):
    """The nearest one, up to the root of the repository."""
    inner = tmp_path / "repo" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "npuconv.yaml").write_text("seed: 1\n")
    (tmp_path / "repo" / ".git").mkdir()
    monkeypatch.chdir(inner)
    assert find_config() is None
    (tmp_path / "repo" / "npuconv.yaml").write_text("seed: 2\n")
    assert find_config().as_posix() == "../../npuconv.yaml"
    assert read_config(find_config()) == {"seed": 2}
