"""Codes of rules in options."""

from __future__ import annotations

import pytest

from npuconv import yamlio
from npuconv.config import Options, make_options
from npuconv.errors import ConfigError, UsageError
from npuconv.legalize.rule_codes import check_codes, unknown_codes


@pytest.mark.parametrize(
    "options",
    [
        {"select": ["SHP09"]},
        {"ignore": ["SHP09"]},
        {"severity": {"SHP09": "note"}},
        {"rules": {"*": {"severity": {"SHP09": "note"}}}},
        {"rules": {"*": {"ignore": ["group-unsuported"]}}},
        {"select": [""]},
    ],
)
def test_codes_that_no_rule_has(options):
    """Wherever they stand."""
    with pytest.raises(UsageError, match="no rule has a code that begins with"):
        check_codes(make_options(options))


def test_codes_that_there_are():
    """Beginnings and names."""
    check_codes(
        Options(select=("S", "SHP"), ignore=("group-unsupported",), severity={"OPS001": "note"})
    )


def test_all_unknown_codes_at_once():
    """The error suggests a similar code or name for each, ignoring case."""
    options = Options(select=("XYZ999", "SHAP"), ignore=("shp010", "Group-Unsuported"))
    with pytest.raises(UsageError) as caught:
        check_codes(options)
    begin = "no rule has a code that begins with"
    assert caught.value.lines == (
        f"{begin} 'XYZ999' (npuconv explain lists them)",
        f"{begin} 'SHAP' (did you mean SHP?)",
        f"{begin} 'shp010' (did you mean SHP010?)",
        f"{begin} 'Group-Unsuported' (did you mean group-unsupported?)",
    )


def test_unknown_codes_of_a_file(tmp_path):
    """Line and column of each, also of one model's options."""
    path = tmp_path / "c.yaml"
    path.write_text("ignore: [SHP, XYZ]\nrules:\n  a.onnx:\n    severity: {QRS: note}\n")
    found = list(unknown_codes(yamlio.load(path, error=ConfigError)))
    assert [(one.line, one.column) for one in found] == [(1, 15), (4, 16)]
