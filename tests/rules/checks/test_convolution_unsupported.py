"""Tests of convolution-unsupported."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import finding
from support.builders import Net, integer_conv
from support.target_files import chip

CODE = "OPS004"
X = (1, 3, 8, 8)


def foreign(op: str, domain: str):
    net = Net(x=X)
    return net.op(op, "x", net.random(4, 3, 3, 3), name="conv", domain=domain).model()


FIRES = [
    lambda: Net(x=X).conv("x", (3, 4, 3, 3), op="ConvTranspose", name="up").model(),
    lambda: foreign("FusedConv", "com.microsoft"),
    lambda: foreign("Conv", "com.ms.internal.nhwc"),
    (lambda: Net(x=X).conv("x").model(), chip("MaxPool")),
    (lambda: Net(x=X).conv("x", (3, 4, 3, 3), op="ConvTranspose").model(), chip("ConvTranspose")),
    (
        lambda: foreign("FusedConv", "com.microsoft"),
        chip("", also={"operators": {"FusedConv": {"domain": "com.microsoft"}}}),
    ),
]
SILENT = [
    lambda: Net(x=X).conv("x").op("Relu").model(),
    lambda: integer_conv(np.ones((4, 3, 3, 3), np.int8)),
    lambda: foreign("ConvertLayout", "org.example"),
]


def test_it_names_operator_and_target():
    """A convolution is not quietly left to the host: this is an error."""
    found = finding(FIRES[0](), CODE)
    assert found.message == "ConvTranspose is a convolution that target npu-int8 does not list"
    assert (found.node, found.value, found.source) == ("up", "ConvTranspose", "npu-int8: operators")
    assert found.severity == "error"


def test_a_listed_one_is_not_left_to_the_host_either():
    """The device may have it, but it cannot be quantized: that is said, not done quietly."""
    model, target = FIRES[4]
    found = finding(model(), CODE, target)
    assert found.message == "ConvTranspose is a convolution that is quantized only as a Conv"


NHWC = "com.ms.internal.nhwc"


def channels_last(**attrs):
    net = Net(x=(1, 8, 8, 3))
    return net.op("Conv", "x", net.random(4, 3, 3, 3), name="conv", domain=NHWC, **attrs).model()


def test_what_cannot_be_read_of_a_domain_that_is():
    """The reason is that of the node, and no host can be left with it."""
    found = finding(channels_last(activation="Gelu"), CODE)
    assert found.message.startswith(
        f"{NHWC}.Conv is a convolution that cannot be read: its activation is 'Gelu', none of Relu"
    )
    assert found.node == "conv"
    assert "no host runs it" in found.fix
    plain = finding(channels_last(activation="Relu"), CODE)
    assert plain.message == f"{NHWC}.Conv is a convolution that target npu-int8 does not list"


@pytest.mark.parametrize(
    ("op", "domain"), [("FusedConv", "com.microsoft"), ("Conv", "com.ms.internal.nhwc")]
)
def test_the_domain_is_part_of_the_name(op, domain):
    """Conv of another domain is another operator."""
    assert finding(foreign(op, domain), CODE).value == f"{domain}.{op}"
