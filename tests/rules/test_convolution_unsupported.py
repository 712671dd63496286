"""Tests of convolution-unsupported."""

from __future__ import annotations

import numpy as np
import pytest

from asserts import finding
from builders import Net, integer_conv
from target_files import chip

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
    assert found.message == "ConvTranspose is a convolution that npuconv cannot quantize yet"


@pytest.mark.parametrize(
    ("op", "domain"), [("FusedConv", "com.microsoft"), ("Conv", "com.ms.internal.nhwc")]
)
def test_the_domain_is_part_of_the_name(op, domain):
    """Conv of another domain is another operator."""
    assert finding(foreign(op, domain), CODE).value == f"{domain}.{op}"
