"""Tests of fit-pool."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from npuconv.config import Options
from npuconv.model.facts import settled
from npuconv.target import Target
from support.asserts import Passes, read, run_pass, same_numbers, unpack
from support.builders import Net, images
from support.target_files import NUMBERS, WEIGHTS, chip

NAME = "fit-pool"
DEVICE = {"schema": 1, "name": "pools", "activations": NUMBERS, "weights": WEIGHTS}


def device(most: int = 7, **limits: object) -> Target:
    """A device whose pools have no larger kernels."""
    return chip("MaxPool", kernel_h={"max": most}, kernel_w={"max": most}, **limits)


def putting(op: str = "MaxPool", require: Sequence[str] = (), **limits: object) -> Target:
    """A device that also puts parts together."""
    relations = [{"then": text} for text in require]
    operators = {op: {"limits": limits, "require": relations}, "Slice": {}, "Concat": {}}
    return chip("", also={"operators": operators})


def pool(kernel: int, x: tuple[object, ...] = (1, 3, 16, 17), **attrs: object) -> onnx.ModelProto:
    """One pool, of a square."""
    return Net(x=x).op("MaxPool", "x", kernel_shape=[kernel] * 2, **attrs).model()


def mean(**attrs: object) -> onnx.ModelProto:
    """An average of nine cells of two images."""
    return Net(x=(2, 3, 11, 12)).op("AveragePool", "x", kernel_shape=[3, 3], **attrs).model()


FIRES = [
    (lambda: pool(13, strides=[1, 1], pads=[6] * 4), device()),
    (lambda: pool(9, strides=[2, 3], pads=[4, 0, 2, 8]), device()),
    (lambda: pool(8, strides=[3, 3]), device(3)),
    (lambda: pool(5, dilations=[2, 3]), device(3)),
    (lambda: pool(13, x=("N", 3, "H", "W"), strides=[1, 1], pads=[6] * 4), device(2)),
    (lambda: pool(13, strides=[1, 1], pads=[6] * 4), device(pad_max={"max": 3})),
    (lambda: pool(3, x=(3, 2, 8, 8)), putting(in_n={"max": 2})),
    (lambda: pool(3, x=(1, 7, 8, 8), pads=[1] * 4), putting(in_c={"max": 3})),
    (
        lambda: pool(3, strides=[2, 2], pads=[1, 0, 0, 1]),
        putting(in_h={"max": 7}, out_w={"max": 3}),
    ),
    (lambda: pool(3, dilations=[2, 1], pads=[2, 1, 2, 1]), putting(require=["in_h * in_w <= 60"])),
    (lambda: pool(2, strides=[4, 3]), putting(stride_h={"max": 2}, stride_w={"max": 1})),
    (
        lambda: pool(3, pads=[1, 0, 0, 1]),
        putting(require=["pad_top == pad_bottom && pad_left == pad_right"]),
    ),
    (lambda: mean(pads=[1, 0, 1, 1]), putting("AveragePool", in_h={"max": 6}, in_c={"max": 2})),
    (
        lambda: mean(pads=[1, 0, 1, 1], count_include_pad=1),
        putting("AveragePool", in_h={"max": 6}, in_n={"max": 1}),
    ),
    (lambda: Net(x=(1, 3, 9, 7)).op("GlobalMaxPool", "x").model(), putting(kernel_h={"max": 3})),
    (lambda: Net(x=(1, 4, 40)).op("GlobalMaxPool").model(), putting(kernel_w={"max": 16})),
    (
        lambda: Net(x=(1, 3, 9, 7)).op("GlobalMaxPool").model(),
        chip("MaxPool", also={"operators": {"MaxPool": {}, "GlobalMaxPool": {}}}),
    ),
]
SILENT = [
    (lambda: pool(7, strides=[1, 1], pads=[3] * 4), device()),
    (lambda: pool(13, strides=[1, 1], pads=[6] * 4), chip("Conv")),
    (lambda: pool(13, strides=[4, 4]), device(stride_h={"max": 3})),
    (lambda: pool(9, strides=[1, 1], ceil_mode=1), device()),
    (lambda: pool(5, dilations=[2, 2], pads=[2] * 4), device(3)),
    (lambda: pool(9), device(1)),
    (lambda: pool(3), device(in_h={"max": 8})),
    (lambda: Net(x=(1, 4, 4, 5, 6)).op("GlobalMaxPool").model(), device()),
]


def made(proto: onnx.ModelProto, target: Target) -> list[tuple[list[int], list[int], list[int]]]:
    """Return kernel, strides and pads of each pool."""
    model = read(proto)
    run_pass(NAME, model, Passes(target, Options()))
    same_numbers(proto, model)
    names = ("kernel_shape", "strides", "pads")
    return [tuple(node.attrs[name] for name in names) for node in model.nodes("MaxPool")]


def test_as_few_pools_as_can_be():
    """Kernels of 7 and 7 reach 13 cells; every pool has pads that its kernel is larger than."""
    one = [7, 7], [1, 1], [3] * 4
    assert made(*unpack(FIRES[0])) == [one, one]
    assert made(*unpack(FIRES[1])) == [
        ([5, 5], [1, 1], [2, 0, 1, 4]),
        ([5, 5], [2, 3], [2, 0, 1, 4]),
    ]
    assert [kernel for kernel, _, _ in made(*unpack(FIRES[2]))] == [[3, 3]] * 3 + [[2, 2]]


@pytest.mark.parametrize("place", range(6, len(FIRES)))
def test_parts_keep_every_limit(place):
    """Batches, channels, tiles, strides: equal, and nothing is padded by an operator."""
    proto, target = unpack(FIRES[place])
    model, ctx = read(proto), Passes(target, Options())
    assert run_pass(NAME, model, ctx) == 1
    same_numbers(proto, model)
    pools = model.nodes("MaxPool", "AveragePool")
    for node in pools:
        operator = target.operator(node.op)
        assert operator is not None
        assert operator.objections(settled(node)) == []
    found = Counter(node.op for node in model.nodes())
    assert set(found) <= {"MaxPool", "AveragePool", "Slice", "Concat"}
    assert run_pass(NAME, model, ctx) == 0


REASONS = {
    3: "ceil_mode adds cells at the end",
    4: "kernel_h is 5, the device takes at most 3",
    6: "Concat and Slice, which the target does not list, would surround its parts",
}


@pytest.mark.parametrize("place", REASONS)
def test_what_is_not_done_is_named(place):
    """A limit with its value, or what stands in the way."""
    proto, target = unpack(SILENT[place])
    ctx = Passes(target, Options())
    run_pass(NAME, read(proto), ctx)
    (refusal,) = ctx.refusals
    assert REASONS[place] in refusal.reason


def test_no_fit_leaves_it_alone():
    """Leave the pool for the host."""
    proto, target = unpack(FIRES[0])
    assert run_pass(NAME, read(proto), Passes(target, Options(fit=False))) == 0


def test_tiles_have_the_integers_of_the_pool(tmp_path: Path):
    """Compare a network on a device that runs all of it, with limits and without."""
    net = Net(x=(1, 3, 12, 12)).conv("x", (4, 3, 3, 3), pads=[1] * 4)
    net.op("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    proto, x, found = net.conv("", (2, 4, 1, 1)).model(), images(4, 3, 12, 12), []
    for limits in ({}, {"in_h": {"max": 7}, "in_c": {"max": 2}}):
        listed = {"MaxPool": {"limits": limits}, "Conv": {}, "Slice": {}, "Concat": {}}
        path = tmp_path / "device.yaml"
        path.write_text(json.dumps({**DEVICE, "operators": listed}))
        made = npuconv.convert(proto, str(path), calibration={"x": x}).model
        ops = Counter(node.op_type for node in made.graph.node)
        values = executor.Session(made).run({"x": x[:1]})
        found.append((ops["MaxPool"], ops["QuantizeLinear"], values))
    (alone, crossings, whole), (several, same, parts) = found
    assert (alone, crossings) == (1, same)
    assert several == 4
    for name, array in whole.items():
        assert np.array_equal(array, parts[name])
