"""Targets: what a chip can do, what is not known, and every way to get the file wrong."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv import yamlio
from npuconv.errors import TargetError
from npuconv.facts import FACTS
from npuconv.target import Target, builtin_names
from npuconv.target.limit import PREDICATES, CelError, Limit, Relation, check_cel
from npuconv.target.semantics import lint

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "configs" / "targets" / "my_chip.yaml"
KNOWN = "ethos-u55, horizon-x3, mediatek-mdla2, npu-int8, rknn"
HEAD = """schema: 1
name: t
sources: {notes/group: the notes, manual: the manual}
activations: {dtype: int8}
weights: {dtype: int8}
operators:
"""  # six lines: what is appended begins on line 7


def document(text):
    return yamlio.loads(text, name="t.yaml", error=TargetError)


def make(body):
    return Target.from_document(document(HEAD + body))


def fails(text):
    with pytest.raises(TargetError) as caught:
        Target.from_document(document(text))
    return str(caught.value)


def limit(text, fact="group"):
    return make(f"  Conv:\n    limits:\n      {fact}: {text}\n").operators["Conv"].limits[fact]


# limits


@pytest.mark.parametrize(
    ("text", "value", "facts", "allowed", "words"),
    [
        ("{equals: 4}", 4, {}, True, "4"),
        ("{equals: 4}", 3, {}, False, "4"),
        ("{equals: C}", 8, {"in_c": 8}, True, "C (=8)"),
        ("{equals: C}", 8, {}, None, "C"),
        ("{one_of: [1, C]}", 1, {}, True, "1 or C"),
        ("{one_of: [1, C]}", 32, {"in_c": 32}, True, "1 or C (=32)"),
        ("{one_of: [1, C]}", 2, {"in_c": 32}, False, "1 or C (=32)"),
        ("{one_of: [1, C]}", 2, {}, None, "1 or C"),
        ("{one_of: [1, 2, 4]}", 4, {}, True, "1, 2 or 4"),
        ("{one_of: []}", 4, {}, False, "nothing"),
        ("[1, 2]", 2, {}, True, "1 or 2"),
        ("{range: [1, 7]}", 7, {}, True, "1..7"),
        ("{range: [1, 7]}", 8, {}, False, "1..7"),
        ("{range: [1, 7]}", 0, {}, False, "1..7"),
        ("{range: [1, kernel_h]}", 3, {"kernel_h": 3}, True, "1..kernel_h (=3)"),
        ("{range: [1, kernel_h]}", 0, {}, False, "1..kernel_h"),
        ("{range: [1, kernel_h]}", 2, {}, None, "1..kernel_h"),
        ("{min: 3}", 3, {}, True, "at least 3"),
        ("{min: 3}", 2, {}, False, "at least 3"),
        ("{max: 3}", 3, {}, True, "at most 3"),
        ("{max: in_w}", 4, {"in_w": 3}, False, "at most in_w (=3)"),
        ("{power_of_two: true}", 8, {}, True, "a power of two"),
        ("{power_of_two: true}", 6, {}, False, "a power of two"),
        ("{power_of_two: true}", 0, {}, False, "a power of two"),
        ("{multiple_of: 8}", 16, {}, True, "a multiple of 8"),
        ("{multiple_of: 8}", 12, {}, False, "a multiple of 8"),
        ("{multiple_of: stride_h}", 4, {"stride_h": 0}, None, "a multiple of stride_h (=0)"),
        ('"?"', 4, {}, None, "?"),
        ('{limit: "?"}', 4, {}, None, "?"),
        ("{equals: 4}", None, {}, None, "4"),
    ],
)
def test_limits(text, value, facts, allowed, words):
    """Every predicate answers yes, no or cannot say, and reads well."""
    found = limit(text)
    assert found.allows(value, facts) is allowed
    assert found.text(facts) == words
    assert found.known is ("?" not in text)


@pytest.mark.parametrize(
    ("fact", "text", "value", "allowed", "words"),
    [
        ("auto_pad", "{one_of: [NOTSET]}", "NOTSET", True, "NOTSET"),
        ("auto_pad", "{one_of: [NOTSET]}", "VALID", False, "NOTSET"),
        ("bias", "{equals: true}", True, True, "true"),
        ("bias", "{equals: true}", False, False, "true"),
        ("dtype", "{equals: weight_dtype}", "int8", True, "weight_dtype (=int8)"),
    ],
)
def test_limits_on_words(fact, text, value, allowed, words):
    """Words and truth values are limited too."""
    facts = {"weight_dtype": "int8"}
    assert limit(text, fact).allows(value, facts) is allowed
    assert limit(text, fact).text(facts) == words


def test_true_is_not_one():
    """A bias that is present is not the number one."""
    assert Limit.model_validate({"equals": 1}).allows(True, {}) is False
    assert Limit.model_validate({"one_of": [True]}).allows(1, {}) is False


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_range_is_min_and_max(value, low, high):
    """A range is its two ends."""
    ends = [Limit.model_validate(p).allows(value, {}) for p in ({"min": low}, {"max": high})]
    assert Limit.model_validate({"range": [low, high]}).allows(value, {}) is all(ends)


def test_citation():
    """A limit says which line and which document it is from."""
    found = limit("{one_of: [1, C], source: notes/group, why: only 1 or C}")
    assert found.cite() == "t.yaml:9 operators.Conv.limits.group (notes/group: only 1 or C)"
    assert (found.path, found.line) == ("operators.Conv.limits.group", 9)
    assert limit('"?"').cite() == "t.yaml:9 operators.Conv.limits.group"
    assert limit("{min: 1, source: manual}").cite().endswith("(manual)")


def test_limits_that_are_not_from_a_file():
    """A default, or a limit made by a program, has no place."""
    assert Limit.model_validate({"min": 1}).cite() == ""
    target = make("  Conv: {}")
    assert target.fused_activations.known is False
    assert target.fused_activations.cite() == "t.yaml fused_activations"
    assert target.fused_activations.line == 0


# relations


def relation(text):
    return make(f"  Conv:\n    require: [{text}]\n").operators["Conv"].require[0]


@pytest.mark.parametrize(
    ("text", "facts", "holds"),
    [
        ("{then: stride_h == stride_w}", {"stride_h": 1, "stride_w": 1}, True),
        ("{then: stride_h == stride_w}", {"stride_h": 1, "stride_w": 2}, False),
        ("{then: stride_h == stride_w}", {"stride_h": 1}, None),
        ("{if: dilation_h > 1, then: stride_h == 1}", {"dilation_h": 1}, True),
        ("{if: dilation_h > 1, then: stride_h == 1}", {"dilation_h": 2}, None),
        ("{if: dilation_h > 1, then: stride_h == 1}", {"stride_h": 1}, True),
        ("{if: dilation_h > 1, then: stride_h == 1}", {"stride_h": 2}, None),
        ("{if: dilation_h > 1, then: stride_h == 1}", {"dilation_h": 2, "stride_h": 2}, False),
        ("{if: mode == 'plain', then: bias}", {"mode": "plain", "bias": False}, False),
        ("{then: C % 8 == 0}", {"in_c": 16}, True),
        ("{then: in_h % stride_h == 0}", {"in_h": 16, "stride_h": 0}, None),
        ("{then: '[1, 2].exists(x, x == group)'}", {"group": 2}, True),
        ("{then: 'true'}", {}, True),
    ],
)
def test_relations(text, facts, holds):
    """A relation holds, is broken, or cannot be told."""
    assert relation(text).holds(facts) is holds


def test_relation_text():
    """A relation shows the facts it was broken by, and where it is from."""
    found = relation("{if: dilation_h > 1, then: stride_h == 1, source: manual/3, why: slow}")
    assert found.text() == "stride_h == 1 when dilation_h > 1"
    assert found.text({"dilation_h": 2, "group": 1}) == f"{found.text()} (dilation_h=2)"
    assert found.facts == ["dilation_h", "stride_h"]
    assert found.cite() == "t.yaml:8 operators.Conv.require[0] (manual/3: slow)"
    assert relation("{then: bias}").facts == ["bias"]


@pytest.mark.parametrize(
    ("source", "message", "offset", "hint"),
    [
        ("strid_h == 1", "unknown fact 'strid_h'", 0, "did you mean 'stride_h'?"),
        ("group == 1 && qqqqqq", "unknown fact 'qqqqqq'", 14, ""),
        ("siz(dtype) == 1", "unknown function 'siz'", 0, "did you mean 'size'?"),
        ("stride_h ==", "not a CEL expression: mismatched input '<EOF>'", 11, ""),
        ("stride_h\n == ==", "not a CEL expression: ", 0, ""),
        ("dtype > 3", "compares or combines values of different types", 0, ""),
        ("stride_h + 1", "must be true or false, such as 'stride_h == 1'", 0, ""),
    ],
)
def test_bad_cel(source, message, offset, hint):
    """An expression that could fail on a user's model is refused when the target is loaded."""
    with pytest.raises(CelError) as caught:
        check_cel(source)
    assert message in caught.value.message
    assert (caught.value.offset, caught.value.hint) == (offset, hint)


