"""YAML: strict values, places, and errors that say where and what was meant."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv import yamlio
from npuconv.errors import ConfigError
from npuconv.validated import Before, Bounded, Field, Record, faults
from npuconv.yamlio.messages import dotted, nearest


def read(text):
    return yamlio.loads(text, name="c.yaml", error=ConfigError)


def value(text):
    return read(f"a: {text}").data["a"]


def fails(text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("false", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("1", 1),
        ("-12", -12),
        ("0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("1e-3", 0.001),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("-2E+2", -200.0),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("'yes'", "yes"),
        ('"010"', "010"),
        ("'true'", "true"),
        ("y", "y"),
        ("1:30", "1:30"),
        ("2001-01-01", "2001-01-01"),
        ("1_000", "1_000"),
        ("[1, a, 2.5]", [1, "a", 2.5]),
        ("{b: {c: 1}}", {"b": {"c": 1}}),
        ("|\n  10\n", "10\n"),
    ],
)
def test_values(text, expected):
    """A value means what it looks like, and nothing else."""
    assert value(text) == expected
    assert type(value(text)) is type(expected)


def test_not_a_number():
    """``.nan`` is a number that is not one."""
    assert math.isnan(value(".nan"))


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "Yes", "NO", "True", "FALSE"])
def test_no_other_booleans(word):
    """Only ``true`` and ``false`` are booleans; the rest must be quoted."""
    error = fails(f"a: 1\nb:  {word}")
    assert str(error) == f"c.yaml:2:5: write true or false, or quote {word!r} to mean the text"


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("a: 010", "010 has a leading zero", 1, 4),
        ("a: -007", "-007 has a leading zero", 1, 4),
        ("a: 1e999", "number is too large", 1, 4),
        ("a: " + "9" * 5000, "number is too large", 1, 4),
        ("a: 1\na: 2", "duplicate key 'a', first on line 1", 2, 1),
        ("a:\n  b: 1\n  'b': 2", "duplicate key 'b', first on line 2", 3, 3),
        ("a: &x 1", "anchors (&) and aliases (*)", 1, 4),
        ("a: [1, *x]", "anchors (&) and aliases (*)", 1, 8),
        ("&x a: 1", "anchors (&) and aliases (*)", 1, 1),
        ("a: !!python/object:os.system 1", "tags (!)", 1, 4),
        ("a: !!str 1", "tags (!)", 1, 4),
        ("a: ! 1", "tags (!)", 1, 4),
        ("? [a, b]\n: 1", "a key must be one word", 1, 3),
        ("a: [1", "a bracket is never closed", 1, 6),
        ("a: [1 b: 2", "a bracket is never closed", 1, 11),
        ("a: b: c", "a colon that is not expected here", 1, 5),
        ("a: 1\n  b: 2", "a colon that is not expected here", 2, 4),
        ("a: 1\n\tb: 2", "a tab: YAML is indented with blanks only", 2, 1),
        ('a: 1\nb: "x\ny', "this quote is never closed", 2, 4),
        ("a: @x", "text that begins with @ needs quotes", 1, 4),
        ("a: 1\n---\nb: 2", "but found another document", 2, 1),
        ("- 1", "top level must be a mapping", 1, 1),
        ("just text", "top level must be a mapping", 1, 1),
        ("''", "top level must be a mapping", 1, 1),
        ("null", "top level must be a mapping", 1, 1),
        ("a: 1\nb: \x07", "control character", 2, 4),
        ("a: " + "[" * 60 + "]" * 60, "nested deeper than 50", 1, 53),
    ],
)
def test_refused(text, message, line, column):
    """Ambiguous or dangerous text is an error with its place."""
    error = fails(text)
    assert message in str(error)
    assert (error.file, error.line, error.column) == ("c.yaml", line, column)


@pytest.mark.parametrize("text", ["", "# only a comment", "---", "---\n# a: 1\n", "\n  \n"])
def test_empty(text):
    """A file without keys is an empty mapping, whose place is the beginning."""
    document = read(text)
    assert document.data == {}
    assert document.mark(("a",)) == (1, 1)


def test_every_ambiguous_value_at_once():
    """One run shows all of them, in the order of the file."""
    error = fails("a: yes\nb: [1, 010]\nc: {d: 1e999}\na: 2\n? [x]\n: 1\n")
    assert [line.partition(": ")[0] for line in error.lines] == [
        "c.yaml:1:4", "c.yaml:2:8", "c.yaml:3:8", "c.yaml:4:1", "c.yaml:5:3",
    ]  # fmt: skip


def test_depth_allowed():
    """Fifty levels are enough for anybody, and allowed."""
    deep = value("[" * 49 + "]" * 49)
    assert deep == [deep[0]]


def test_too_large():
    """More than 1 MiB is refused before parsing."""
    assert "larger than" in str(fails("a: " + "x" * (1 << 20)))


def test_keys_are_text():
    """Tensors may be called 0, on or null; a key is never anything but text."""
    assert read("{0: a, on: b, null: c, 010: d, true: e}").data == {
        "0": "a",
        "on": "b",
        "null": "c",
        "010": "d",
        "true": "e",
    }


def test_marks():
    """Every key, value and item knows its line and column, counted from 1."""
    document = read("a: 1\nb:\n  c: [x,\n    y]\n")
    assert document.mark(("a",)) == (1, 1)
    assert document.mark(("a",), key=False) == (1, 4)
    assert document.mark(("b", "c")) == (3, 3)
    assert document.mark(("b", "c"), key=False) == (3, 6)
    assert document.mark(("b", "c", 1)) == document.mark(("b", "c", 1), key=False) == (4, 5)
    assert document.mark(()) == (1, 1)


def test_mark_of_something_missing():
    """A missing key has the place of its parent."""
    document = read("a:\n  b: 1")
    assert document.mark(("a", "tag", "b")) == (2, 3)
    assert document.mark(("a", "z")) == (1, 1)
    assert document.existing_path(("a", "z", 3)) == ("a",)


def test_load(tmp_path):
    """A file is read with its own name, a byte order mark or not."""
    path = tmp_path / "c.yaml"
    path.write_bytes("\ufeffname: caf\u00e9\r\nb: 2\r\n".encode())
    document = yamlio.load(path, error=ConfigError)
    assert document.data == {"name": "caf\u00e9", "b": 2}
    assert document.name == str(path)
    assert document.mark(("b",)) == (2, 1)


def test_unreadable(tmp_path):
    """A missing file, a directory and an impossible name are errors of the file."""
    for path, said in (
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "cannot read: "),
        ("a\0b", "cannot read: "),
    ):
        with pytest.raises(ConfigError, match=said):
            yamlio.load(path, error=ConfigError)


def test_not_utf8(tmp_path):
    """The first byte that is not UTF-8 is named."""
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: 1\nb: \xc3\xa9\xff")
    with pytest.raises(ConfigError, match="not valid UTF-8") as caught:
        yamlio.load(path, error=ConfigError)
    assert (caught.value.line, caught.value.column) == (2, 5)


def test_no_text_at_all(tmp_path):
    """A model given where a YAML file is wanted."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x09\x12\x00\xff\xfe")
    with pytest.raises(ConfigError, match=r"m\.onnx: is not a text file; a YAML file is expected"):
        yamlio.load(path, error=ConfigError)


