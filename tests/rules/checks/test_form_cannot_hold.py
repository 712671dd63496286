"""Tests of form-cannot-hold."""

from __future__ import annotations

import npuconv
from support.asserts import findings
from support.builders import Net

CODE = "OPS010"
X = (1, 3, 8, 8)


def image() -> Net:
    return Net(opset=20, x=X).conv("x", (4, 3, 3, 3), name="conv", pads=[1] * 4)


FIRES = [
    lambda: image().op("Erf", name="erf").model(),
    lambda: image().op("ReduceLogSumExp", name="lse").model(),
    lambda: Net(opset=20, x=(1, 3, "H", 8)).op("Relu").model(),
]
SILENT = [
    lambda: image().model(),
    lambda: image().op("Mish").model(),
    lambda: image().op("GlobalAveragePool").op("Softsign").model(),
]


def test_nodes_behind_one_that_fails_are_judged():
    """All at once; a node that reads a tensor of unknown shape has no finding of its own."""
    net = image().op("Erf", name="first").op("Relu").op("Erf", name="second")
    net.op("NonZero", name="places").op("Abs", name="behind").output()
    found = {f.node: f.message for f in findings(net.model(), CODE)}
    assert found == {
        name: f"--format tflite cannot hold it: TFLite has no operator for {op}"
        for name, op in (("first", "Erf"), ("second", "Erf"), ("places", "NonZero"))
    }


def test_a_node_that_stays_float_is_judged():
    """A file holds it no better; other rules leave it alone."""
    proto = image().op("Erf", name="erf").model()
    report = npuconv.check(proto, "ethos-u55", keep_float=["erf"])
    assert [f.node for f in report.findings if f.code == CODE] == ["erf"]


def test_other_errors_are_shown_beside_it():
    """A convolution whose weights are computed has a finding of its own, and no second one."""
    net = Net(opset=20, x=X, w=(4, 3, 3, 3)).op("Conv", "x", "w", name="conv").op("Erf", name="erf")
    report = npuconv.check(net.model(), "ethos-u55")
    errors = [(f.code, f.node) for f in report.findings if f.severity == "error"]
    assert errors == [("OPS003", "conv"), (CODE, "erf")]


def test_onnx_holds_all():
    report = npuconv.check(FIRES[0](), "ethos-u55", format="qdq")
    assert CODE not in {f.code for f in report.findings}
