"""Limits of one fact, relations of facts, and every way to get an expression wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.errors import TargetError
from npuconv.target.facts import FACTS
from npuconv.target.limit import CelError, Limit, Relation, check_cel
from support.target_files import described, limit


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
    assert found.is_documented is ("?" not in text)


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
    assert limit('"?"').cite() == "t.yaml:9 operators.Conv.limits.group"
    assert limit("{min: 1, source: manual}").cite().endswith("(manual)")


def test_limits_that_are_not_from_a_file():
    """A default, or a limit made by a program, has no place."""
    assert Limit.model_validate({"min": 1}).cite() == ""
    target = described("  Conv: {}")
    assert target.fused_activations.is_documented is False
    assert target.fused_activations.cite() == "t.yaml fused_activations"


def relation(text):
    return described(f"  Conv:\n    require: [{text}]\n").operators["Conv"].require[0]


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


@given(st.sampled_from(sorted(FACTS)), st.text(max_size=20))
def test_any_limit(fact, text):
    """Any text in place of a limit is a limit or a located error."""
    line = 1
    try:
        limit(text, fact)
    except TargetError as error:
        line = error.line
    assert line >= 1