@pytest.mark.parametrize("filler", [b"x", "\u20ac".encode()])
def test_large_file(tmp_path, filler):
    """A large file is refused as large, even if the limit cuts a character in two."""
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: " + filler * (1 << 20))
    with pytest.raises(ConfigError, match="larger than"):
        yamlio.load(path, error=ConfigError)


def test_surrogates_do_not_crash():
    """Text that cannot be encoded is a user's error too."""
    assert "control character" in str(fails("a: \ud800"))


@given(st.text(max_size=60))
def test_any_text(text):
    """Any text is data or a located error, never another exception."""
    data, line = {}, 1
    try:
        data = read(text).data
    except ConfigError as error:
        line = error.line
    assert isinstance(data, dict)
    assert line >= 1


class Inner(Record):
    """A record in a record."""

    kernel_h: int = Field(default=1, ge=1, lt=9)
    condition: str = Field(default="", keys=("if",))


def _odd(value):
    if value % 2 == 0:
        raise ValueError("must be odd")
    return value


class Whole(Record):
    """One field for each kind of fault."""

    name: str
    color: Literal["rgb", "bgr"] = "rgb"
    one: Literal[1] = 1
    ratio: float = 0.5
    flag: bool = False
    pair: tuple[int, int] = (1, 2)
    some: list[int] = Field(default_factory=lambda: [1], min_length=1, max_length=2)
    over: Annotated[int, Bounded(gt=0, le=5)] = 1
    inner: Inner | None = None
    many: dict[str, Inner] = Field(default_factory=dict)
    odd: Annotated[int, Before(_odd)] = 1


