"""Tests of dynamic-dimension."""

from __future__ import annotations

import pytest

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "SHP012"
X = (1, 3, "H", 8)
SAME = {"auto_pad": "SAME_UPPER"}


def conv(x=X, strides=(2, 2), auto_pad: str = "SAME_UPPER"):
    return Net(x=x).conv("x", name="conv", strides=list(strides), auto_pad=auto_pad).model()


def pool():
    return Net(x=X).op("MaxPool", kernel_shape=[3, 3], strides=[2, 2], **SAME).model()


FIRES = [
    conv,
    lambda: conv((1, 3, 8, "W")),
    lambda: conv(auto_pad="SAME_LOWER"),
    (
        lambda: (
            Net(x=X)
            .conv(
                "x", (3, 4, 3, 3), op="ConvTranspose", output_shape=[9, 9], strides=[2, 2], **SAME
            )
            .model()
        ),
        chip("ConvTranspose"),
    ),
]
SILENT = [
    (pool, chip("MaxPool")),
    lambda: conv(strides=(1, 1)),
    lambda: conv(strides=(1, 2)),
    lambda: conv(auto_pad="VALID"),
    lambda: conv(("N", 3, 8, 8)),
    lambda: Net(x=X).conv("x", strides=[2, 2]).model(),
    pool,
    lambda: Net(x=(1, 3, 8, 8), w=("O", 3, "a", "b")).op("Conv", "x", "w", **SAME).model(),
    lambda: Net(x=X).conv("x", strides=[2], **SAME).model(),
    lambda: Net(x=X).op("Relu").model(),
]


@pytest.mark.parametrize(("x", "axis", "name"), [(X, 2, "H"), ((1, 3, 8, "W"), 3, "W")])
def test_it_names_the_axis(x, axis, name):
    """The axis as ONNX counts, and the name of the dimension."""
    found = finding(conv(x), CODE)
    assert found.message == (
        f"SAME_UPPER with stride 2 needs the input extent of axis {axis}, "
        f"which is symbolic ({name})"
    )
    assert (found.node, found.value) == ("conv", f"axis {axis} = {name}")
    assert (found.limit, found.source) == ("a number", "ONNX Conv-11, attribute auto_pad")


@pytest.mark.parametrize(
    ("x", "shown"), [(X, "1,3,?,8"), (("N", 3, "H", "W"), "?,3,?,?"), ((1, 3, None, 8), "1,3,?,8")]
)
def test_the_advice_is_the_flag_to_give(x, shown):
    """The flag has the input's own name and the known part of its shape."""
    assert finding(conv(x), CODE).fix == f"give --input-shape x={shown} with numbers for every ?"


def test_the_advice_names_the_input_that_is_dynamic():
    """The dynamic input is named, not the first one."""
    net = Net(fixed=(1, 3, 8, 8), image=X).conv("image", strides=[2, 2], **SAME)
    assert "--input-shape image=" in finding(net.model(), CODE).fix


def test_of_several_dynamic_inputs_those_it_depends_on():
    """Inputs of other branches are not named."""
    net = Net(other=("N", 3), image=X)
    net.conv("image", strides=[2, 2], **SAME).output().op("Relu", "other").output()
    assert finding(net.model(), CODE).fix == (
        "give --input-shape image=1,3,?,8 with numbers for every ?"
    )
    net = Net(z=("K", 3, 1, 1), image=X).op("Add", "z", "image")
    net.conv(strides=[2, 2], **SAME)
    assert finding(net.model(), CODE).fix == (
        "give --input-shape z=?,3,1,1 --input-shape image=1,3,?,8 with numbers for every ?"
    )


def test_names_made_up_by_inference_are_not_shown():
    """Names such as unk__0 are not shown."""
    net = Net(x=X).conv("x", strides=[2, 2], name="first", pads=[1, 1, 1, 1])
    found = finding(net.conv(weight=(4, 4, 3, 3), strides=[2, 2], **SAME).model(), CODE)
    assert found.message.endswith("of axis 2, which is not known")
    assert found.value == "axis 2 = ?"


def test_an_extent_nobody_named():
    """None is not shown as a name."""
    found = finding(conv((1, 3, None, 8)), CODE)
    assert found.message.endswith("of axis 2, which is not known")
    assert found.value == "axis 2 = ?"


def test_the_general_advice_where_every_input_is_fixed():
    """The extent then comes out of an operator that nobody can follow."""
    net = Net(x=(1, 3, 8, 8)).op("Mystery", domain="org.example")
    found = finding(net.conv(strides=[2, 2], **SAME).model(), CODE)
    assert found.fix == "Give the shape of the input with --input-shape."


def test_a_stride_on_the_fixed_axis_does_not_matter():
    """Pads of stride 1 are the same for every extent."""
    assert findings(conv(strides=(2, 1)), CODE)
    assert not findings(conv(strides=(1, 2)), CODE)


def test_pools_keep_their_auto_pad():
    """The host can run them, and its runtime has the extent."""
    assert not findings(pool(), CODE)
    assert not findings(pool(), CODE, chip("MaxPool"))


def test_an_output_shape_that_cannot_be_resolved():
    """No auto_pad is needed for it, nor a target that lists ConvTranspose."""
    up = {"op": "ConvTranspose", "name": "up", "strides": [2, 2], "output_shape": [9, 17]}
    found = finding(Net(x=(1, 3, 8, "W")).conv("x", (3, 4, 3, 3), **up).model(), CODE)
    assert found.message == (
        "output_shape [9, 17] needs the input extent of axis 3, which is symbolic (W)"
    )
    assert found.source == "ONNX ConvTranspose-11, attribute output_shape"
    assert found.fix == "give --input-shape x=1,3,8,? with numbers for every ?"
    fixed = Net(x=(1, 3, 8, 8)).conv("x", (3, 4, 3, 3), **up).model()
    assert not findings(fixed, CODE)
