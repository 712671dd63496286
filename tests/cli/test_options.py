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
    """Every field has its flag, with the field's own words as help."""
    there = flags(command)
    for name, field in Options.model_fields.items():
        flag = "--" + name.replace("_", "-")
        if field.annotation is bool:
            assert there[f"--no-{flag[2:]}"].help == f"do not {field.description}"
        elif name not in {"preprocess", "rules"}:
            assert there[flag].help.startswith(field.description)
    names = {"preset": "--preprocess", "layout": "--input-layout"}
    assert {names.get(n, f"--{n}") for n in Preprocess.model_fields} <= set(there)
    assert {"--config", "--report", "--quiet", "-q", "-v", "--no-color"} <= set(there)


def test_nothing_given():
    """No flag, no file: the defaults."""
    assert collect(None, {"method": None, "input_shape": ()}) == Options()


def test_flags():
    """The text of a flag becomes what a file would hold."""
    found = collect(
        None,
        {
            "select": "SHP, DTY001",
            "prefer": "dense,sub-pixel",
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
        ({"max_samples": 0}, "max_samples"),
        ({"seed": -1}, "seed"),
        ({"preprocess__std": "1,0,1"}, "divide by zero"),
        ({"preprocess__crop": "1"}, "crop"),
        ({"preprocess__mean": "a,b"}, "mean"),
    ],
)
def test_bad_value(given, said):
    """A value out of bounds names the option."""
    with pytest.raises(UsageError, match=said):
        collect(None, given)


@pytest.mark.parametrize("text", ["", "format: [", "- a", "foo: 1"])
def test_bad_file(tmp_path, text):
    """A file that is no configuration names itself."""
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"c\.yaml"):
        collect(str(path), {})


def test_no_file(tmp_path):
    """A file that does not exist names itself."""
    with pytest.raises(ConfigError, match="gone"):
        collect(str(tmp_path / "gone.yaml"), {})


@pytest.mark.parametrize("text", ["x", "=1", "x=", "x=1,,2", "x=a"])
def test_parse_shapes(text):
    """What is not NAME=1,2 is refused by flag."""
    with pytest.raises(click.BadParameter, match="is not NAME=1,3,224,224"):
        parse_shapes((text,))
    assert parse_shapes(("a=b=1,2",)) == {"a=b": (1, 2)}
