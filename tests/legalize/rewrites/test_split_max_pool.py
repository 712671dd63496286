"""Tests of split-max-pool."""

from __future__ import annotations

import onnx
import pytest

from npuconv.config import Options
from npuconv.legalize.context import PassContext
from npuconv.target import Target
from support.asserts import read, run_pass, same_numbers, unpack
from support.builders import Net
from support.target_files import chip

NAME = "split-max-pool"


def device(most: int = 7, **limits: object) -> Target:
    """A device whose pools have no larger kernels."""
    return chip("MaxPool", kernel_h={"max": most}, kernel_w={"max": most}, **limits)


def pool(kernel: int, x: tuple[object, ...] = (1, 3, 16, 17), **attrs: object) -> onnx.ModelProto:
    """One pool, of a square."""
    return Net(x=x).op("MaxPool", "x", kernel_shape=[kernel] * 2, **attrs).model()


FIRES = [
    (lambda: pool(13, strides=[1, 1], pads=[6] * 4), device()),
    (lambda: pool(9, strides=[2, 3], pads=[4, 0, 2, 8]), device()),
    (lambda: pool(8, strides=[3, 3]), device(3)),
    (lambda: pool(5, dilations=[2, 3]), device(3)),
    (lambda: pool(13, x=("N", 3, "H", "W"), strides=[1, 1], pads=[6] * 4), device(2)),
    (lambda: pool(13, strides=[1, 1], pads=[6] * 4), device(pad_max={"max": 3})),
]
SILENT = [
    (lambda: pool(7, strides=[1, 1], pads=[3] * 4), device()),
    (lambda: pool(13, strides=[1, 1], pads=[6] * 4), chip("Conv")),
    (lambda: pool(13, strides=[4, 4]), device(stride_h={"max": 3})),
    (lambda: pool(9, strides=[1, 1], ceil_mode=1), device()),
    (lambda: pool(5, dilations=[2, 2], pads=[2] * 4), device(3)),
    (lambda: pool(9), device(1)),
]


def made(proto: onnx.ModelProto, target: Target) -> list[tuple[list[int], list[int], list[int]]]:
    """Return kernel, strides and pads of each pool."""
    model = read(proto)
    run_pass(NAME, model, PassContext(target, Options()))
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


@pytest.mark.parametrize("place", [3, 4])
def test_what_pools_in_turn_cannot_do_is_named(place):
    """Only where kernels that fit would be there."""
    proto, target = unpack(SILENT[place])
    ctx = PassContext(target, Options())
    run_pass(NAME, read(proto), ctx)
    assert [r.reason for r in ctx.refusals] == [
        {3: "ceil_mode adds cells at the end", 4: "its kernel is dilated and has pads"}[place]
    ]


def test_no_fit_leaves_it_alone():
    """Leave the pool for the host."""
    proto, target = unpack(FIRES[0])
    assert run_pass(NAME, read(proto), PassContext(target, Options(fit=False))) == 0