def test_validate():
    """A right file becomes the model."""
    model = yamlio.validate(read("name: x\ninner: {if: y}"), Whole, error=ConfigError)
    assert (model.name, model.inner.condition) == ("x", "y")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nname: x", "1:1: a: unknown key"),
        ("name: x\ncolour: rgb", "2:1: colour: unknown key (did you mean 'color'?)"),
        (
            "name: x\ninner: {kernel_hh: 1}",
            "2:9: inner.kernel_hh: unknown key (did you mean 'kernel_h'?)",
        ),
        (
            "name: x\nmany:\n  q: {Kernel-H: 1}",
            "3:7: many.q.Kernel-H: unknown key (did you mean 'kernel_h'?)",
        ),
        ("name: x\ninner: {iff: a}", "2:9: inner.iff: unknown key (did you mean 'if'?)"),
        ("nam: x", "1:1: nam: unknown key (did you mean 'name'?)"),
        ("flag: true", "1:1: name: this key is required"),
        ("name: 1.5", "1:1: name: must be text, not 1.5 (quote it to mean the text)"),
        ("name: [1]", "1:1: name: must be text, not [1]"),
        (
            "name: x\ncolor: rbg",
            "2:1: color: 'rbg' is not one of 'rgb' or 'bgr' (did you mean 'rgb'?)",
        ),
        ("name: x\none: 2", "2:1: one: 2 is not 1"),
        ("name: x\nratio: a", "2:1: ratio: must be a number, not 'a'"),
        ("name: x\nflag: 7", "2:1: flag: must be true or false, not 7"),
        ("name: x\nflag:", "2:1: flag: must be true or false, not nothing"),
        ("name: x\nover: 1.5", "2:1: over: must be a whole number, not 1.5"),
        ("name: x\npair: [1, b]", "2:11: pair[1]: must be a whole number, not 'b'"),
        ("name: x\npair: [1]", "2:1: pair[1]: this key is required"),
        ("name: x\npair: [1, 2, 3]", "2:1: pair: needs at most 2 items, not 3"),
        ("name: x\nsome: []", "2:1: some: needs at least 1 item, not 0"),
        ("name: x\nsome: true", "2:1: some: must be a list, not true"),
        ("name: x\nsome: [1, 2, 3]", "2:1: some: needs at most 2 items, not 3"),
        ("name: x\nover: 0", "2:1: over: must be more than 0, not 0"),
        ("name: x\nover: 6", "2:1: over: must be at most 5, not 6"),
        ("name: x\ninner: {kernel_h: 0}", "2:9: inner.kernel_h: must be at least 1, not 0"),
        ("name: x\ninner: {kernel_h: 9}", "2:9: inner.kernel_h: must be less than 9, not 9"),
        ("name: x\ninner: 3", "2:1: inner: must be a mapping of keys to values, not 3"),
        ("name: x\nmany: 3", "2:1: many: must be a mapping of keys to values, not 3"),
        ("name: x\nodd: 2", "2:1: odd: must be odd"),
    ],
)
def test_validation_errors(text, expected):
    """The first fault is one sentence with its place and a suggestion."""
    with pytest.raises(ConfigError) as caught:
        yamlio.validate(read(text), Whole, error=ConfigError)
    assert str(caught.value) == f"c.yaml:{expected}"


def test_problems():
    """All faults at once, misspelt keys first; none that follows from another."""
    found = yamlio.problems(read("nam: x\nover: 9\nfoo: 1"), Whole, error=ConfigError)
    assert [(error.line, error.hint) for error in found] == [
        (1, "did you mean 'name'?"),
        (3, ""),
        (2, ""),
    ]
    assert yamlio.problems(read("name: x"), Whole, error=ConfigError) == []


def test_explain_what_it_does_not_know():
    """An unfamiliar pydantic error keeps pydantic's words; long values are cut."""
    assert yamlio.explain({"type": "weird", "msg": "Odd thing", "input": 1}) == "odd thing"
    with pytest.raises(ValueError) as caught:
        Whole.model_validate({"name": "x", "over": "y" * 99})
    assert yamlio.explain(faults(caught.value)[0]).endswith("yyy...")
    assert yamlio.explain({"type": "value_error", "msg": "Value error", "input": 1}) == (
        "Value error"
    )
    assert "not nothing" in yamlio.explain({"type": "int_type", "msg": "", "input": None})


def test_suggest():
    """A suggestion is close, in spite of case; far words get none."""
    assert yamlio.suggest("CONV", ["Conv", "Gemm"]) == "did you mean 'Conv'?"
    assert yamlio.suggest("xyz", ["Conv", "Gemm"]) == ""
    assert nearest("Kernel_h", ["kernel_w", "kernel_h"]) == "kernel_h"


def test_dotted():
    """Paths read like code."""
    assert dotted(("a", "b", 0, "c")) == "a.b[0].c"
    assert dotted(()) == ""


def test_does_not_import_pydantic():
    """Reading YAML is cheap."""
    code = "import sys, npuconv.yamlio; sys.exit('pydantic' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )
