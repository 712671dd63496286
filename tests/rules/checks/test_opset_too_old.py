"""Tests of opset-too-old."""

from __future__ import annotations

import pytest

import npuconv
from npuconv.config import Options
from npuconv.rules import engine
from npuconv.rules.context import RuleContext
from support.asserts import context, finding, findings, read, run_pass
from support.builders import Net

CODE = "MDL003"


def conv(opset: int):
    return Net(opset=opset, x=(1, 3, 8, 8)).conv("x").model()


FIRES = [lambda: conv(7), lambda: conv(13)]
SILENT = [lambda: conv(14), lambda: conv(21)]


@pytest.mark.parametrize("opset", [7, 11, 13])
def test_it_names_both_versions(opset):
    """The message has the model's opset and the one that int8 operators need."""
    found = finding(conv(opset), CODE)
    assert found.message == f"opset {opset} is older than 14, whose operators all take int8"
    assert (found.node, found.value, found.limit) == ("", str(opset), "at least 14")


def test_the_first_that_is_new_enough():
    """14 itself is."""
    assert not findings(conv(14), CODE)


def test_it_names_what_keeps_the_opset_from_being_raised():
    """Known once it has been tried; the message then says so."""
    model = read(conv(11))
    obstacle = "'up' (Upsample)"
    ctx = RuleContext(model, context().target, Options(), opset_obstacle=obstacle)
    (found,) = engine.lint(ctx, only=[CODE])
    assert found.message.endswith("take int8; it cannot be raised over 'up' (Upsample)")


def test_it_is_gone_once_the_opset_is_raised():
    """An old model is no obstacle by itself."""
    model = read(conv(11))
    assert run_pass("raise-opset", model)
    assert not engine.lint(RuleContext(model, context().target, Options()), only=[CODE])


@pytest.mark.parametrize("opset", [1, 11, 13])
def test_it_does_not_stand_beside_a_convolution_that_means_nothing(opset):
    """A refused model is not rewritten, so its opset is no error."""
    proto = Net(opset=opset, x=(1, 3, 8, 8)).conv("x", strides=[1]).model()
    codes = {f.code for f in npuconv.check(proto).findings}
    assert "SHP005" in codes
    assert CODE not in codes
