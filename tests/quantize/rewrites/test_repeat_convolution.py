"""Tests of repeat-convolution."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.model.core import Model
from npuconv.partition.placement import make_plan
from npuconv.quantize.rewrites.repeat_convolution import LayerCopies
from support.asserts import Passes, apply_pass, context, read, same_numbers
from support.builders import Net

NAME = "repeat-convolution"


def chain() -> Net:
    """A convolution and its Relu, one that reads it on the device, and the host."""
    net = Net(x=(1, 3, 8, 8)).conv(pads=[1] * 4, name="first").op("Relu")
    return net.conv(weight=(4, 4, 3, 3), name="second").op("Sigmoid")


def shared() -> Net:
    """Two layers that read one tensor of the host."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 1, 1), name="first")
    return net.conv("x", (4, 3, 1, 1), name="second").op("Add", "t0", "t1")


def clipped() -> Net:
    net = Net(x=("N", 3, "H", "W")).conv("x", (4, 3, 1, 1), bias=False, name="first")
    limits = [net.constant(np.asarray(v, np.float32)) for v in (0, 6)]
    return net.op("Clip", "t0", *limits)


FIRES = [lambda: chain().model(), lambda: shared().model(), lambda: clipped().model()]
SILENT = [lambda: Net(x=(1, 3, 8, 8)).op("Relu").model()]


def repeat(model: Model, ctx: Passes, **counts: int) -> list[LayerCopies]:
    """Run the pass on a model as it is."""
    return apply_pass(NAME, model, ctx, plan=make_plan(model, ctx.target), counts=counts)


def repeated(proto, **counts) -> tuple[Model, Passes, list[LayerCopies]]:
    model, ctx = read(proto), context()
    found = repeat(model, ctx, **counts)
    assert [one.node for one in found] == list(counts)
    same_numbers(proto, model)
    assert all(record.max_abs_difference is not None for record in ctx.rewrites)
    return model, ctx, found


def ops(model: Model) -> list[str]:
    return sorted(node.op for node in model.nodes())


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("example", FIRES)
def test_the_mean_is_the_same(example, count):
    """Copies of one layer compute what it did, whatever stands around it."""
    model, ctx, (found,) = repeated(example(), first=count)
    before = len(make_plan(read(example()), ctx.target).convolutions)
    assert ops(model).count("Conv") == before + count - 1
    assert (found.node, found.source, len(found.shifts)) == ("first", "x", count)


@pytest.mark.parametrize("example", SILENT)
def test_silent(example):
    """Only convolutions of the device are repeated."""
    assert repeat(read(example()), context(), first=2) == []


def test_nothing_is_repeated_unasked():
    """Nor what is to run once."""
    model, ctx = read(chain().model()), context()
    assert repeat(model, ctx) == repeat(model, ctx, first=1) == []
    assert not ctx.rewrites


def test_activations_are_repeated_with_their_layer():
    """Each copy can still be saturated by its activation; the mean has the old name."""
    proto = chain().model()
    model, _, (found,) = repeated(proto, first=2)
    assert ops(model) == [
        "Add", "Add", "Conv", "Conv", "Conv", "Mul", "Relu", "Relu", "Sigmoid", "Sum",
    ]  # fmt: skip
    assert [node.op for node in found.convs] == ["Conv"] * 2
    assert [node.op for node in found.activations] == ["Relu"] * 2
    mean = next(n for n in model.nodes("Mul"))
    assert mean.outputs[0].name == found.result == "t1"


def test_what_the_device_makes_is_not_moved():
    """Its integers are what they are; the copies read them all alike."""
    model, _, (found,) = repeated(chain().model(), second=2)
    assert found.shifts == []
    assert {n.inputs[0].name for n in model.nodes("Conv") if "second" in n.name} == {"t1"}


def test_what_the_host_takes_the_mean_of_is_moved():
    """The maker repeats too, so the tensor passes the host."""
    _, _, found = repeated(chain().model(), first=2, second=3)
    assert [len(one.shifts) for one in found] == [2, 3]


def test_readers_that_repeat_as_often_share_their_inputs():
    """The host rounds each tensor once."""
    model, _, _ = repeated(shared().model(), first=2, second=2)
    assert len([n for n in model.nodes("Add") if n.inputs[0].name == "x"]) == 2
    model, _, _ = repeated(shared().model(), first=2, second=3)
    assert len([n for n in model.nodes("Add") if n.inputs[0].name == "x"]) == 5


def test_the_report_names_the_source():
    """Copies answer to the name of what they are copies of."""
    model, ctx, _ = repeated(chain().model(), first=2)
    labels = [model.label(n) for n in model.nodes("Conv")]
    assert sorted(labels) == ["first", "first", "second"]
    assert ctx.rewrites[0].before == "Conv + Relu"
