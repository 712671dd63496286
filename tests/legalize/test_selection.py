"""Findings that count: select, ignore, severity, per model, and a baseline."""

from __future__ import annotations

import json

import pytest

import npuconv
from npuconv.config import make_options
from npuconv.errors import UnsupportedModelError
from npuconv.findings import Finding, Severity, Status
from npuconv.legalize import selection
from npuconv.legalize.selection import for_model, select_findings, stale, waived
from support.builders import Net, digits, images

X = (1, 4, 8, 8)


def finding(code="SHP010", name="extent-out-of-range", **changes):
    values = {"severity": Severity.ERROR, "message": "m", "node": "n", **changes}
    return Finding(code=code, name=name, **values)


def left(*findings, accepted=(), **options):
    return select_findings(findings, make_options(options), accepted or {})


def flat_and_volume():
    """A convolution that the target takes, and one of a rank that it does not."""
    net = Net(x=X).conv("x", (4, 4, 3, 3), pads=[1] * 4, name="flat")
    net.reshape([1, 4, 4, 4, 4])
    net.conv(net.last, (4, 4, 3, 3, 3), name="volume", pads=[1] * 6)
    return net.model()


@pytest.mark.parametrize(
    ("select", "ignore", "stays"),
    [
        ([], [], True),
        (["SHP"], [], True),
        (["DTY"], [], False),
        ([], ["SHP"], False),
        (["SHP010"], ["SHP"], True),
        (["SHP"], ["SHP010"], False),
        (["SHP"], ["SHP01"], False),
        (["SHP01"], ["SHP"], True),
        (["SHP010"], ["SHP010"], False),
        (["extent-out-of-range"], [], True),
        ([], ["extent-out-of-range"], False),
        (["extent-out-of-range"], ["SHP010"], True),
        (["S", "SHP010"], ["SHP"], True),
    ],
)
def test_what_says_more_of_a_code_wins(select, ignore, stays):
    """The longer prefix wins; of two equal ones ignore does, as in ruff."""
    assert bool(left(finding(), select=select, ignore=ignore)) is stays


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({}, "error"),
        ({"SHP": "note"}, "note"),
        ({"SHP": "note", "SHP010": "warning"}, "warning"),
        ({"SHP010": "warning", "SHP": "note"}, "warning"),
        ({"extent-out-of-range": "note", "SHP010": "warning"}, "note"),
        ({"DTY": "note"}, "error"),
    ],
)
def test_severity(given, level):
    """The one that says more of the code counts."""
    (found,) = left(finding(), severity=given)
    assert found.severity == level


def test_what_is_unknown():
    """A severity that is given wins over --unknown fail; what is passed over stays away."""
    unknown = finding(severity=Severity.WARNING, status=Status.UNKNOWN)
    (raised,) = left(unknown, unknown="fail")
    assert raised.severity == "error"
    (set_,) = left(unknown, unknown="fail", severity={"SHP": "note"})
    assert set_.severity == "note"
    assert not left(unknown, unknown="pass", severity={"SHP": "error"})


def test_what_has_no_meaning_is_always_said():
    """A meaningless model can be accepted, not ignored or made less: it cannot be converted."""
    malformed = Net(x=X).conv("x", (6, 4, 3, 3), group=4).model()
    plain = npuconv.check(malformed)
    hidden = npuconv.check(malformed, ignore=["SHP"], severity={"SHP": "note"})
    (code,) = {f.code for f in hidden.findings if f.code.startswith("SHP")}
    (one,) = [f for f in plain.findings if f.code == code]
    assert one in hidden.findings
    assert one.severity == "error"


def test_twice_is_once():
    """Findings are weighed again when calibration adds some."""
    options = {"severity": {"SHP": "warning"}, "ignore": ["DTY"]}
    once = left(finding(), finding("DTY001", "x"), accepted={("SHP010", "n"): 1}, **options)
    assert left(*once, accepted={("SHP010", "n"): 1}, **options) == once


def test_accepted():
    """Acceptance is by code and node; rewritten findings need none."""
    found = left(
        finding(),
        finding(node="other"),
        finding(status=Status.REWRITTEN),
        accepted={("SHP010", "n"): 1},
    )
    assert {(f.node, f.status, f.accepted) for f in found} == {
        ("n", "remaining", True),
        ("other", "remaining", False),
        ("n", "rewritten", False),
    }
    assert [f.node for f in found if selection.failing(f, "error")] == ["other"]


@pytest.mark.parametrize(("number", "passes"), [(1, True), (2, True), (3, False)])
def test_more_of_the_same_than_were_accepted(number, passes):
    """All are shown, as no finding can be identified as the new one."""
    found = left(*[finding()] * number, accepted={("SHP010", "n"): 2})
    assert {f.accepted for f in found} == {passes}


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("a.onnx", "a.onnx", True),
        ("a.onnx", "models/old/a.onnx", True),
        ("a.onnx", "models/ba.onnx", False),
        ("old/*.onnx", "models/old/a.onnx", True),
        ("old/*.onnx", "/abs/old/a.onnx", True),
        ("old/*", "models/bold/a.onnx", False),
        ("models/*", "models/old/a.onnx", True),
        ("*.onnx", "a.ONNX", False),
    ],
)
def test_patterns(pattern, path, fits):
    """Patterns fit the path or its end, from a folder on."""
    options = make_options({"rules": {pattern: {"ignore": ["SHP"]}}})
    assert bool(for_model(options, path).ignore) is fits


