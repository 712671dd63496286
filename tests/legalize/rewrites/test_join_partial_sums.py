"""Tests of join-partial-sums."""

from __future__ import annotations

from typing import Any

import pytest

from npuconv.config import Options
from npuconv.model.core import Model
from support.asserts import Passes, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import NUMBERS, chip

NAME = "join-partial-sums"
ADDS = {"activations": {**NUMBERS, "accumulate": "int32"}}


def net(weight=(6, 8, 5, 5), x=(1, 8, 12, 12), **attrs: Any) -> Net:
    return Net(x=x).conv("x", weight, **attrs)


LIMITS: list[tuple[Net, dict[str, Any], int]] = [
    (net(pads=[2] * 4), {"in_c": {"max": 4}}, 1),
    (net(), {"kernel_h": {"max": 3}, "stride_h": {"max": 1}, "in_c": {"max": 3}}, 1),
    (net(strides=[2, 2], dilations=[2, 1]), {"kernel_h": {"max": 2}, "kernel_w": {"max": 2}}, 1),
    (net((8, 1, 5, 5), group=8), {"kernel_w": {"max": 2}}, 1),
    (net(), {"in_c": {"max": 4}, "out_c": {"max": 3}, "in_h": {"max": 9}}, 4),
    (net(), {"in_c": {"max": 4}, "bias": {"equals": True}}, 1),
    (net(x=("N", 8, "H", "W"), pads=[2] * 4), {"in_c": {"max": 4}}, 1),
]
FIRES = [(one.model, chip(also=ADDS, **limits)) for one, limits, _ in LIMITS]
SILENT = [net().model, (net().model, chip(in_c={"max": 4}))]


def fitted(one: Net, **limits: Any) -> tuple[Model, Passes]:
    """A model fitted to a device that adds in int32."""
    model, ctx = read(one.model()), Passes(chip(also=ADDS, **limits), Options())
    assert run_pass("fit-convolution", model, ctx) == 1
    assert "rounded to int8" not in ctx.rewrites[-1].note
    return model, ctx


@pytest.mark.parametrize(("one", "limits", "count"), LIMITS)
def test_the_parts_of_a_layer_are_one_convolution(one, limits, count):
    """Sums are made last, so each is of convolutions alone; what is joined computes the same."""
    model, ctx = fitted(one, **limits)
    parts = len(model.nodes("Conv"))
    assert run_pass(NAME, model, ctx) == count
    assert run_pass(NAME, model, ctx) == 0
    joined = model.nodes("Conv")
    assert len(joined) == count
    assert sum(len(ctx.annotations.splits.parts[conv.name]) for conv in joined) == parts
    assert not model.nodes("Add", "Sum")
    same_numbers(one.model(), model)


def test_the_device_still_sees_the_parts():
    """Limits are about what it runs."""
    model, ctx = fitted(net(), in_c={"max": 4})
    run_pass(NAME, model, ctx)
    (conv,) = model.nodes("Conv")
    windows = ctx.annotations.splits.windows(conv)
    assert [win.weight for win in windows] == [(6, 4, 5, 5)] * 2
    assert [win.input for win in windows] == [(1, 4, 12, 12)] * 2
    assert [text for win in windows for text in ctx.device.objections(win)] == []


def test_sums_of_the_model_itself_stay():
    """The target has not split these; joined they may be more than it takes."""
    one = Net(x=(1, 4, 5, 5))
    one.conv("x", (4, 4, 1, 1), to="a").conv("x", (4, 4, 3, 3), pads=[1] * 4, to="b")
    one.op("Add", "a", "b")
    ctx = Passes(chip(also=ADDS), Options())
    assert run_pass(NAME, read(one.model()), ctx) == 0
    assert not ctx.refusals
