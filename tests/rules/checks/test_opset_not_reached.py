"""Tests of opset-not-reached."""

from __future__ import annotations

import numpy as np

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


def test_the_opset_of_the_target():
    """RKNN-Toolkit2 loads opset 19 at most, in every form; the option wins over the target."""
    proto = Net(opset=21, ir_version=10, x=X).conv("x").op("Relu").model()
    samples = {"x": np.random.default_rng(0).normal(0, 1, (4, *X[1:])).astype(np.float32)}
    for form in ("qoperator", "qdq", "weights", "float"):
        given = samples if form in ("qoperator", "qdq") else None
        made = npuconv.convert(proto, "rknn", format=form, calibration=given)
        assert made.model.opset_import[0].version == 19
        assert CODE not in {f.code for f in made.report.findings}
    made = npuconv.convert(proto, "rknn", format="float", opset=21)
    assert made.model.opset_import[0].version == 21


def test_an_operator_that_the_opset_of_the_target_lacks():
    """The opset stays, and check and convert name the operator."""
    proto = Net(opset=20, ir_version=9, x=X).conv("x").op("Gelu", name="gelu").model()
    wanted = "the model is written in opset 20, not 19: Gelu at 'gelu' is not in the older one"
    found = [f for f in npuconv.check(proto, "rknn").findings if f.code == CODE]
    assert [f.message for f in found] == [wanted]
    made = npuconv.convert(proto, "rknn", format="float")
    assert wanted in {f.message for f in made.report.findings}
    assert made.model.opset_import[0].version == 20
