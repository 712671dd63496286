"""Room for what new samples show: where those that are there foretell it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from asserts import builtin, read
from builders import Net
from npuconv.calibration.collect import collect
from npuconv.calibration.reaches import reaches
from npuconv.config import Options
from npuconv.model import save
from npuconv.pipeline.ranges import foresight, rooms
from npuconv.pipeline.ranges.encoded import encoded
from npuconv.pipeline.ranges.rooms import make_room
from npuconv.pipeline.ranges.tune import rounded
from npuconv.plan import make_plan
from npuconv.samples import Samples
from npuconv.tuning.noise.twin import roundings
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


def with_room(case: SimpleNamespace, samples, **options) -> Tried:
    given = Samples(samples.__getitem__, tuple(range(len(samples))), "made", **options)
    return make_room(case.work, case.chosen, case.stats, case.moments, given, case.judge)


def noise(case: SimpleNamespace, one: Tried, samples) -> float:
    every = roundings(case.work.model, case.work.plan, one.encodings.by_tensor, one.rounded)
    return Judge(case.proto, samples).noise(every).noise


@pytest.fixture(scope="module")
def uneven() -> SimpleNamespace:
    return prepared(pictures(COUNT, 0))


def test_new_samples_lose_less(uneven):
    """The next one may be louder than all before; those that are known lose little."""
    samples, others = pictures(COUNT, 0), pictures(4 * COUNT, 1)
    after = with_room(uneven, samples)
    assert after is not uneven.chosen
    assert noise(uneven, after, others) < 0.8 * noise(uneven, uneven.chosen, others)
    assert noise(uneven, after, samples[:8]) < 1.02 * noise(uneven, uneven.chosen, samples[:8])


def test_larger_ranges_are_said_and_weights_made_for_them(uneven):
    """Of layers that read them; those of others are what they were."""
    after, before = with_room(uneven, pictures(COUNT, 0)), uneven.chosen
    changed = {
        name
        for name, one in after.encodings.by_tensor.items()
        if (one.scales != before.encodings.by_tensor[name].scales).any()
    }
    said = {name for name, how in after.encodings.methods.items() if ", room " in how}
    assert changed == said
    assert changed
    for name in changed:
        old, new = (one.encodings.by_tensor[name].scales for one in (before, after))
        assert (new >= 0.999 * old).all()
    for conv in uneven.work.plan.device:
        if conv.inputs[0].name not in changed:
            assert after.rounded.get(conv.name) is before.rounded.get(conv.name)


def test_nothing_to_foresee():
    """All samples reach as far as all others."""
    samples = pictures(COUNT, 0, spread=0)
    case = prepared(samples)
    assert with_room(case, samples) is case.chosen


def test_ranges_that_the_user_wants():
    """What to clip is the user's choice then."""
    samples = pictures(COUNT, 0)
    case = prepared(samples, method="minmax")
    assert with_room(case, samples) is case.chosen


def test_few_samples(uneven):
    """Each is unlike all others: that says nothing."""
    assert with_room(uneven, pictures(rooms.LEAST - 1, 0)) is uneven.chosen


def test_room_that_costs_too_much(uneven, monkeypatch):
    """What samples lose that were there to judge is worth more than what is foreseen."""
    monkeypatch.setattr(rooms, "PREMIUM", 0.0)
    monkeypatch.setattr(rooms, "BELIEVED", 0.0)
    assert with_room(uneven, pictures(COUNT, 0)) is uneven.chosen


def test_made_up_samples(uneven):
    """What they foretell is made up, too."""
    assert with_room(uneven, pictures(COUNT, 0), synthetic=True) is uneven.chosen


def test_large_inputs(uneven, monkeypatch):
    """Fewer samples are held at once; those that are not still have made the ranges."""
    monkeypatch.setattr(foresight, "VALUES", 1)
    seen = []

    def counted(model, axes, feeds):
        seen.append(len(feeds))
        return reaches(model, axes, feeds)

    monkeypatch.setattr(foresight, "reaches", counted)
    with_room(uneven, pictures(COUNT, 0))
    assert seen == [foresight.FEWEST]
