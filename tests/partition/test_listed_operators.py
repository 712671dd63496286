"""Where operators run that a target lists besides Conv."""

from __future__ import annotations

import pytest

from npuconv.partition import make_plan
from support.asserts import builtin, read
from support.builders import Net
from support.target_files import chip

X = (1, 4, 12, 12)
POOL = {"kernel_shape": [3, 3]}


def placed(net, target):
    """Placement and reason of the last node."""
    model = read(net.model())
    plan = make_plan(model, target)
    node = model.nodes()[-1]
    return plan.placement[id(node)], plan.reason[id(node)]


def conv():
    return Net(x=X).conv("x", (4, 4, 3, 3))


def with_pool(**limits):
    also = {"operators": {"Conv": {}, "MaxPool": {"limits": limits}}}
    return chip("", also=also)


def test_what_passes_int8_on_runs_on_the_device():
    """Within its limits; what the model's own types are is not looked at."""
    target = with_pool(kernel_h={"max": 3}, dtype={"equals": "int8"}, kernel_w="?")
    place, reason = placed(conv().op("MaxPool", **POOL), target)
    assert (place, reason) == ("device", "MaxPool is listed and within every known limit")


def test_beyond_its_limits_it_runs_on_the_host():
    """The reason is the limit."""
    place, reason = placed(conv().op("MaxPool", **POOL), with_pool(kernel_h={"max": 2}))
    assert place == "host"
    assert reason == "kernel_h is 3, the device takes at most 2; runs on int8 tensors, exactly"


def test_a_float_tensor_is_nothing_to_the_device():
    """A pool before the first convolution."""
    place, reason = placed(Net(x=X).op("MaxPool", **POOL), with_pool())
    assert (place, reason) == ("host", "MaxPool is listed, but not quantized; runs in float")


@pytest.mark.parametrize(
    ("fused", "place", "reason"),
    [
        (["Relu"], "device", "Relu after a convolution: fused"),
        ({"limit": "?", "assume": ["Relu"]}, "device", "Relu after a convolution: assumed to be "),
        (["Clip"], "host", "target chip does not list Relu; runs on int8 tensors, exactly"),
    ],
)
def test_activations_that_are_fused(fused, place, reason):
    """Known or assumed."""
    also = {"fused_activations": fused, "unlisted_operators": "host"}
    found = placed(conv().op("Relu"), chip(also=also))
    assert found[0] == place
    assert found[1].startswith(reason)


def test_malformed_nodes_are_placed_too():
    """A check goes on to its end."""
    net = conv().op("MaxPool", kernel_shape=[3, 3], strides=[1])
    model = read(net.model())
    assert make_plan(model, with_pool(stride_h={"max": 2})).placement


def test_a_real_chip():
    """Ethos-U55 fuses Relu and has the pool."""
    net = conv().op("Relu").op("MaxPool", **POOL)
    assert placed(net, builtin("ethos-u55"))[0] == "device"
