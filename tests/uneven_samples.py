"""Samples no two of which are alike, and a model that what is new of them harms."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from asserts import builtin, read
from builders import Net
from npuconv.calibration.collect import collect
from npuconv.config import Options
from npuconv.model import save
from npuconv.pipeline.ranges.encoded import encoded
from npuconv.pipeline.ranges.tune import rounded
from npuconv.plan import make_plan
from npuconv.tuning.noise.whole import Judge
from npuconv.tuning.scales.candidates import Tried
from npuconv.tuning.weights.patches import gather, layer_of

COUNT, CHANNELS = 24, 16
LOUDER = 12.0


def pictures(count: int, seed: int, spread: float = 1.0) -> list[dict[str, np.ndarray]]:
    """Noise, of which every channel of every sample has another amount."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        even = rng.uniform(0, 1, (2, 1, CHANNELS, 16, 16))
        amounts = rng.lognormal(0, spread, (1, CHANNELS, 1, 1))
        found.append({"x": np.float32(even[0] * amounts), "other": np.float32(even[1])})
    return found


def net() -> Net:
    """A layer that makes the channels of the input, one that mixes them, and a louder one."""
    shape = (1, CHANNELS, 16, 16)
    built = Net(x=shape, other=shape)
    weight = np.eye(CHANNELS).reshape(CHANNELS, CHANNELS, 1, 1)
    built.op("Conv", "x", built.constant(weight), name="first", to="made")
    built.conv("made", (8, CHANNELS, 1, 1), name="second", to="y")
    loud = built.constant(np.random.default_rng(0).normal(0, LOUDER, (8, CHANNELS, 1, 1)))
    return built.op("Conv", "other", loud, name="third", to="z").output("y", "z")


def prepared(samples, **options) -> SimpleNamespace:
    """The model, calibrated on samples."""
    model = read(net().model())
    plan, proto = make_plan(model, builtin()), save.to_proto(model)
    work = SimpleNamespace(
        model=model, plan=plan, target=builtin(), options=Options(**options), grids={}
    )
    stats = collect(proto, {name: 1 for group in plan.groups for name in group.ends}, samples)
    moments = gather(proto, [layer_of(conv) for conv in plan.device], samples, len(samples))
    found = encoded(work, stats, moments, [("auto", False)])[0]
    chosen = Tried(found, *rounded(work, found, moments))
    judge = Judge(proto, samples[:8])
    return SimpleNamespace(
        work=work, proto=proto, chosen=chosen, stats=stats, moments=moments, judge=judge
    )
