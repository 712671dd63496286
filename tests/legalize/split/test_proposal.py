"""Tests of the registry of ways to split, and of cutting channels, groups and images."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from npuconv.config import Options
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.split import limits, proposal
from npuconv.legalize.split.layer import Layer
from npuconv.legalize.split.proposal import (
    OPERATORS,
    SPLITS,
    LayerSplit,
    Part,
    Proposal,
    Rounding,
    chunks,
    cut,
    even,
    sizes,
    splits_of,
    with_bias_once,
)
from npuconv.registry import Registry
from support.fits import layer
from support.target_files import chip


def of(whole: Layer, inputs: int) -> Layer:
    return whole.with_channels(inputs, whole.out_channels, 1)


@pytest.mark.parametrize(("total", "size"), [(8, 4), (10, 4), (3, 4), (7, 1)])
def test_parts_are_those_of_the_chunks(total, size):
    """Count them without making each."""
    form = partial(of, layer((4, total, 3, 3)))
    counted = {p.layer.in_channels: p.count for p in cut(total, size, form)}
    lengths = [stop - start for start, stop in chunks(total, size)]
    assert counted == {n: lengths.count(n) for n in lengths}


@pytest.mark.parametrize(("shared", "weights"), [(True, 1), (False, 4)])
def test_weights_are_shared_or_not(shared, weights):
    form = partial(of, layer((4, 8, 3, 3)))
    assert [p.weights for p in cut(8, 2, form, shared=shared)] == [weights]


def test_one_part_adds_the_bias():
    """The others of its form are counted without it."""
    parts = cut(10, 4, partial(of, layer((4, 10, 3, 3), bias=True)))
    found = [(p.layer.bias, p.layer.in_channels, p.count) for p in with_bias_once(parts, bias=True)]
    assert found == [(True, 4, 1), (False, 4, 1), (False, 2, 1)]
    assert not any(p.layer.bias for p in with_bias_once(parts, bias=False))


def test_sizes_are_the_longest_of_even_parts():
    """Take the smallest of each number of parts, each size once."""
    found = list(sizes(7))
    assert found == [7, 4, 3, 2, 1]
    assert [max(b - a for a, b in even(7, -(-7 // n))) for n in found] == found


@pytest.fixture
def ways(monkeypatch) -> Registry[LayerSplit]:
    """A copy of the registry, for further ways."""
    copy: Registry[LayerSplit] = Registry()
    for name in SPLITS.names():
        copy.add(name, SPLITS.get(name))
    monkeypatch.setattr(proposal, "SPLITS", copy)
    return copy


def test_a_new_way_is_one_function(ways):
    """Its decorator is all that the planner has to know: order, limits and exactness."""
    target = chip(bias={"equals": False}, also={"unlisted_operators": "error"})
    one = layer(bias=True)
    assert TargetDevice(target, Options()).planner.plan(one)[0] is None  # nothing adds the bias

    @LayerSplit("dropped", (limits.BIAS,), after=("split-batch",), rounding=Rounding.RESULTS)
    def drop_bias(layer, _demand):
        """Drop the bias."""
        form = replace(layer, bias=False)

        def build(_builder, piece, emit):
            return emit(replace(piece, layer=form, bias=None))

        yield Proposal("no bias", (Part(form),), build)

    assert ways.get("drop-bias") is drop_bias
    assert drop_bias in splits_of("Conv")
    assert drop_bias not in splits_of("MaxPool")
    planner = TargetDevice(target, Options()).planner
    plan, exact = planner.plan(one)[0], planner.exact_plan(one)
    assert plan is not None
    assert plan.names == ("dropped",)
    assert plan.rounds
    assert exact is None


@pytest.mark.parametrize("op", OPERATORS)
def test_the_order(op):
    """Every way comes after those that it names."""
    ordered = splits_of(op)
    for number, item in enumerate(ordered):
        before = [SPLITS.get(name) for name in item.after]
        assert not set(before) & set(ordered[number:])
    assert len(ordered) > 4
