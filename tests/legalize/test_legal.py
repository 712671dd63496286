"""Check: what is found, what becomes of it, and which options weigh it."""

from __future__ import annotations

import pytest

import npuconv
from npuconv.config import Options
from npuconv.errors import ModelError, UnsupportedModelError, UsageError
from npuconv.findings import Severity, Status
from npuconv.legalize.legal import legalize
from npuconv.legalize.selection import fails
from npuconv.model import load
from support.builders import Net, digits, images
from support.partial_sums import ADDS, CASES, chip_file
from support.zoo import ZOO

X = (1, 4, 8, 8)


def padded():
    """Two things that are rewritten: a Pad and an auto_pad."""
    net = Net(x=X).pad([0, 0, 1, 1, 0, 0, 1, 1]).conv("", (4, 4, 3, 3), name="first")
    return net.conv("", (4, 4, 3, 3), auto_pad="SAME_UPPER", name="second").model()


def grouped():
    """A convolution the device does not take."""
    return Net(x=X).conv("x", (4, 2, 3, 3), group=2, name="grouped").op("Relu").model()


def three_dimensional():
    return Net(x=(1, 2, 4, 4, 4)).conv("x", (4, 2, 3, 3, 3), name="deep").model()


def dynamic():
    net = Net(x=(1, 3, "h", "w"))
    return net.conv("x", (4, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]).model()


def nothing_to_do():
    return Net(x=X).op("Relu").model()


MODELS = {
    **ZOO, "pad": padded, "group": grouped, "3d": three_dimensional, "dynamic": dynamic,
    "relu": nothing_to_do,
}  # fmt: skip


def converted(model, **options):
    """The report of a conversion, refused or not."""
    try:
        return npuconv.convert(model, **options).report
    except UnsupportedModelError as error:
        return error.report


@pytest.mark.e2e
@pytest.mark.parametrize("form", ["float", "weights", "qoperator"])
@pytest.mark.parametrize("name", MODELS)
def test_check_and_convert_find_the_same(name, form):
    """Neither promises what the other does not do: findings, rewrites, refusals, limits."""
    checked = npuconv.check(MODELS[name](), format=form, max_samples=2)
    done = converted(MODELS[name](), format=form, max_samples=2)
    assert checked.findings == done.findings
    assert checked.rewrites[: len(done.rewrites)] == done.rewrites[: len(checked.rewrites)]
    assert checked.unknown_limits == done.unknown_limits
    assert checked.ok == done.ok
    assert done.summary.verdict == ("converted" if checked.ok else "refused")


def of(report, name):
    return [f for f in report.findings if f.name == name]


@pytest.mark.parametrize(
    ("model", "finding", "node", "rewriter"),
    [
        (padded, "auto-pad-unsupported", "second", "resolve-auto-pad"),
        (digits, "auto-pad-unsupported", "conv0", "resolve-auto-pad"),
    ],
)
def test_rewritten(model, finding, node, rewriter):
    """A fault that a pass removes is reported with that pass, under the user's name."""
    (found,) = of(npuconv.check(model()), finding)
    assert (found.status, found.node) == (Status.REWRITTEN, node)
    assert found.rewritten_by == rewriter
    assert "pads" in found.rewritten_into


def test_remaining():
    """A fault that no pass removes stays, and blocks."""
    report = npuconv.check(three_dimensional())
    (found,) = of(report, "rank-unsupported")
    assert (found.status, found.severity, found.node) == ("remaining", "error", "deep")
    assert (found.rewritten_by, found.rewritten_into) == ("", "")
    assert report.summary.verdict == "refused"
    assert report.nodes[0].placement == "host"
    assert report.nodes[0].reason == "a finding keeps it off the device"


def test_remaining_until_a_shape_is_given():
    """The advice works: with --input-shape the same model is rewritten."""
    (found,) = of(npuconv.check(dynamic()), "dynamic-dimension")
    assert found.status == "remaining"
    assert "--input-shape x=1,3,?,?" in found.fix
    report = npuconv.check(dynamic(), input_shape={"x": (1, 3, 8, 8)})
    assert report.ok
    assert not of(report, "dynamic-dimension")
    assert of(report, "auto-pad-unsupported")[0].status == "rewritten"


def test_unknown():
    """A limit that nobody wrote down is a finding with the value seen, and blocks nothing."""
    report = npuconv.check(digits())
    found = [f for f in report.findings if f.status == "unknown"]
    assert found
    assert all(f.value or f.message for f in found)
    assert all(f.severity != "error" for f in found)
    limits = {u.limit for u in report.unknown_limits}
    assert {"Conv.kernel_h", "Conv.stride_w", "Conv.pad_top"} <= limits