def test_cel_that_depends_on_values():
    """Dividing by a difference is not wrong in itself, and cannot be told when it is zero."""
    check_cel("in_h / (in_h - in_w) == 1")
    broken = Relation(then="in_h / (in_h - in_w) == 1")
    assert broken.holds({"in_h": 4, "in_w": 4}) is None


def test_foreign_cel_message(monkeypatch):
    """A message of the engine without a place is shown as it is."""

    def fail(source):
        raise ValueError(f"no idea: {source}\nmore")

    monkeypatch.setattr("npuconv.target.limit.compile_cel", fail)
    with pytest.raises(CelError, match="no idea: x"):
        check_cel("x")


# targets


def test_builtin():
    """The built-in target says what the notes say, and no more."""
    assert "npu-int8" in builtin_names()
    target = Target.load("npu-int8")
    assert (target.name, target.file) == ("npu-int8", "npu-int8")
    conv = target.operator("Conv").limits_for("plain")
    assert conv["auto_pad"].text() == "NOTSET"
    assert conv["group"].text({"in_c": 32}) == "1 or C (=32)"
    assert conv["rank"].text() == "4"
    assert conv["pad_value"].text() == "0"
    assert conv["layout"].text() == "nchw"
    assert conv["dtype"].text() == conv["weight_dtype"].text() == "int8"
    assert target.unlisted_operators == "undocumented"
    assert all(
        limit.source.startswith("notes/")
        for path, limit in target.limits()
        if path[0] != "activations"
    )


