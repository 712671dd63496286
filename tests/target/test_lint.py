"""Every way to get a target file wrong, with its place."""

from __future__ import annotations

import pytest

from npuconv.target.lint import lint
from support.target_files import HEAD, document, fails

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
            LIMIT + "group: {max: 2, native: {limit: '?'}}",
            "9:7: operators.Conv.limits.group: `native` must be a documented limit without another "
            "`native`",
        ),
        (
            LIMIT + "group: {max: 2, native: {max: true}}",
            "9:37: 'group' is a number, not true",
        ),
        (
            LIMIT + "group: {max: 2, native: {max: 1, source: notes/gruop}}",
            "9:48: 'notes/gruop' is not one of the `sources` (did you mean 'notes/group'?)",
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
        ("  Conv: {}\nopset: 9", "8:1: opset: must be at least 14, not 9"),
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
    assert [error.line for error in found] == [7, 10, 11, 12, 14, 15]


def test_lint_does_not_invent():
    """Faults that would follow from another are not shown."""
    text = HEAD.replace("sources: {", "sourcs: {") + LIMIT + "group: {min: 1, source: manual}"
    assert [error.hint for error in lint(document(text))] == ["did you mean 'sources'?"]
    assert len(lint(document(HEAD + "  Conv: 3"))) == 1


def test_lint_of_a_good_file():
    """A good file has no fault."""
    assert lint(document(HEAD + "  Conv: {}")) == []
