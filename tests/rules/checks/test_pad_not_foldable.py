"""Tests of pad-not-foldable."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from npuconv import check
from npuconv.findings import Status
from support.asserts import finding, findings
from support.builders import Net
from support.target_files import NUMBERS, WEIGHTS, chip

CODE = "SHP016"
X = (1, 3, 8, 8)
AROUND = [0, 0, 1, 2, 0, 0, 1, 0]


def padded(pads=AROUND, value: float | None = None, x=X, channels: int = 3, **attrs: str) -> Net:
    """A Pad and the convolution that reads it."""
    opset = 19 if attrs.get("mode") == "wrap" else 17
    net = Net(x=x, opset=opset).pad(pads, value, **attrs)
    return net.conv(weight=(4, channels, 3, 3), name="conv")


def computed(*, pads: bool = True) -> Net:
    """Amounts, or the number to fill with, that nobody knows before it runs."""
    net = Net(x=X, a=(8,), v=())
    net.inputs[1].type.tensor_type.elem_type = 7
    amounts = "a" if pads else net.constant(np.array(AROUND))
    return net.op("Pad", "x", amounts, "v", name="pad").conv(name="conv")


def through(*ops: str) -> Net:
    """Operators between the Pad and the convolution."""
    net = Net(x=X).pad(AROUND, mode="edge")
    for op in ops:
        net.op(op)
    return net.conv(name="conv")


def weight_is_padded() -> Net:
    """A convolution that reads what is padded as its weights."""
    net = Net(x=X, w=(4, 3, 3, 3))
    net.op("Pad", "w", net.constant(np.array(AROUND)), mode="edge")
    return net.op("Conv", "x", net.last)


FIRES = [
    lambda: padded(mode="reflect").model(),
    lambda: padded(mode="edge").model(),
    lambda: padded(mode="wrap").model(),
    lambda: padded(value=1.5).model(),
    lambda: padded([0, 1, 0, 0, 0, 0, 0, 0], channels=4).model(),
    lambda: padded([0, 0, -1, 2, 0, 0, 0, 0], 1.0).model(),
    lambda: computed().model(),
    lambda: computed(pads=False).model(),
    lambda: through("Identity").model(),
]
SILENT = [
    lambda: padded().model(),
    lambda: padded(value=0.0).model(),
    lambda: padded([0] * 8, mode="reflect").model(),
    lambda: padded([0, 0, -1, 0, 0, 0, -1, 0], mode="reflect").model(),
    lambda: Net(x=X).pad(AROUND, mode="reflect").op("Relu").model(),
    lambda: through("Relu").model(),
    lambda: weight_is_padded().model(),
    (lambda: padded(mode="reflect").model(), chip("Gemm")),
    (
        lambda: padded(mode="reflect").model(),
        chip("Conv", also={"operators": {"Conv": {}, "Pad": {}}}),
    ),
]


@pytest.mark.parametrize("limit", [{"multiple_of": 4}, {"min": 8}])
def test_channels_that_a_rewrite_pads_are_no_fault_of_the_model(limit, tmp_path):
    """The plan says what becomes of the convolution; its training is not to blame."""
    target = tmp_path / "chip.yaml"
    operators = {"Conv": {"limits": {"in_c": limit}}}
    text = {"schema": 1, "name": "chip", "operators": operators, "activations": NUMBERS}
    target.write_text(yaml.safe_dump({**text, "weights": WEIGHTS}))
    report = check(Net(x=X).conv(weight=(4, 3, 3, 3), name="conv").model(), str(target))
    assert [node.op for node in report.nodes] == ["Pad", "Conv"]
    assert [row.node for row in report.plan] == ["conv"]
    assert CODE not in {one.code for one in report.findings}


CELLS = ": 108 of 300 cells, a byte each in int8"
BY = ", by 1 + 1 on axis 2, 2 + 0 on axis 3"


@pytest.mark.parametrize(
    ("net", "message", "value"),
    [
        (
            padded(mode="reflect"),
            f"mirror what is inside (mode=reflect){BY}{CELLS}",
            "mode=reflect",
        ),
        (padded(mode="edge"), f"repeat the outermost cells (mode=edge){BY}{CELLS}", "mode=edge"),
        (
            padded(mode="wrap"),
            f"continue from the opposite end (mode=wrap){BY}{CELLS}",
            "mode=wrap",
        ),
        (padded(value=1.5), f"fill with 1.5{BY}{CELLS}", "value=1.5"),
        (
            padded([0, 1, 0, 0, 0, 0, 0, 0], channels=4),
            "fill with 0, by 1 + 0 on axis 1: 64 of 256 cells, a byte each in int8",
            "value=0",
        ),
        (
            padded([0, 0, -1, 2, 0, 0, 0, 0], 1.0),
            "fill with 1, by 2 + 0 on axis 3: 42 of 210 cells, a byte each in int8",
            "value=1",
        ),
        (
            computed(),
            "fill with a number computed at run time, by amounts computed at run time",
            "pads = ?",
        ),
        (computed(pads=False), f"fill with a number computed at run time{BY}{CELLS}", "value = ?"),
    ],
)
def test_it_says_what_the_device_would_have_to_fill(net, message, value):
    """The message has mode, amounts on each side, and the number of cells."""
    found = finding(net.model(), CODE)
    assert found.message == f"'conv' reads it; the device would have to {message}"
    assert (found.op_type, found.value) == ("Pad", value)
    assert found.source


def test_extents_that_are_not_known():
    """A symbolic batch counts as one image; without height there is no count."""
    known = finding(padded(x=("N", 3, 8, 8), mode="edge").model(), CODE).message
    assert known.endswith(CELLS)
    unknown = finding(padded(x=(1, 3, "H", 8), mode="edge").model(), CODE).message
    assert unknown.endswith(BY)


def test_the_advice_for_amounts_computed_at_run_time():
    """Amounts may follow from the shape of the input."""
    assert "--input-shape" in finding(computed().model(), CODE).fix
    assert "zero padding" in finding(padded(mode="edge").model(), CODE).fix


def test_several_convolutions_are_one_finding():
    """The first is named."""
    net = Net(x=X).pad(AROUND, mode="edge")
    source = net.last
    net.conv(source, name="one").output().conv(source, name="two").output()
    assert "'one' reads it" in finding(net.model(), CODE).message


@pytest.mark.parametrize("layer", ["group", "one axis"])
def test_it_stays_when_the_layer_is_taken_apart(layer):
    """Slices or another axis then stand between the Pad and its convolutions."""
    if layer == "group":
        net = Net(x=(1, 4, 8, 8)).pad(AROUND, mode="edge").conv(weight=(4, 2, 3, 3), group=2)
    else:
        net = Net(x=(1, 4, 8)).pad([0, 0, 1, 0, 0, 1], mode="edge").conv(weight=(4, 4, 3))
    left = [f for f in check(net.model()).findings if f.code == CODE]
    assert [(f.node, f.status) for f in left] == [("pad0", Status.REMAINING)]


def test_amounts_that_turn_out_to_be_known():
    """Computed amounts are folded, and the convolution takes them."""
    net = Net(x=("N", 3, 8, 8)).op("Shape", "x")
    net.op("Gather", net.last, net.constant(np.array([2])))
    net.op("Div", net.last, net.constant(np.array([4])))
    amount, none = net.last, net.constant(np.array([0, 0]))
    net.op("Concat", none, amount, amount, none, amount, amount, axis=0)
    net.op("Pad", "x", net.last, name="pad").conv(name="conv")
    assert findings(net.model(), CODE)
    (found,) = [f for f in check(net.model()).findings if f.code == CODE]
    assert (found.status, found.rewritten_by) == (Status.REWRITTEN, "propagate-shapes")