def test_what_nobody_reads_is_no_fault():
    """A convolution that leads nowhere goes, and its finding says so."""
    net = Net(x=X).conv("x", (4, 4, 1, 1), to="y")
    net.conv("x", (4, 2, 3, 3), group=2, to="unused", name="dead")
    report = npuconv.check(net.output("y").model())
    (found,) = of(report, "group-unsupported")
    assert (found.status, found.rewritten_by) == ("rewritten", "sweep")
    assert found.rewritten_into == "nothing reads it any more"
    assert report.ok


def test_findings_are_sorted():
    """Errors first, then by code and node."""
    for build in MODELS.values():
        found = npuconv.check(build()).findings
        ranks = [(-f.severity.rank, f.code, f.node, f.message) for f in found]
        assert ranks == sorted(ranks)


def test_select():
    """Only codes with one of these prefixes are shown; errors of others do not block."""
    report = npuconv.check(three_dimensional(), select=("DTY", "MDL"))
    assert {f.code[:3] for f in report.findings} <= {"DTY", "MDL"}
    assert report.ok
    (code,) = {f.code for f in of(npuconv.check(three_dimensional()), "rank-unsupported")}
    report = npuconv.check(three_dimensional(), select=(code,))
    assert {f.code for f in report.findings} == {code}
    assert not report.ok


def test_ignore():
    """Codes with these prefixes are not shown; the node stays off the device all the same."""
    (code,) = {f.code for f in of(npuconv.check(three_dimensional()), "rank-unsupported")}
    report = npuconv.check(three_dimensional(), ignore=(code,))
    assert code not in {f.code for f in report.findings}
    assert report.nodes[0].placement == "host"
    both = npuconv.check(three_dimensional(), select=(code[:3],), ignore=(code,))
    assert both.findings == ()


def test_unknown_limits_can_be_weighed():
    """Unknown limits warn, fail, or are passed over."""
    warned = npuconv.check(digits(), unknown="warn")
    failed = npuconv.check(digits(), unknown="fail")
    passed = npuconv.check(digits(), unknown="pass")
    assert warned.ok
    assert passed.ok
    assert not failed.ok
    assert {f.severity for f in failed.findings if f.status == "unknown"} == {"error"}
    assert not [f for f in passed.findings if f.status == "unknown"]
    assert warned.unknown_limits == failed.unknown_limits == passed.unknown_limits


@pytest.mark.parametrize(
    ("level", "model", "ok", "code"),
    [
        ("error", three_dimensional, False, 1),
        ("never", three_dimensional, False, 0),
        ("error", digits, True, 0),
        ("unknown", digits, False, 1),
        ("warning", three_dimensional, False, 1),
    ],
)
def test_fail_on(level, model, ok, code):
    """Findings from this level on make the exit code 1; the verdict is that of convert."""
    report = npuconv.check(model(), fail_on=level)
    assert (report.ok, report.summary.exit_code) == (ok, code)


def test_fail_on_counts_severities_and_statuses():
    """Rewritten findings never fail; unknown limits fail on request."""
    from npuconv.findings import Finding

    def finding(severity, status=Status.REMAINING):
        return Finding(code="SHP001", name="n", severity=severity, status=status, message="m")

    def failing(found):
        levels = ("error", "warning", "unknown", "never")
        return {level for level in levels if fails([found], Options(fail_on=level))}

    assert failing(finding(Severity.ERROR)) == {"error", "warning", "unknown"}
    assert failing(finding(Severity.WARNING)) == {"warning"}
    assert failing(finding(Severity.NOTE)) == set()
    assert failing(finding(Severity.NOTE, Status.UNKNOWN)) == {"unknown"}
    assert failing(finding(Severity.ERROR, Status.REWRITTEN)) == set()


def test_never_failing_still_writes_no_illegal_model():
    """Remaining errors leave no legal model, whatever the exit code of a check."""
    with pytest.raises(UnsupportedModelError):
        npuconv.convert(three_dimensional(), fail_on="never")


def test_the_error_carries_the_report():
    """Verdict, findings and the first line of the error are the same thing."""
    with pytest.raises(UnsupportedModelError) as caught:
        npuconv.convert(three_dimensional())
    report = caught.value.report
    assert report.summary.verdict == "refused"
    assert report.summary.exit_code == 1
    assert str(caught.value) == f"test: {report.summary.headline}"
    assert "1 error: rank-unsupported x 1" in report.summary.headline
    assert report.quantization is None
    assert report.accuracy is None


def test_refused_for_unknown_limits():
    """The headline names the option that refused, if no error is left."""
    with pytest.raises(
        UnsupportedModelError, match=r"\d+ undocumented limits, and --fail-on unknown"
    ):
        npuconv.convert(digits(), fail_on="unknown")


def test_many_kinds_of_errors():
    """The headline names the most frequent three."""
    report = npuconv.check(digits(), unknown="fail")
    errors = [f for f in report.findings if f.severity == "error" and f.status != "rewritten"]
    assert f"{len(errors)} errors: " in report.summary.headline