def test_builtin_unknowns():
    """Limits that the owner marked ``?`` are unknown, and assumptions are listed."""
    target = Target.load("npu-int8")
    sides = ["dilation", "kernel", "stride"]
    expected = {f"{name}_{axis}" for name in sides for axis in "hw"}
    expected |= {f"pad_{side}" for side in ("top", "left", "bottom", "right")}
    expected |= {f"{tensor}_{axis}" for tensor in ("in", "weight") for axis in "nchw"}
    expected |= {"bias", "bias_dtype"}
    unknown = [path for path, _ in target.unknown_limits()]
    assert unknown[-1] == "fused_activations"
    assert {path.removeprefix("operators.Conv.limits.") for path in unknown[:-1]} == expected
    assumptions = dict(target.assumptions())
    assert assumptions["fused_activations"] == "Relu, Clip"
    assert assumptions["bias.dtype"] == "int32"
    assert assumptions["weights.range"] == "-127..127"
    assert assumptions["activations.zero_point"] == "0"
    assert assumptions["operators.Conv.limits.bias"] == "true, false"
    assert target.bias.used == "int32"


def test_every_limit_of_the_notes_is_cited():
    """No limit of the built-in target without a document, and no document without a limit."""
    target = Target.load("npu-int8")
    cited = {part.source for _, part in target.cited()}
    # zero_point has the source of its block; output Y has nothing to set
    assert cited - {""} == set(target.sources) - {"notes/Y"}


def test_example_is_complete():
    """The example uses every predicate, every mode of writing, and is clean."""
    target = Target.load(EXAMPLE)
    assert lint(yamlio.load(EXAMPLE, error=TargetError)) == []
    used = {limit.predicate for _, limit in target.limits()}
    assert used == set(PREDICATES)
    assert target.operators["Conv"].modes
    assert target.file == str(EXAMPLE)


