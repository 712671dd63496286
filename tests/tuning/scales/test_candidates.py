"""Which way of choosing ranges is best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asserts import context, read
from builders import Net
from npuconv.model import save
from npuconv.model.core import Model
from npuconv.quant.layer import Rounded
from npuconv.samples import Feed
from npuconv.tuning.noise.ends import before_saturation
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.noise.whole import Judge
from npuconv.tuning.scales.candidates import Trial, Tried, best
from npuconv.tuning.scales.encodings import Encodings
from plans import prepare, random_feeds


def scaled(found: Encodings, factor: float) -> Encodings:
    """All ranges wider or narrower."""
    return Encodings(
        {
            name: replace(
                one,
                scales=np.asarray(one.scales * np.float32(factor), np.float32),
                nominal=np.float32(one.nominal * np.float32(factor)),
            )
            for name, one in found.by_tensor.items()
        },
        found.methods,
    )


def judged(model: Model, feeds: list[Feed]) -> Judge:
    """What says which is best."""
    return Judge(before_saturation(save.to_proto(model)), feeds)


def trial(tried: Tried) -> Trial:
    """A candidate that comes to this."""
    return Trial(tried.encodings, lambda: tried, tried.roomy)


def chosen(*factors: float) -> int:
    """Which of these multiples of the exact ranges is taken."""
    model, ctx = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()), context()
    prepare(model, ctx)
    exact = Encodings(ctx.encodings, {})
    found = [Tried(scaled(exact, factor)) for factor in factors]
    judges = random_feeds(model)
    taken = best(model, ctx.plan, [*map(trial, found)], judged(model, judges), 0)
    return next(k for k, one in enumerate(found) if one is taken)


def test_the_least_noise():
    """Neither steps that are too coarse, nor ranges that clip."""
    assert chosen(4.0, 1.0, 0.3) == 1
    assert chosen(0.3, 4.0, 1.0) == 2


def test_the_first_stays_unless_another_is_clearly_better():
    """A few percent are chance."""
    assert chosen(1.0, 1.0) == 0
    assert chosen(1.002, 1.0) == 0
    assert chosen(1.0, 4.0, 0.3) == 0


def test_weights_count_as_they_will_be():
    """Finer steps, with weights that are wrong, or right."""
    model, ctx = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), name="c").model()), context()
    prepare(model, ctx)
    exact = Encodings(ctx.encodings, {})
    shape = model.nodes("Conv")[0].inputs[1].shape
    wrong = Rounded(
        np.ones(shape, np.int8), np.ones(shape[0], np.float32), np.zeros(shape[0], np.float32)
    )
    for weights, expected in (({"c": wrong}, 0), ({}, 1)):
        found = [Tried(scaled(exact, 16.0)), Tried(exact, weights)]
        trials, judge = [*map(trial, found)], judged(model, random_feeds(model))
        taken = best(model, ctx.plan, trials, judge, 0)
        assert taken is found[expected]


def test_room_is_for_what_was_not_seen():
    """It has to do no harm there, whatever it costs where all was seen."""
    model, ctx = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()), context()
    prepare(model, ctx)
    exact = Encodings(ctx.encodings, {})
    usual = random_feeds(model)
    odd = [{name: 3 * values for name, values in feed.items()} for feed in usual[:1]]
    found = [Tried(exact), Tried(scaled(exact, 3.0), roomy=True)]

    def taken(judges: list, unseen: int) -> bool:
        chosen = best(model, ctx.plan, [*map(trial, found)], judged(model, judges), unseen)
        return chosen is found[1]

    assert taken([*odd, *usual], 1)
    assert not taken(usual, len(usual))
    assert not taken([*usual, *odd], len(usual))


def test_where_little_noise_is_left_room_is_worth_more_than_steps():
    """Ranges a little wider than need be, of a layer at more than 38 dB."""
    model, ctx = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()), context()
    prepare(model, ctx)
    exact = Encodings(ctx.encodings, {})
    judges = random_feeds(model)
    for factor, expected in ((1.01, 1), (8.0, 0)):
        found = [Tried(exact), Tried(scaled(exact, factor), roomy=True)]
        trials, judge = [*map(trial, found)], judged(model, judges)
        taken = best(model, ctx.plan, trials, judge, len(judges))
        assert taken is found[expected]


def test_weights_are_rounded_only_where_the_ranges_have_a_chance():
    """Those that clip most of the values have none."""
    model, ctx = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()), context()
    prepare(model, ctx)
    exact = Encodings(ctx.encodings, {})
    finished = []

    def one(factor: float) -> Trial:
        found = scaled(exact, factor)

        def finish() -> Tried:
            finished.append(factor)
            return Tried(found)

        return Trial(found, finish)

    trials = [one(factor) for factor in (4.0, 0.01, 1.0)]
    best(model, ctx.plan, trials, judged(model, random_feeds(model)), 0)
    assert finished == [4.0, 1.0]


def test_noise_that_is_known_is_not_measured_again(monkeypatch):
    """That of the activations of the first, where somebody else has measured it."""
    model, ctx = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()), context()
    prepare(model, ctx)
    found = [Tried(Encodings(ctx.encodings, {})) for _ in range(2)]
    judge = judged(model, random_feeds(model))
    bare = judge.noise(roundings(model, ctx.plan, ctx.encodings, None))
    measured = []
    real = judge.noise
    monkeypatch.setattr(judge, "noise", lambda every: measured.append(every) or real(every))
    for known, times in ((None, 3), (bare, 2)):
        measured.clear()
        trials = [replace(trial(found[0]), bare=known), trial(found[1])]
        assert best(model, ctx.plan, trials, judge, 0) is found[0]
        assert len(measured) == times
