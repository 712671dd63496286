"""Which channels are made again in the place of idle ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asserts import builtin, read
from idle_nets import CHANNELS, IDLE, LOUD, inverted
from npuconv.plan import make_plan
from npuconv.plan.strands import strand
from npuconv.quant.encoding import Encoding
from npuconv.tuning.precision import reuse
from npuconv.tuning.precision.reuse import promising, reused


def test_the_noisiest_is_made_first():
    """And again, as long as a quarter of it is more than all of another."""
    assert reused({0: 1.0, 1: 8.0, 2: 2.0}, [3], 4) == (0, 1, 2, 1)
    assert reused({0: 1.0, 1: 8.0, 2: 2.0}, [3, 4], 5) == (0, 1, 2, 1, 2)
    assert reused({0: 1.0, 1: 80.0}, [2, 3, 4], 5) == (0, 1, 1, 1, 1)


def test_no_more_than_four():
    """What is left by then is not worth a channel; the others stay idle."""
    assert reused({0: 1.0}, [1, 2, 3, 4, 5], 6) == (0, 0, 0, 0, 4, 5)


def test_nothing_for_no_noise():
    """A tensor that is exact has no use for more of it."""
    assert reused({0: 0.0, 1: 0.0}, [2], 3) == (0, 1, 2)
    assert reused({}, [0, 1], 2) == (0, 1)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=12), st.integers(1, 12))
def test_only_idle_ones_change(powers, count):
    """Every channel that says something is made at least once."""
    total = len(powers) + count
    found = reused(dict(enumerate(powers)), range(len(powers), total), total)
    assert found[: len(powers)] == tuple(range(len(powers)))
    assert all(one < len(powers) or one == place for place, one in enumerate(found))


def test_those_whose_steps_matter_are_looked_at(monkeypatch):
    """Of many, those that what reads them multiplies most."""
    model = read(inverted())
    plan = make_plan(model, builtin())
    own = strand(model, plan, next(n for n in plan.device if n.name == "first"))
    encodings = {"followed": Encoding(np.ones(CHANNELS, np.float32), None, None, 1)}
    awake = [k for k in range(CHANNELS) if k not in IDLE]
    assert promising(own, encodings, IDLE) == awake
    monkeypatch.setattr(reuse, "_LOOKED_AT", 1)
    assert promising(own, encodings, IDLE) == [LOUD]