def test_modes_override():
    """The limits of a mode replace the general ones, fact by fact."""
    conv = Target.load(EXAMPLE).operator("Conv")
    assert conv.limits_for("plain")["kernel_h"].text() == "1..11"
    assert conv.limits_for("depthwise")["kernel_h"].text() == "1..8"
    assert conv.limits_for("depthwise")["stride_h"].text() == "1, 2 or 4"
    special = conv.limits_for("depthwise")["kernel_h"]
    assert special.path == "operators.Conv.modes.depthwise.kernel_h"


def test_what_holds_for_all_operators():
    """An operator's own limits replace the common ones, its relations stand beside them."""
    text = """  Conv: {limits: {rank: {equals: 4}}, require: [{then: group == 1}]}
  Add: {}
all_operators:
  limits: {rank: {max: 4}, in_n: {equals: 1, source: manual}}
  require: [{then: in_h == in_w}]
"""
    target = make(text)
    conv, add = target.operator("Conv"), target.operator("Add")
    assert {k: v.text() for k, v in conv.limits.items()} == {"rank": "4", "in_n": "1"}
    assert {k: v.text() for k, v in add.limits.items()} == {"rank": "at most 4", "in_n": "1"}
    assert [r.then for r in conv.require] == ["in_h == in_w", "group == 1"]
    assert add.limits["in_n"].cite() == "t.yaml:10 all_operators.limits.in_n (manual)"
    assert target.operators["Add"].limits == {}
    assert target.operator("Add", "com.microsoft") is None


def test_operator_lookup():
    """An operator is found in its own domain only."""
    target = Target.load(EXAMPLE)
    assert target.operator("Conv") is target.operator("Conv", "ai.onnx")
    assert target.operator("Conv", "com.microsoft") is None
    assert target.operator("QLinearAdd", "com.microsoft") is not None
    assert target.operator("QLinearAdd") is None
    assert target.operator("Gemm") is None


def test_formats():
    """Zero points are a list, a range or unknown; the bias has a type to use."""
    assert make("  Conv: {}").activations.allows_zero_point(0) is True
    assert make("  Conv: {}").activations.allows_zero_point(3) is False
    free = make("  Conv: {}\nbias: {dtype: int16}")
    assert (free.bias.used, free.weights.range) == ("int16", (-127, 127))
    assert free.assumptions() == []
    text = (HEAD + "  Conv: {}").replace(
        "activations: {dtype: int8}", 'activations: {dtype: int8, zero_point: "?"}'
    )
    assert Target.from_document(document(text)).activations.allows_zero_point(0) is None
    assert Target.load(EXAMPLE).activations.allows_zero_point(-128) is True


def test_sha256(tmp_path):
    """The digest is that of the bytes of the file."""
    path = tmp_path / "t.yaml"
    path.write_bytes((HEAD + "  Conv: {}\r\n").encode())
    assert Target.load(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert Target.load(str(path)).yaml.endswith("\r\n")


def test_pickle():
    """A target goes to another process with its places, even after its relations were used."""
    target = Target.load(EXAMPLE)
    assert target.operators["Conv"].require[1].holds({"pad_top": 1, "pad_bottom": 1})
    copy = pickle.loads(pickle.dumps(target))
    assert copy == target
    assert copy.sha256 == target.sha256
    assert copy.operators["Conv"].limits["group"].cite().startswith(f"{EXAMPLE.name}:")


def test_file_without_a_suffix(tmp_path):
    """A file may have any name."""
    path = tmp_path / "chip"
    path.write_text(HEAD + "  Conv: {}")
    assert Target.load(path).name == "t"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("npu-in8", f"unknown target 'npu-in8'; known: {KNOWN} (did you mean 'npu-int8'?)"),
        ("zzz", f"unknown target 'zzz'; known: {KNOWN} (or give a .yaml file)"),
        ("zzz.yaml", "zzz.yaml: no such file"),
    ],
)
def test_unknown_target(name, message):
    """An unknown name lists the known ones and suggests one."""
    with pytest.raises(TargetError) as caught:
        Target.load(name)
    assert str(caught.value) == message


# errors

