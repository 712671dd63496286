"""All roundings at once."""

from __future__ import annotations

import numpy as np
import pytest

from asserts import context, read
from builders import Net
from npuconv.model import save
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.noise.whole import Judge, Noise
from plans import prepare, random_feeds


def test_it_is_what_int8_does():
    """An input and a layer whose numbers int8 holds are exact; others are not."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), name="conv")
    model, ctx = read(net.model()), context()
    prepare(model, ctx)
    every = roundings(model, ctx.plan, ctx.encodings, {})
    proto, feeds = save.to_proto(model), random_feeds(model)
    found = Judge(proto, feeds).noise(every)
    assert 30 < found.sqnr_db < 50
    assert Judge(proto, feeds).noise([]).noise == 0


def test_no_noise_is_no_number():
    """Nor is what has no signal."""
    assert Noise(0.0, 1.0).sqnr_db is None
    assert Noise(1.0, 0.0).sqnr_db is None
    assert Noise(1.0, 100.0).sqnr_db == pytest.approx(20)


def test_what_is_left_in_most_samples():
    """One that tips over does not decide."""
    before = Noise(3.0, 1.0, (1.0, 1.0, 1.0))
    assert Noise(100.5, 1.0, (0.25, 0.25, 100.0)).ratio(before) == pytest.approx(6.25 ** (1 / 3))
    assert Noise(0.75, 1.0, (0.25, 0.25, 0.25)).ratio(before) == pytest.approx(0.25)
    assert Noise(1.0, 1.0).ratio(Noise(2.0, 1.0)) == 0.5
    assert Noise(1.0, 1.0).ratio(Noise(0.0, 1.0)) == 1.0


def test_what_is_no_number_is_left_out():
    """Outputs of text, and infinite values."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), name="conv")
    zero = net.constant(np.zeros(1, np.float32))
    net.op("Div", "t0", zero, to="infinite").output("infinite")
    model, ctx = read(net.model()), context()
    prepare(model, ctx)
    every = roundings(model, ctx.plan, ctx.encodings, {})
    found = Judge(save.to_proto(model), random_feeds(model)).noise(every)
    assert np.isfinite([found.noise, found.signal]).all()


def test_a_judge_works_the_exact_outputs_out_once():
    """One way after the other, on the same samples."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), name="conv")
    model, ctx = read(net.model()), context()
    prepare(model, ctx)
    every = roundings(model, ctx.plan, ctx.encodings, {})
    proto, feeds = save.to_proto(model), random_feeds(model)
    judge = Judge(proto, feeds)
    assert judge.noise(every) == judge.noise(every) == Judge(proto, feeds).noise(every)
    assert judge.noise(every[:1]).noise < judge.noise(every).noise
    assert judge.of(proto).noise(every) == judge.noise(every)


def test_some_samples_only():
    """Of the noise, and what is left of it."""
    before, after = Noise(5.0, 1.0, (1.0, 4.0)), Noise(4.25, 1.0, (0.25, 4.0))
    assert after.first(1).left(before.first(1)) == pytest.approx(0.25)
    assert after.left(before) == pytest.approx((0.5 * 4.25 / 5) ** 0.5)
    assert after.left(Noise(0.0, 1.0)) == 1.0


def test_what_one_has_more_than_another_is_added():
    """Sample by sample; nothing is taken off."""
    found = Noise(3.0, 9.0, (1.0, 2.0)).plus(
        Noise(7.0, 9.0, (5.0, 2.0)), Noise(5.0, 9.0, (2.0, 3.0))
    )
    assert (found.noise, found.signal, found.each) == (6.0, 9.0, (4.0, 2.0))


def test_what_one_sample_gains_is_not_what_most_do():
    """One odd sample decides sums and means; it is one of many all the same."""
    before = Noise(13.0, 1.0, (10.0, 1.0, 1.0, 1.0))
    after = Noise(3.7, 1.0, (0.1, 1.2, 1.2, 1.2))
    assert after.left(before) < 1
    assert not after.is_mostly_less(before)
    assert Noise(12.7, 1.0, (10.0, 0.9, 0.9, 0.9)).is_mostly_less(before)
    assert not before.is_mostly_less(before)
