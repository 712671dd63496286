"""Tests of remove-nan-guard."""

from __future__ import annotations

import npuconv
from support.asserts import builtin
from support.builders import Net
from support.target_files import chip

NAME = "remove-nan-guard"
RKNN = builtin("rknn")  # lists Softmax, and neither IsNaN nor Where
X = (1, 2, 6, 6)


def attention(op="Softmax", tested="p", constant=True):
    """Scores, their Softmax, and its guard against NaN."""
    net = Net(x=X, z=(1,)).conv("x", (2, 2, 1, 1), to="s").op(op, "s", axis=-1, to="p")
    zero = net.constant(0.0) if constant else "z"
    net.op("IsNaN", tested, to="nan").op("Where", "nan", zero, "p")
    return net.conv(net.last, (2, 2, 1, 1)).model()


FIRES = [(attention, RKNN)]
SILENT = [
    attention,  # the host computes the Softmax
    (attention, chip("Softmax", also={"operators": {"Softmax": {}, "IsNaN": {}, "Where": {}}})),
    (lambda: attention(op="LogSoftmax"), RKNN),
    (lambda: attention(tested="s"), RKNN),  # another tensor decides
    (lambda: attention(constant=False), RKNN),
]


def test_nothing_crosses():
    """Softmax and what reads it stay on the device."""
    assert npuconv.check(attention(), RKNN.name).summary.transitions == 2