LIMIT = "  Conv:\n    limits:\n      "


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("  Covn: {}", "7:3: 'Covn' is not an operator of ONNX (did you mean 'Conv'?)"),
        (
            "  QLinearAd: {domain: com.microsoft}",
            "7:3: 'QLinearAd' is not an operator of the domain 'com.microsoft' "
            "(did you mean 'QLinearAdd'?)",
        ),
        (
            "  Conv: {domain: com.microsft}",
            "7:10: unknown operator domain 'com.microsft' (did you mean 'com.microsoft'?)",
        ),
        (
            "  Conv: {}\nall_operators: {limits: {kernal_h: {min: 1}}}",
            "8:26: unknown fact 'kernal_h' (did you mean 'kernel_h'?)",
        ),
        (
            "  Conv: {}\nall_operators: {limits: {bias: {equals: 1}}}",
            "8:41: 'bias' is true or false, not 1",
        ),
        (
            "  Conv: {}\nall_operators: {require: [{then: strid_h == 1}]}",
            "8:34: unknown fact 'strid_h' (did you mean 'stride_h'?)",
        ),
        (LIMIT + "kernal_h: {min: 1}", "9:7: unknown fact 'kernal_h' (did you mean 'kernel_h'?)"),
        (
            "  Conv:\n    modes: {plain: {kernal_h: {min: 1}}}",
            "8:21: unknown fact 'kernal_h' (did you mean 'kernel_h'?)",
        ),
        (
            "  Conv:\n    modes: {depthwize: {}}",
            "8:13: operators.Conv.modes.depthwize: 'depthwize' is not one of 'plain', 'grouped', "
            "'depthwise' or 'transposed' (did you mean 'depthwise'?)",
        ),
        (
            "  Conv:\n    limit: {}",
            "8:5: operators.Conv.limit: unknown key (did you mean 'limits'?)",
        ),
        (
            LIMIT + "group: {one_off: [1]}",
            "9:15: operators.Conv.limits.group.one_off: unknown key (did you mean 'one_of'?)",
        ),
        (
            LIMIT + "group: {min: 1, max: 2}",
            "9:7: operators.Conv.limits.group: needs exactly one of equals, one_of, range, min, "
            "max, power_of_two, multiple_of, limit, not min, max",
        ),
        (
            LIMIT + "group: {source: manual}",
            "9:7: operators.Conv.limits.group: needs exactly one of equals, one_of, range, min, "
            "max, power_of_two, multiple_of, limit, not none",
        ),
        (
            LIMIT + "group: {min: 1, assume: [1]}",
            "9:7: operators.Conv.limits.group: `assume` only goes with an undocumented limit, "
            "`limit: '?'`",
        ),
        (
            LIMIT + "group: {range: [7, 1]}",
            "9:22: range: 7 is greater than 1 (write [lowest, highest])",
        ),
        (
            LIMIT + "group: {max: kernl_h}",
            "9:20: unknown fact 'kernl_h' (did you mean 'kernel_h'?)",
        ),
        (LIMIT + "group: {max: dtype}", "9:20: 'group' cannot be compared with 'dtype'"),
        (LIMIT + "group: {equals: true}", "9:23: 'group' is a number, not true"),
        (LIMIT + "bias: {equals: 1}", "9:22: 'bias' is true or false, not 1"),
        (LIMIT + "dtype: {equals: 1}", "9:23: 'dtype' is a word, not 1"),
        (LIMIT + "group: {multiple_of: 0}", "9:28: multiple_of: must be at least 1"),
        (LIMIT + "dtype: {min: 1}", "9:15: `min` needs a number, and 'dtype' is not one"),
        (
            LIMIT + "auto_pad: {one_of: [NOTSETT]}",
            "9:27: 'NOTSETT' is not a value of auto_pad, nor a fact (did you mean 'NOTSET'?)",
        ),
        (
            LIMIT + "group: {min: 1, source: notes/gruop}",
            "9:31: 'notes/gruop' is not one of the `sources` (did you mean 'notes/group'?)",
        ),
        (
            "  Conv:\n    require:\n      - then: 'strid_h == 1'",
            "9:16: unknown fact 'strid_h' (did you mean 'stride_h'?)",
        ),
        (
            "  Conv:\n    require:\n      - {if: group > 1 && x1, then: group == 2}",
            "9:27: unknown fact 'x1'",
        ),
        (
            "  Conv:\n    require:\n      - then: >\n          strid_h == 1",
            "9:15: unknown fact 'strid_h' (did you mean 'stride_h'?)",
        ),
        (
            "  Conv: {}\nfused_activations: {one_of: [Rellu]}",
            "8:30: fused_activations: 'Rellu' is not an operator of ONNX (did you mean 'Relu'?)",
        ),
        (
            '  Conv: {}\nfused_activations: {limit: "?", assume: [Rellu]}',
            "8:42: fused_activations: 'Rellu' is not an operator of ONNX (did you mean 'Relu'?)",
        ),
        (
            "  Conv: {}\nfused_activations: {min: 1}",
            "8:20: fused_activations: only equals, one_of or '?'",
        ),
        (
            "  Conv: {}\nunlisted_operators: hots",
            "8:1: unlisted_operators: 'hots' is not one of 'undocumented', 'host' or 'error' "
            "(did you mean 'host'?)",
        ),
        (
            "  Conv: {}\nbias: {assumed: [dtyp]}",
            "8:1: bias: `assumed` names 'dtyp', which is not a key of this block",
        ),
        ("  Conv: {}\nversion: 2.1", "8:1: version: must be text, not 2.1 (quote it to mean"),
    ],
)
def test_errors(body, expected):
    """Misspellings are errors with place and suggestion."""
    assert fails(HEAD + body).startswith(f"t.yaml:{expected}")


