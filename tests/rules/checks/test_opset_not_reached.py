"""Tests of opset-not-reached."""

from __future__ import annotations

import npuconv
from support.asserts import finding
from support.builders import Net

CODE = "MDL006"
X = (1, 3, 8, 8)


def newer():
    return Net(opset=24, ir_version=10, x=X).conv("x").op("Swish", name="swish").model()


FIRES = [newer]
SILENT = [lambda: Net(opset=21, ir_version=10, x=X).conv("x").model()]


def test_it_names_both():
    """The opset that the file has, and the one asked for."""
    found = finding(newer(), CODE)
    assert found.message == (
        "the model is written in opset 24, not 21: operators of it do not exist in the older one"
    )
    assert found.severity == "warning"


def test_the_opset_that_it_has():
    """Asked for, it is nothing to warn of."""
    report = npuconv.check(newer(), opset=24)
    assert CODE not in {f.code for f in report.findings}


def test_convert_says_the_same():
    """The findings are those of check, and the file is of that opset."""
    made = npuconv.convert(newer(), format="float")
    assert CODE in {f.code for f in made.report.findings}
    assert made.model.opset_import[0].version == 24
