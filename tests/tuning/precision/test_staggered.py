"""A strand whose channels are made several times, in integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from asserts import builtin, context, read, run_pass
from idle_nets import CHANNELS, IDLE, LOUD, inverted, pictures
from npuconv.model import save
from npuconv.plan import make_plan
from npuconv.plan.strands import strand
from npuconv.quant.encoding import Encoding
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.noise.whole import Judge
from npuconv.tuning.precision.copies import offsets, real
from npuconv.tuning.precision.staggered import Staggered, staggered
from npuconv.tuning.weights.patches import gather, layer_of

INDEX = tuple(LOUD if k in IDLE[:2] else k for k in range(CHANNELS))
FEEDS = [{"x": one[None]} for one in pictures(12)]


def like(step: float) -> Encoding:
    """One step for all channels, each with a scale of its own."""
    scales, zeros = np.full(CHANNELS, step, np.float32), np.zeros(CHANNELS, np.int32)
    return Encoding(scales, zeros, np.float32(step), 1)


def prepared(index):
    """The model with channels that are made again, its plan, strand, encodings and moments."""
    model, ctx = read(inverted(x=(1, 3, 12, 12))), context(verify=False)
    ctx.plan, ctx.reuse = make_plan(model, builtin()), {"first": index}
    run_pass("reuse-idle-channels", model, ctx)
    plan = make_plan(model, builtin())
    own = strand(model, plan, next(n for n in plan.device if n.name == "first"))
    encodings = {name: like(0.2) for name in own.tensors[:2]}
    encodings |= {name: like(1.0) for name in own.tensors[2:]}
    encodings |= {"x": Encoding.plain(0.04), own.readers[0].outputs[0].name: Encoding.plain(8.0)}
    layers = [layer_of(conv) for conv in plan.device]
    moments = gather(save.to_proto(model), layers, FEEDS, len(FEEDS))
    return model, plan, own, encodings, moments


def noise(index) -> float:
    """Of all roundings but those of the input and the output."""
    model, plan, own, encodings, moments = prepared(index)
    made = staggered(own, index, encodings, moments, Staggered())
    every = roundings(model, plan, encodings, made.rounded)
    inner = [r for r in every if r.gate.kind == "weights" or r.gate.tensor in own.tensors]
    return Judge(save.to_proto(model), FEEDS).noise(inner).noise


def test_copies_are_finer_than_one():
    """The channel that makes most of the noise makes a ninth of it; all others what they did."""
    assert noise(INDEX) < 0.6 * noise(tuple(range(CHANNELS)))


def test_copies_lie_a_share_of_a_step_apart():
    """The bias of what makes them says so."""
    _, _, own, encodings, moments = prepared(INDEX)
    made = staggered(own, INDEX, encodings, moments, Staggered())
    rows = [LOUD, *IDLE[:2]]
    lifts = made.lifts["first"]
    assert sorted(lifts[rows]) == pytest.approx(0.2 * offsets(3), rel=1e-3)
    rest = [k for k in range(CHANNELS) if k not in rows]
    assert not lifts[rest].any()


def test_weights_of_copies_make_up_for_each_other():
    """Their mean is nearer to the weights than one of them is."""
    _, _, own, encodings, moments = prepared(INDEX)
    made = staggered(own, INDEX, encodings, moments, Staggered())
    values = real(made.rounded["first"], encodings["x"], 1)
    exact = own.maker.inputs[1].values[LOUD]
    alone, mean = values[LOUD], values[[LOUD, *IDLE[:2]]].mean(axis=0)
    assert np.abs(mean - exact).max() < 0.7 * np.abs(alone - exact).max()


def test_what_was_known_stays():
    """Rows that are no copies are those that were rounded before, lifts are added to."""
    _, _, own, encodings, moments = prepared(INDEX)
    first = staggered(own, INDEX, encodings, moments, Staggered())
    own_bias = first.rounded["first"].bias + np.float32(0.5)
    moved = {
        **first.rounded,
        "first": replace(first.rounded["first"], bias=own_bias),
        "other": None,
    }
    lifts = {"first": np.full(CHANNELS, 0.5), "other": np.ones(1)}
    again = staggered(own, tuple(range(CHANNELS)), encodings, moments, Staggered(moved, lifts))
    np.testing.assert_array_equal(again.rounded["first"].bias, own_bias)
    np.testing.assert_allclose(again.lifts["first"], 0.5)
    assert again.rounded["other"] is None
    assert again.lifts["other"] == 1


def test_lifts_go_with_their_rows():
    """A copy has that of the channel it is a copy of."""
    _, _, own, encodings, moments = prepared(INDEX)
    plain = staggered(own, INDEX, encodings, moments, Staggered())
    before = {"first": np.arange(CHANNELS, dtype=float)}
    made = staggered(own, INDEX, encodings, moments, Staggered({}, before))
    more = made.lifts["first"] - plain.lifts["first"]
    assert more.tolist() == pytest.approx([float(k) for k in INDEX], abs=1e-4)


def test_roundings_one_by_one():
    """A rounding alone sees the copies where they lie, though no bias puts them there."""
    model, plan, own, encodings, moments = prepared(INDEX)
    made = staggered(own, INDEX, encodings, moments, Staggered())
    every = roundings(model, plan, encodings, made.rounded)
    (output,) = (r for r in every if r.gate.layer == "first" and r.gate.kind == "output")
    alone = next(r for r in made.one_by_one(every) if r.gate == output.gate)
    judge = Judge(save.to_proto(model), FEEDS)
    assert judge.noise([alone]).noise < 0.7 * judge.noise([output]).noise
    biases = {r.gate.layer: r.constants[2] for r in made.one_by_one(every) if r.constants}
    for name, rounded in made.rounded.items():
        np.testing.assert_allclose(biases[name], rounded.bias - made.lifts[name], atol=1e-5)


def test_roundings_of_other_layers_stay():
    """The very same."""
    every = roundings(*prepared(INDEX)[:2], prepared(INDEX)[3], {})
    assert all(a is b for a, b in zip(Staggered().one_by_one(every), every, strict=True))


def test_shifts_are_those_of_the_channels():
    """In numbers, not in steps, and turned behind a depthwise layer."""
    _, _, own, encodings, moments = prepared(INDEX)
    made = staggered(own, INDEX, encodings, moments, Staggered(shifts={"other": np.ones(1)}))
    rows = [LOUD, *IDLE[:2]]
    assert sorted(made.shifts[own.tensor.name][rows]) == pytest.approx(0.2 * offsets(3))
    assert set(made.shifts) == {*own.tensors, "other"}