def test_the_source_is_reported_as_it_came():
    """Opset, inputs and outputs are those of the file, before anything is changed."""
    old = ZOO["old"]()
    report = npuconv.check(old)
    assert report.model.opset == {"": 7}
    assert report.model.ir_version == old.ir_version
    assert [t.name for t in report.model.inputs] == ["x"]
    assert report.model.inputs[0].shape == (1, 4, 10, 10)
    foreign = Net(x=X).conv("x", (4, 4, 1, 1)).op("Thing", domain="com.example").model()
    assert npuconv.check(foreign).model.opset == {"": 17, "com.example": 1}


def test_timings_only_where_asked():
    """The clock is no part of a report that is compared."""
    assert npuconv.check(digits()).timings is None
    stages = {t.stage for t in npuconv.check(digits(), timings=True).timings}
    assert {"load", "resolve-auto-pad"} <= stages


def test_without_verification():
    """Rewrites are done as well, and said not to have been measured."""
    report = npuconv.check(digits(), verify=False)
    assert report.findings == npuconv.check(digits()).findings
    assert {r.max_abs_difference for r in report.rewrites} == {None}


def test_rewrites_are_measured():
    """Each is compared with what it replaced."""
    measured = [r for r in npuconv.check(padded()).rewrites if r.max_abs_difference is not None]
    assert measured
    assert all(r.max_abs_difference < 1e-4 for r in measured)


def test_options_are_checked():
    """An unknown option is a usage error; the target may be a path object."""
    with pytest.raises(UsageError, match="'formt'"):
        npuconv.check(digits(), formt="qdq")
    with pytest.raises(UsageError, match="no such input"):
        npuconv.check(digits(), input_shape={"y": (1,)})


def test_a_blocked_node_is_known_by_its_name():
    """Only convolutions that a finding stands against are kept off the device."""
    net = Net(x=(1, 2, 4, 4, 4)).conv("x", (4, 2, 3, 3, 3), name="bad").op("Relu", name="after")
    work = legalize(net.model(), Options())
    assert work.blocked == {"bad"}
    assert work.plan.convolutions == []


def test_legalizing_does_not_touch_the_source():
    """Passes and rules work on a copy of the source."""
    model = padded()
    before = model.SerializeToString()
    legalize(model, Options())
    assert model.SerializeToString() == before
    assert load.load(model).opset == 17


def test_the_same_findings_with_samples():
    """Calibration data changes no finding."""
    cal = {"x": images(4, 1, 8, 8)}
    assert (
        npuconv.convert(digits(), calibration=cal).report.findings
        == npuconv.check(digits()).findings
    )


def test_the_first_of_several_contradictions_is_named():
    """Later contradictions, such as a missing type, follow from the first."""
    model = Net(x=(1, 3, 8, 8)).batchnorm(4).op("Relu").conv().model()
    with pytest.raises(ModelError, match=r"cannot be run: .*node name: batchnormalization0"):
        legalize(model, Options())


def test_shapes_that_contradict_each_other():
    """A model that no runtime takes is not valid, and the line says what does not fit."""
    net = Net(x=X, y=(1, 5, 8, 8)).conv("x", (4, 4, 1, 1))
    with pytest.raises(ModelError, match="cannot be run") as caught:
        npuconv.check(net.op("Add", "t0", "y").model())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", ["select", "ignore"])
def test_a_code_no_rule_has(option):
    """A misspelt code would select or ignore nothing, quietly."""
    with pytest.raises(UsageError, match=r"begins with 'SHP09'.*did you mean SHP0"):
        legalize(digits(), Options(**{option: ("SHP09",)}))


@pytest.mark.parametrize(("net", "limits"), CASES)
def test_what_the_accumulator_adds_needs_no_host(tmp_path, net, limits):
    """Slices and sums of the parts are no operators; in float they are, and else nobody adds."""
    model = net.model()
    for numbers, form, what in ((ADDS, "qdq", ""), (ADDS, "float", "Slice"), ({}, "qdq", "Conv")):
        path = str(chip_file(tmp_path, numbers, limits, unlisted_operators="error"))
        findings = legalize(model, Options(target=path, format=form)).findings
        left = {f.op_type for f in findings.all_findings if f.status == Status.REMAINING} - {"Relu"}
        assert (left == set()) is not bool(what)
        assert not what or what in left


def test_what_else_a_layer_in_parts_needs_is_refused(tmp_path):
    """The Pad in front of a window in parts is an operator, which nobody runs."""
    model = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 5, 5), pads=[2] * 4).model()
    limits = {"kernel_w": {"max": 3}}
    path = str(chip_file(tmp_path, ADDS, limits, unlisted_operators="error"))
    legal = legalize(model, Options(target=path))
    left = [f for f in legal.findings.all_findings if f.status == Status.REMAINING]
    assert [(f.code, f.op_type) for f in left] == [("OPS006", "Pad")]
    (conv,) = legal.model.nodes("Conv")
    assert conv.name in legal.blocked