def test_wrong_formats():
    """Zero points and weight ranges are checked like limits."""
    text = HEAD + "  Conv: {}"
    bad = text.replace("weights: {dtype: int8}", "weights: {dtype: int8, range: [5, 1]}")
    assert fails(bad) == "t.yaml:5:1: weights: range: 5 is greater than 1"
    bad = text.replace("activations: {dtype: int8}", "activations: {dtype: int8, zero_point: [a]}")
    assert fails(bad) == "t.yaml:4:41: unknown fact 'a'"


def test_missing_keys():
    """Missing keys are named."""
    assert "required" in fails("schema: 1\nname: t")
    assert "schema: 2 is not 1" in fails(HEAD.replace("schema: 1", "schema: 2") + "  Conv: {}")


def test_lint_finds_everything():
    """All problems of a file at once, in its order, also beside one of another kind."""
    body = """  Covn: {}
  Conv:
    limits:
      grp: {min: 1}
      group: {minn: 1}
      rank: {range: [7, 1]}
    require:
      - {thn: true}
      - {then: foo == 1}
"""
    found = lint(document(HEAD + body))
    assert [error.line for error in found] == [7, 10, 11, 12, 14, 14, 15]


def test_lint_does_not_invent():
    """Faults that would follow from another are not shown."""
    text = HEAD.replace("sources: {", "sourcs: {") + LIMIT + "group: {min: 1, source: manual}"
    assert [error.hint for error in lint(document(text))] == ["did you mean 'sources'?"]
    assert len(lint(document(HEAD + "  Conv: 3"))) == 1


def test_lint_of_a_good_file():
    """A good file has no fault."""
    assert lint(document(HEAD + "  Conv: {}")) == []


# the table of operators


def test_operator_table_is_fresh():
    """The committed table is what the tool would write."""
    tool = ROOT / "tools" / "gen_operators.py"
    assert subprocess.run([sys.executable, tool, "--check"], check=False).returncode == 0


def test_operator_table():
    """The operators that the converter reads are known, each with its versions."""
    text = (ROOT / "src/npuconv/target/operators.json").read_text()
    table = json.loads(text)
    assert table[""]["Conv"]["since"] == [1, 11, 22]
    assert "activation_params" in table["com.ms.internal.nhwc"]["Conv"]["attributes"]
    assert set(table[""]["ConvTranspose"]["attributes"]) >= {"output_padding", "group"}


@given(st.sampled_from(sorted(FACTS)), st.text(max_size=20))
def test_any_limit(fact, text):
    """Any text in place of a limit is a limit or a located error."""
    line = 1
    try:
        limit(text, fact)
    except TargetError as error:
        line = error.line
    assert line >= 1
