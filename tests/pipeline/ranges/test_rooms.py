"""Room for what new samples show: where those that are there foretell it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from npuconv.pipeline.ranges import rooms
from npuconv.pipeline.ranges.rooms import make_room
from npuconv.samples import Samples
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.noise.whole import Judge
from npuconv.tuning.scales.candidates import Tried
from uneven_samples import COUNT, pictures, prepared


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
