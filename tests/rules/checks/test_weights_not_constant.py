"""Tests of weights-not-constant."""

from __future__ import annotations

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "OPS003"
X = (1, 3, 8, 8)


def weighted(op: str = "Conv"):
    return Net(x=X, w=(3, 3, 3, 3)).op(op, "x", "w", name="conv").model()


def biased():
    net = Net(x=X, b=(4,)).op("Relu", "b", name="relu", to="late")
    return net.op("Conv", "x", net.random(4, 3, 3, 3), "late", name="conv").model()


FIRES = [
    weighted,
    lambda: weighted("ConvTranspose"),
    biased,
    (weighted, chip(weight_constant={"equals": True})),
]
SILENT = [
    lambda: Net(x=X).conv("x").model(),
    lambda: Net(x=X).conv("x", bias=False).model(),
    lambda: Net(x=X).op("Relu").model(),
    (lambda: Net(x=X).conv("x").model(), chip(weight_constant={"equals": True})),
]


def test_weights_that_are_an_input():
    """An input has no node to name."""
    found = finding(weighted(), CODE)
    assert found.message == "the weights 'w' come from an input of the model"
    assert (found.node, found.value, found.limit) == ("conv", "w", "a constant")


def test_a_bias_that_is_computed():
    """The node that computes it is where to look."""
    found = finding(biased(), CODE)
    assert found.message == "the bias 'late' comes from 'relu' (Relu)"


def test_both_are_two_findings():
    """Weights and bias may come from different places."""
    proto = Net(x=X, w=(4, 3, 3, 3), b=(4,)).op("Conv", "x", "w", "b").model()
    assert [f.value for f in findings(proto, CODE)] == ["b", "w"]


def test_the_target_is_cited_where_it_says_so():
    """The rule holds for other targets too, as nothing could be quantized."""
    target = chip(weight_constant={"equals": True})
    assert finding(weighted(), CODE, target).source.startswith("chip:6 operators.Conv")
    assert not finding(weighted(), CODE).source


def test_the_fix_depends_on_the_origin_of_the_weights():
    """A convolution whose weights another branch computes goes to the host: --keep-float."""
    net = Net(x=X)
    drawn = net.op("RandomNormalLike", net.random(4, 3, 3, 3)).op("Conv", "x", net.last).model()
    assert finding(drawn, CODE).fix.startswith("it reads constants only")
    assert finding(weighted(), CODE).fix.startswith("freeze the model on export")
    assert finding(biased(), CODE).fix == "--keep-float conv leaves the convolution to the host"
