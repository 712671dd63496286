"""What every slot must satisfy, and who reads it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from asserts import builtin, read
from builders import Net
from npuconv.model import save
from npuconv.plan import make_plan
from npuconv.plan.channels import trace
from npuconv.tuning.scales.bounds import uniform
from npuconv.tuning.scales.demands import SPREAD, Demand, demands
from npuconv.tuning.scales.readers import spread
from npuconv.tuning.scales.search import limits
from npuconv.tuning.weights.patches import gather, layer_of
from plans import random_feeds, watch


def of(proto: onnx.ModelProto, centred: tuple[str, ...] = (), *, moments: bool = False) -> dict:
    """Demands by the name of their group; of each its tensors' slots too."""
    model = read(proto)
    plan = make_plan(model, builtin())
    whole = [*uniform(plan), *centred]
    channels = trace(plan, whole)
    feeds = random_feeds(model, 40)
    stats = watch(model, plan, channels, feeds)
    seen = None
    if moments:
        layers = [layer for conv in plan.device if (layer := layer_of(conv))]
        seen = gather(save.to_proto(model), layers, feeds, len(feeds))
    return {d.name: d for d in demands(model, plan, channels, stats, whole, seen)}


def image() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x", to="a")


def clip(net: Net, high: float) -> Net:
    bounds = net.constant(np.float32(0)), net.constant(np.float32(high))
    return net.op("Clip", net.last, *bounds)


def test_a_slot_for_every_channel():
    """With its extremes, and a spread of its values within them."""
    found = of(image().model())
    x, a = found["x"], found["a"]
    assert (x.count, a.count) == (3, 4)
    assert x.values.shape[0] == 3
    assert x.values.shape[1] <= SPREAD
    assert np.all(x.values.min(axis=1) >= x.lows)
    assert np.all(x.values.max(axis=1) <= x.highs)
    assert not x.centred.any()
    assert np.isinf(x.caps).all()


def test_a_padded_reader_fixes_the_zero_point():
    """Of its input, and of nothing else."""
    found = of(Net(x=(1, 3, 8, 8)).conv("x", pads=[0, 0, 0, 1], to="a").model())
    assert found["x"].centred.all()
    assert not found["a"].centred.any()


