"""Tests of number-format-unsupported."""

from __future__ import annotations

import pytest

from support.asserts import finding
from support.builders import Net
from support.target_files import NUMBERS, WEIGHTS, chip

CODE = "QNT003"


def conv():
    return Net(x=(1, 3, 8, 8)).conv("x").model()


def wanting(**also):
    return chip(also=also)


UNSIGNED = wanting(activations={**NUMBERS, "dtype": "uint8"})
SHIFTED = wanting(activations={**NUMBERS, "zero_point": [3]})
NARROW = wanting(weights={**WEIGHTS, "range": [-64, 63]})
SHORT = wanting(bias={"dtype": "int16"})

FIRES = [(conv, target) for target in (UNSIGNED, SHIFTED, NARROW, SHORT)]
SILENT = [
    conv,
    (conv, wanting(activations={**NUMBERS, "zero_point": {"range": [-128, 127]}})),
    (conv, wanting(bias={"dtype": "?", "assume": "int32"})),
]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (UNSIGNED, "the target wants activations of type uint8; npuconv makes int8"),
        (SHIFTED, "the target wants a zero point of 3; npuconv makes 0"),
        (NARROW, "the target wants weights in -64..63; npuconv makes -127..127"),
        (SHORT, "the target wants a bias of type int16; npuconv makes int32"),
    ],
)
def test_the_message_names_both_sides(target, message):
    """The message has the chip's format and the written one."""
    assert finding(conv(), CODE, target).message == message
