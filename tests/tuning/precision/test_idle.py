"""Channels that say nothing, whatever a model is given."""

from __future__ import annotations

import numpy as np
import pytest

from asserts import builtin, read
from idle_nets import CHANNELS, IDLE, inverted
from npuconv.plan import make_plan
from npuconv.plan.strands import strand
from npuconv.quant.encoding import Encoding
from npuconv.tuning.precision.idle import idle_channels


def idle(proto, step: float = 0.01) -> list[int]:
    model = read(proto)
    plan = make_plan(model, builtin())
    own = strand(model, plan, next(n for n in plan.device if n.name == "first"))
    names = {t.name for node in model.nodes() for t in (*node.inputs, *node.outputs)}
    return idle_channels(own, {name: Encoding.plain(step) for name in names})


def test_those_without_weights():
    """A Relu cuts off what is left of them."""
    assert idle(inverted()) == list(IDLE)
    assert idle(inverted(idle=())) == []


@pytest.mark.parametrize(("pads", "found"), [((0, 0, 0, 0), list(IDLE)), ((1, 1, 1, 1), [])])
def test_a_value_is_no_value_where_zeros_are_around_it(pads, found):
    """What reads it tells its border."""
    assert idle(inverted(bias=1.5, pads=pads)) == found


def test_zeros_around_do_not_matter_where_nothing_is_made_of_them():
    """The next activation may cut off both."""
    proto = inverted(bias=1.5)
    own = next(n for n in proto.graph.node if n.name == "deep").input[2]
    tensor = next(t for t in proto.graph.initializer if t.name == own)
    bias = np.frombuffer(tensor.raw_data, np.float32).copy()
    bias[list(IDLE)] = -100
    tensor.raw_data = bias.tobytes()
    assert idle(proto) == list(IDLE)


def test_small_weights_are_not_nothing():
    """A thousand times what was seen may come, and would be told."""
    proto = inverted(idle=(2,))
    tensor = proto.graph.initializer[0]
    weight = np.frombuffer(tensor.raw_data, np.float32).reshape(CHANNELS, 3, 3, 3).copy()
    for size, found in ((1e-4, []), (1e-16, [2])):
        weight[2] = size
        tensor.raw_data = weight.tobytes()
        assert idle(proto) == found