def test_a_padded_reader_of_one_part():
    """The slots that it reads, and those that only others read."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (6, 3, 1, 1), to="a")
    net.op("Split", "a", axis=1, outputs=2, to="s").conv("s", (2, 3, 3, 3), pads=[1] * 4, to="y")
    (found,) = (d for d in of(net.output("y", "s_1").model()).values() if d.name == "a")
    assert found.centred.tolist() == [True] * 3 + [False] * 3


def test_a_carried_pad_fixes_the_zero_point():
    """It writes stored zeros as well."""
    net = image().pad([0, 0, 1, 1, 0, 0, 1, 1], 0.0).conv(weight=(2, 4, 3, 3))
    assert of(net.model())["a"].centred.all()


def test_a_tensor_that_is_named():
    """An int8 output of the model."""
    assert of(image().model(), ("a",))["a"].centred.all()


def test_a_relu_that_saturation_replaces():
    """Nothing is below 0 then, and the zero point is free."""
    found = of(image().op("Relu").conv(weight=(2, 4, 3, 3)).model())["a"]
    assert not found.centred.any()
    assert not found.lows.any()


def test_a_relu_that_must_stay():
    """Values below 0 are read beside it, or stored zeros stand beside what it makes."""
    beside = image().op("Relu", to="r").output("a", "r")
    assert of(beside.model())["a"].centred.all()
    padded = image().op("Relu").conv(weight=(2, 4, 3, 3), pads=[1] * 4)
    assert of(padded.model())["a"].centred.all()


def test_a_relu_that_must_stay_for_one_channel_stays_for_all():
    """It is one node: 0 must be the integer 0 in every channel it reads."""
    net = image().op("Relu", to="r").op("Split", "r", axis=1, outputs=2, to="s")
    net.conv("s", (2, 2, 3, 3), pads=[1] * 4, to="y").conv("s_1", (2, 2, 3, 3), to="z")
    assert of(net.output("y", "z").model())["a"].centred.all()


@pytest.mark.parametrize("high", [0.5, 6.0])
def test_an_upper_bound_is_a_cap(high: float):
    """Of the channels that go through it, and no others."""
    net = clip(image(), high).conv("x", (2, 3, 3, 3), to="b")
    found = of(net.op("Concat", "t1", "b", axis=1).model())["a"]
    assert found.caps.tolist() == [high] * 4 + [np.inf] * 2


def test_no_cap_where_the_clip_has_integers_for_bounds():
    """What is read before it goes beyond."""
    found = of(clip(image(), 0.5).output("a", "t1").model())["a"]
    assert (found.count, found.caps.tolist()) == (1, [np.inf])
    assert found.highs[0] > 0.5


def test_who_reads():
    """Convolutions with their weights in the size of what they put out, and the host."""
    net = image().conv("a", (2, 4, 3, 3), to="y").conv("a", (4, 1, 3, 3), group=4, to="z")
    found = of(net.output("y", "z").model())
    assert [r.weight.shape for r in found["a"].readers] == [(2, 4, 3, 3), (4, 1, 3, 3)]
    assert [r.slots.tolist() for r in found["a"].readers] == [[0, 1, 2, 3]] * 2
    assert [(found[k].host, len(found[k].readers)) for k in ("x", "a", "y")] == [
        (False, 1), (False, 2), (True, 0),
    ]  # fmt: skip


def test_weights_are_in_the_size_of_the_output():
    """The same layer times 100 errs as much, seen from its readers."""
    nets = []
    for factor in (1, 100):
        net, rng = Net(x=(1, 3, 8, 8)), np.random.default_rng(0)
        weight = rng.normal(size=(4, 3, 3, 3)).astype(np.float32) * factor
        nets.append(net.op("Conv", "x", net.constant(weight), to="y"))
    one, other = (of(net.model())["x"].readers[0].weight for net in nets)
    assert np.allclose(one, other, rtol=1e-3)
    size = np.sqrt(np.mean(np.square(one)) * 27)
    assert 0.7 < size < 1.4  # inputs of variance 1


def test_a_reader_of_weights_that_are_no_constant():
    """Cannot be judged by them."""
    net = Net(x=(1, 3, 8, 8), w=(4, 3, 3, 3)).op("Conv", "x", "w", to="y")
    found = of(net.model())
    assert not [d.readers for d in found.values() if d.readers]


def test_what_is_left_of_every_input():
    """With the windows in view; broadcast to the weights."""
    found = of(image().conv("a", (4, 1, 3, 3), group=4, to="y").model(), moments=True)
    (reader,) = found["a"].readers
    assert reader.left.shape == reader.weight.shape
    assert np.all(reader.left > 0)
    (first,) = found["x"].readers
    assert np.all(first.left <= 1.5)  # of independent inputs of variance 1


def test_numbers_of_slots_meet_the_weights():
    """One for each input channel."""
    found = of(image().conv("a", (2, 4, 3, 3), to="y").model())["a"]
    assert isinstance(found, Demand)
    laid = spread(found.readers[0], np.arange(4.0))
    assert laid.shape == (1, 4, 1, 1)
    assert laid.reshape(-1).tolist() == [0, 1, 2, 3]


def test_room_is_for_what_more_samples_would_show():
    """It widens extremes, each by as much as samples differ, and nothing else."""
    found = of(image().model())["a"]
    wider = found.roomy()
    assert np.all(wider.highs > found.highs)
    assert np.all(wider.highs < 1.5 * found.highs)
    assert np.all(wider.lows < found.lows)
    assert wider.values is found.values


def test_larger_ranges_end_at_the_bound_of_a_clip():
    """Whatever the method, and only what is chosen grows, not what was seen."""
    found = of(image().model())["a"]
    wider = found.enlarged(1.5)
    assert (wider.lows is found.lows, wider.highs is found.highs) == (True, True)
    for method in ("minmax", "mse", "percentile"):
        (low, high), (lower, higher) = limits(found, method), limits(wider, method)
        np.testing.assert_allclose(lower, 1.5 * low)
        np.testing.assert_allclose(higher, 1.5 * high)
    capped = replace(wider, caps=found.highs * 1.2)
    np.testing.assert_allclose(limits(capped, "minmax")[1], found.highs * 1.2)
