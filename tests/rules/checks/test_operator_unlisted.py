"""Tests of operator-unlisted."""

from __future__ import annotations

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "OPS006"
X = (1, 3, 8, 8)
ALONE = {"unlisted_operators": "error"}
CHIP = chip(also=ALONE)


def relu():
    return Net(x=X).conv("x").op("Relu", name="relu").model()


FIRES = [
    (lambda: Net(x=X).conv("x").op("Sigmoid", name="act").model(), CHIP),
    (relu, chip(also={**ALONE, "fused_activations": ["Clip"]})),
    (lambda: Net(x=X).op("Gelu", domain="com.microsoft").model(), CHIP),
    (lambda: Net(x=X).op("Mystery", domain="org.example").model(), CHIP),
]
SILENT = [
    (relu, chip()),
    (relu, chip(also={"unlisted_operators": "host"})),
    (relu, chip(also={**ALONE, "fused_activations": ["Relu"]})),
    (lambda: Net(x=X).conv("x").model(), CHIP),
    (lambda: Net(x=X).conv("x", (3, 4, 3, 3), op="ConvTranspose").model(), CHIP),
    (lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2]).model(), chip("MaxPool", also=ALONE)),
    relu,
]


def test_it_is_an_error():
    """Such a device has no host beside it."""
    found = finding(FIRES[0][0](), CODE, CHIP)
    assert found.message == "Sigmoid is not listed by target chip, which forbids that"
    assert (found.severity, found.node, found.value) == ("error", "act", "Sigmoid")
    assert found.source == "chip: unlisted_operators"


def test_operators_of_other_domains_are_no_exception():
    """A kernel of onnxruntime makes no operator legal."""
    assert finding(FIRES[2][0](), CODE, CHIP).value == "com.microsoft.Gelu"


def test_every_node_is_a_finding():
    """The listed convolution between them is none."""
    proto = Net(x=X).op("Relu").conv().op("Sigmoid").model()
    assert [f.value for f in findings(proto, CODE, CHIP)] == ["Relu", "Sigmoid"]
