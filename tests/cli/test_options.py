"""Flags are made from the options: one definition, one meaning."""

from __future__ import annotations

import click
import pytest

from npuconv.cli.check import check
from npuconv.cli.convert import convert
from npuconv.cli.options import collect, parse_shapes
from npuconv.config import Options, Preprocess
from npuconv.errors import ConfigError, UsageError


def flags(command: click.Command) -> dict[str, click.Option]:
    return {name: p for p in command.params if isinstance(p, click.Option) for name in p.opts}


@pytest.mark.parametrize("command", [convert, check], ids=["convert", "check"])
def test_every_option_is_a_flag(command):
    """Every field has its flag, with its description as help."""
    there = flags(command)
    for name, field in Options.model_fields.items():
        flag = "--" + name.replace("_", "-")
        if name == "keep_scales":  # both values have a name
            both = there["--keep-scales"]
            assert both.help == field.metadata["description"]
            assert both.secondary_opts == ["--requantize"]
        elif field.type is bool and field.default:
            assert there[f"--no-{flag[2:]}"].help == f"do not {field.metadata['description']}"
        elif name not in {"preprocess", "rules"}:
            assert there[flag].help.startswith(field.metadata["description"])
    names = {"preset": "--preprocess", "layout": "--input-layout"}
    assert {names.get(n, f"--{n}") for n in Preprocess.model_fields} <= set(there)
    assert {"--config", "--report", "--quiet", "-q", "-v", "--no-color"} <= set(there)


def test_a_switch_that_is_off_has_a_flag_that_turns_it_on():
    """Others have a flag that turns them off."""
    option = flags(convert)["--standard-ops"]
    assert option.flag_value is True
    assert flags(convert)["--no-offload"].flag_value is False


def test_nothing_given():
    """Options are the defaults if neither flag nor file is given."""
    assert collect(None, {"method": None, "input_shape": ()}) == Options()


def test_flags():
    """The text of a flag becomes the value of a file."""
    found = collect(
        None,
        {
            "select": ("SHP, DTY001",),
            "prefer": ("dense,sub-pixel",),
            "keep_float": ("a,b/*", "op:Conv"),
            "input_shape": ("a:0=1,3,8,8", "b=2x4"),
            "preprocess__mean": "1.5,2,3",
            "preprocess__crop": "8,9",
            "verify": False,
            "seed": 7,
        },
    )
    assert found.select == ("SHP", "DTY001")
    assert found.prefer == ("dense", "sub-pixel")
    assert found.keep_float == ("a,b/*", "op:Conv")
    assert found.input_shape == {"a:0": (1, 3, 8, 8), "b": (2, 4)}
    assert found.preprocess == Preprocess(mean=(1.5, 2.0, 3.0), crop=(8, 9))
    assert (found.verify, found.seed) == (False, 7)


def test_repeated_flags():
    """A flag that takes a list may be repeated: all its values count."""
    steps = ("gptq-rounding", "clipping,range-margin")
    found = collect(None, {"without": steps, "ignore": ("SHP001", "DTY")})
    assert found.without == ("gptq-rounding", "clipping", "range-margin")
    assert found.ignore == ("SHP001", "DTY")
    assert flags(convert)["--without"].multiple


@pytest.mark.parametrize("key", ["mean", "std", "resize", "crop"])
def test_one_number(tmp_path, key):
    """The same as a flag and in a file."""
    path = tmp_path / "c.yaml"
    path.write_text(f"preprocess: {{{key}: 24}}\n")
    assert collect(None, {f"preprocess__{key}": "24"}) == collect(str(path), {})


@pytest.mark.parametrize("command", [convert, check], ids=["convert", "check"])
def test_flags_that_are_no_keys(command):
    """Written in a file, it is said of each; --help says so too."""
    names = {str(p.name) for p in command.params if isinstance(p, click.Option)}
    names = {name.removesuffix("s") if name == "reports" else name for name in names}
    keys = {*Options.model_fields, *(f"preprocess__{key}" for key in Preprocess.model_fields)}
    assert names - keys <= set(Options.misplaced)
    assert "what is printed or written" in flags(command)["--config"].help


def test_flag_wins(tmp_path):
    """A flag wins over the file, key by key also inside ``preprocess``."""
    path = tmp_path / "c.yaml"
    path.write_text("method: minmax\nseed: 3\npreprocess: {color: bgr, layout: nhwc}\n")
    found = collect(str(path), {"method": "mse", "preprocess__color": "gray"})
    assert (found.method, found.seed) == ("mse", 3)
    assert found.preprocess == Preprocess(color="gray", layout="nhwc")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_samples": 0}, "^--max-samples: must be at least 1, not 0$"),
        ({"seed": -1}, "^--seed: must be at least 0"),
        ({"severity": ("OPS001=bad",)}, "^--severity OPS001: 'bad' is not"),
        ({"prefer": ("sparse",)}, "^--prefer: 'sparse' is not one of"),
        ({"preprocess__std": "1,0,1"}, "^--std: .* above 0"),
        ({"preprocess__crop": "1,2,3"}, "^--crop takes HEIGHT,WIDTH, or one number .*'1,2,3'$"),
        ({"preprocess__mean": "a,b"}, "^--mean takes one number, or one per channel,.*'a,b'$"),
        ({"preprocess__resize": "256x256"}, "^--resize takes HEIGHT,WIDTH.*, not '256x256'$"),
        ({"preprocess__resize": "2.5"}, "^--resize takes HEIGHT,WIDTH.*, not '2.5'$"),
    ],
)
def test_bad_value(given, said):
    """The message names the flag and its form."""
    with pytest.raises(UsageError, match=said):
        collect(None, given)


@pytest.mark.parametrize("text", ["format: [", "- a", "foo: 1"])
def test_bad_file(tmp_path, text):
    """A file that is no configuration names itself."""
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"c\.yaml"):
        collect(str(path), {})


def test_all_that_is_wrong_with_a_file(tmp_path):
    """Files that are missing and codes that no rule has are named together."""
    path = tmp_path / "c.yaml"
    path.write_text("target: a.yaml\ncalibration: b\nbaseline: c.json\nignore: [XYZ]\n")
    with pytest.raises(ConfigError) as caught:
        collect(str(path), {})
    said = [line.removeprefix(f"{path}:") for line in caught.value.lines]
    assert [line.partition(" ")[0] for line in said] == ["1:9:", "2:14:", "3:11:", "4:10:"]
    assert all("no such file or folder" in line for line in said[:3])
    assert "no rule has a code that begins with 'XYZ'" in said[3]


def test_missing_files_that_nobody_reads(tmp_path):
    """A flag wins over the file; some commands read no baseline."""
    path = tmp_path / "c.yaml"
    path.write_text("target: a.yaml\nbaseline: c.json\n")
    assert collect(str(path), {"target": "rknn"}, read=("target",)).target == "rknn"


def test_no_file(tmp_path):
    """A file that does not exist names itself."""
    with pytest.raises(ConfigError, match="gone"):
        collect(str(tmp_path / "gone.yaml"), {})


@pytest.mark.parametrize("text", ["x", "=1", "x=", "x=1,,2", "x=a"])
def test_parse_shapes(text):
    """A shape that is not NAME=1,2 is refused."""
    with pytest.raises(click.BadParameter, match="is not NAME=1,3,224,224"):
        parse_shapes((text,))
    assert parse_shapes(("a=b=1,2",)) == {"a=b": (1, 2)}
