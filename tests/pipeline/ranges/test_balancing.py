"""Scales that look better from near by: taken where the outputs gain by them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from asserts import builtin, read
from builders import Net
from npuconv.model import save
from npuconv.pipeline.ranges import balancing
from npuconv.pipeline.ranges.balancing import balance
from npuconv.pipeline.ranges.tune import rounded
from npuconv.plan import make_plan
from npuconv.quant.encoding import Encoding
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.noise.whole import Judge
from npuconv.tuning.scales.candidates import Tried
from npuconv.tuning.scales.encodings import Encodings
from npuconv.tuning.weights.patches import gather, layer_of

FINE, COARSE = 0.02, 0.16
FEEDS = [{"x": np.random.default_rng(k).uniform(0, 1, (1, 4, 8, 8)).astype(np.float32)}
         for k in range(8)]  # fmt: skip


@pytest.fixture(scope="module")
def work() -> SimpleNamespace:
    """Three layers in a row, ready to be quantized."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 1, 1), name="first", to="a")
    net.conv("a", (4, 4, 1, 1), name="second", to="b").conv("b", (4, 4, 1, 1), name="third", to="c")
    model = read(net.model())
    plan = make_plan(model, builtin())
    proto = save.to_proto(model)
    moments = gather(proto, [layer_of(conv) for conv in plan.device], FEEDS, len(FEEDS))
    return SimpleNamespace(
        model=model, plan=plan, target=builtin(), moments=moments, judge=Judge(proto, FEEDS)
    )


def chosen(work, now: float, other: float, tensor: str = "a") -> Tried:
    """One tensor has these steps, and might have others."""
    tensors = {name: Encoding.plain(FINE) for name in ("x", "a", "b", "c")}
    encodings = Encodings(
        {**tensors, tensor: Encoding.plain(now)}, {"a": "auto"}, {tensor: Encoding.plain(other)}
    )
    return Tried(encodings, *rounded(work, encodings, work.moments))


def test_what_is_better_is_taken(work):
    """With weights of what reads the tensor for it; all others stay as they are."""
    before = chosen(work, COARSE, FINE)
    after = balance(work, before, work.moments, work.judge)
    assert after.encodings.by_tensor["a"] == before.encodings.balanced["a"]
    assert after.encodings.methods == before.encodings.methods
    for name in ("first", "third"):
        assert after.rounded.get(name) is before.rounded.get(name)
    wanted = chosen(work, FINE, FINE)
    assert after.labels == wanted.labels
    assert (after.rounded["second"].weight == wanted.rounded["second"].weight).all()


def test_what_is_worse_is_not(work):
    """Whatever it looks like from near by."""
    before = chosen(work, FINE, COARSE)
    every = roundings(work.model, work.plan, before.encodings.by_tensor, before.rounded)
    assert 20 < work.judge.noise(every).sqnr_db < balancing.PLENTY_DB
    assert balance(work, before, work.moments, work.judge) is before


def test_next_to_nothing_is_not_worth_it(work):
    """A tenth of the noise, or what was there stays."""
    before = chosen(work, COARSE, COARSE * 0.999)
    assert balance(work, before, work.moments, work.judge) is before


def test_nobody_would_miss_what_is_left(work, monkeypatch):
    """Where there is little noise nothing is changed any more."""
    before = chosen(work, COARSE, FINE)
    monkeypatch.setattr(balancing, "PLENTY_DB", 10.0)
    assert balance(work, before, work.moments, work.judge) is before


def test_nothing_to_choose_from(work):
    """Then the outputs are not looked at."""
    before = Tried(Encodings({}, {}))
    assert balance(work, before, work.moments, None) is before
