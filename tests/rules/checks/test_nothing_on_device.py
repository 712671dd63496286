"""Tests of nothing-on-device."""

from __future__ import annotations

import pytest

import npuconv
from npuconv.report import text
from support.asserts import finding
from support.builders import Net
from support.target_files import chip

CODE = "MDL005"
X = (1, 3, 8, 8)


def pool():
    return Net(x=X).op("MaxPool", kernel_shape=[2, 2]).op("Relu").model()


def late():
    return Net(x=X, w=(4, 3, 3, 3)).op("Conv", "x", "w", name="c").model()


def conv():
    return Net(x=X).conv("x", name="c").model()


FIRES = [lambda: Net(x=X).op("Relu").model(), (pool, chip("MaxPool"))]
SILENT = [conv, lambda: Net(x=X).conv("x").op("Relu").model()]


def test_it_says_how_much_stays():
    """All of it."""
    found = finding(pool(), CODE, chip("MaxPool"))
    assert found.message == (
        "nothing of this model runs on chip: all 2 nodes stay float, on the host"
    )
    assert (found.severity, found.node) == ("warning", "")


@pytest.mark.parametrize(
    ("build", "options"), [(conv, {"keep_float": ["c"]}), (late, {"ignore": ["OPS003"]})]
)
def test_zero_convolutions_are_not_ok(build, options):
    """check and convert say so; the label of the verdict is another one."""
    checked = npuconv.check(build(), **options)
    converted = npuconv.convert(build(), format="float", **options).report
    for report in (checked, converted):
        assert [f.severity for f in report.findings if f.code == CODE] == ["warning"]
    assert text.render(checked).startswith("HOST ONLY, 1 warning: ")
    assert npuconv.check(build(), fail_on="warning", **options).summary.verdict == "refused"


def test_errors_are_enough():
    """A refused model has no such warning."""
    assert CODE not in {f.code for f in npuconv.check(late()).findings}
    assert CODE not in {f.code for f in npuconv.check(Net(x=X).op("Relu").model()).findings}