def test_for_model():
    """Ignored codes add up, severities win key by key, the last select replaces the general."""
    general = {"select": ["SHP"], "ignore": ["OPS"], "severity": {"SHP": "note", "DTY": "note"}}
    rules = {
        "a.onnx": {"ignore": ["QNT"], "severity": {"SHP": "error"}},
        "*.onnx": {"select": ["SHP010"], "ignore": ["CAL"]},
        "b.onnx": {"select": ["MDL"]},
    }
    options = make_options({**general, "rules": rules})
    assert for_model(options, "x.bin") is options
    found = for_model(options, "m/a.onnx")
    assert (found.select, found.ignore) == (("SHP010",), ("OPS", "QNT", "CAL"))
    assert found.severity == {"SHP": "error", "DTY": "note"}


def test_rules_of_a_model_without_a_path():
    """A model without a path is known by the name of its graph."""
    assert not npuconv.check(flat_and_volume()).ok
    rules = {"test": {"severity": {"SHP001": "warning"}}}
    assert npuconv.check(flat_and_volume(), rules=rules).ok
    assert not npuconv.check(flat_and_volume(), rules={"toast": rules["test"]}).ok


def test_stale_entries():
    """Entries that accept nothing are named, except those that only convert can see."""
    listed = {("SHP010", "n"), ("SHP010", "gone"), ("CAL001", "n")}
    assert stale(listed, [finding()]) == ("an entry of the baseline can go: SHP010 gone",)
    many = [("SHP010", f"n{at}") for at in range(5)]
    assert stale(many, [finding(node="n0", status=Status.REWRITTEN)]) == (
        "5 entries of the baseline can go: SHP010 n0, SHP010 n1, SHP010 n2 and 2 more",
    )
    assert stale({("MDL001", "")}, []) == ("an entry of the baseline can go: MDL001 the model",)
    assert stale({}, [finding()]) == ()


def test_waived():
    """Errors that the options made less, or left out."""
    assert waived([finding()], [finding()]) == ()
    assert waived([finding()], []) == (
        "converted in spite of an error that does not count, by your options: "
        "extent-out-of-range x 1",
    )
    assert "errors that do not count" in waived([finding(), finding(node="b")], [])[0]
    assert waived([finding(status=Status.REWRITTEN)], []) == ()


@pytest.mark.parametrize("options", [{"severity": {"SHP001": "warning"}}, {"ignore": ["SHP001"]}])
def test_an_error_that_does_not_count_is_converted_and_said(options):
    """The node stays float, on the host, and the report begins with it."""
    samples = {"x": images(4, 4, 8, 8)}
    report = npuconv.convert(flat_and_volume(), calibration=samples, **options).report
    assert any("does not count" in one for one in report.summary.warnings)
    places = {node.name: node.placement for node in report.nodes}
    assert (places["flat"], places["volume"]) == ("device", "host")


def test_an_accepted_error_still_blocks(tmp_path):
    """A baseline makes no model legal: check passes, convert refuses and says why."""
    path = tmp_path / "b.json"
    path.write_text(
        '{"version": 1, "findings": [{"model": "x", "target": "npu-int8", '
        '"code": "SHP001", "node": "volume"}]}'
    )
    model = flat_and_volume()
    model.graph.name = str(tmp_path / "x")
    report = npuconv.check(model, baseline=str(path))
    assert (report.ok, report.summary.exit_code, report.summary.accepted) == (False, 0, 1)
    said = "1 accepted error: rank-unsupported x 1; it still cannot be converted"
    assert report.summary.headline == said
    with pytest.raises(UnsupportedModelError, match="accepted error") as caught:
        npuconv.convert(model, baseline=str(path))
    assert caught.value.report.findings == report.findings
    assert caught.value.report.summary.exit_code == 1


def test_an_accepted_warning_blocks_nothing(tmp_path):
    """Accepted unknown limits do not fail with --fail-on unknown."""
    every = npuconv.check(digits(), fail_on="unknown")
    assert every.summary.exit_code == 1
    entries = [
        {"model": "test", "target": "npu-int8", "code": f.code, "node": f.node, "count": 99}
        for f in every.findings
    ]
    path = tmp_path / "b.json"
    path.write_text(json.dumps({"findings": entries}))
    model = digits()
    model.graph.name = str(tmp_path / "test")
    report = npuconv.check(model, fail_on="unknown", baseline=str(path))
    assert (report.ok, report.summary.exit_code) == (True, 0)
