"""Roundings as terms: who makes and who reads."""

from __future__ import annotations

import numpy as np

from asserts import context, read
from builders import Net
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.precision.terms import terms_of
from plans import prepare


def test_makers_and_readers():
    """A tensor is followed through what carries integers on, to the convolutions."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 1, 1), name="first").op("Relu")
    net.op("MaxPool", kernel_shape=[2, 2]).conv(weight=(4, 4, 1, 1), name="second").op("Sigmoid")
    model, ctx = read(net.model()), context()
    prepare(model, ctx)
    every = roundings(model, ctx.plan, ctx.encodings, {})
    found = terms_of(model, ctx.plan, every, np.arange(len(every), dtype=float))
    assert [(t.maker, t.readers, t.is_output) for t in found] == [
        ("", ("first",), False),
        ("first", (), False),
        ("first", ("second",), True),
        ("second", (), False),
        ("second", (), True),
    ]
    assert [t.power for t in found] == [0, 1, 2, 3, 4]
