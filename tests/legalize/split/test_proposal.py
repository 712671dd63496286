"""Tests of cutting channels, groups and images into parts."""

from __future__ import annotations

from functools import partial

import pytest

from npuconv.legalize.split.layer import Layer
from npuconv.legalize.split.proposal import chunks, cut, even, sizes, with_bias_once
from support.fits import layer


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
