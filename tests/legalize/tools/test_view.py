"""Tests of views: any nodes in a row that move data, against numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from npuconv.legalize.tools.view import Size, Step, View
from support.asserts import read
from support.builders import Net

CASES = 150


def random_chain(seed: int) -> tuple[np.ndarray, Net]:
    """Build up to six Reshapes and Transposes, with the places of the result in the source."""
    rng = np.random.default_rng(seed)
    factors = [int(n) for n in rng.choice([1, 2, 2, 3], rng.integers(2, 6))]
    net, places = Net(x=factors), np.arange(math.prod(factors)).reshape(factors)
    for _ in range(rng.integers(1, 7)):
        if rng.random() < 0.5:
            perm = [int(axis) for axis in rng.permutation(places.ndim)]
            net, places = net.op("Transpose", perm=perm), places.transpose(perm)
        else:
            cuts = sorted(rng.choice(len(factors) + 1, rng.integers(1, 4)))
            bounds = [0, *cuts, len(factors)]
            pieces = rng.permutation(factors)
            dims = [int(np.prod(pieces[a:b])) for a, b in itertools.pairwise(bounds)]
            net, places = net.reshape(dims), places.reshape(dims)
    return places, net


def applied(step: Step, array: np.ndarray) -> np.ndarray:
    """Compute a step."""
    assert array.shape == tuple(size.number for size in step.source)
    if step.op == "Gather":
        return array.take(step.values, 1)
    return array.reshape(step.values) if step.op == "Reshape" else array.transpose(step.values)


@pytest.mark.parametrize("seed", range(CASES))
def test_every_form_moves_the_same_values(seed: int):
    """Also where runs and axes overlap in parts, so that there is no view."""
    places, net = random_chain(seed)
    model = read(net.model())
    view = View.of(model.nodes()[0].inputs[0])
    for node in model.nodes():
        view = view and view.through(node)
    if view is None:
        return
    source = np.arange(places.size).reshape([size.number for size in view.source])
    forms = list(view.forms())
    assert forms
    for form in forms:
        array = source
        for step in form:
            array = applied(step, array)
            assert array.shape == tuple(size.number for size in step.dims)
        assert np.array_equal(array, places), form
        assert len(form) <= 3


def test_most_chains_have_a_view():
    """They are the purpose."""
    views = 0
    for seed in range(CASES):
        model = read(random_chain(seed)[1].model())
        view = View.of(model.nodes()[0].inputs[0])
        for node in model.nodes():
            view = view and view.through(node)
        views += view is not None
    assert views > 0.8 * CASES


def test_sizes_with_names():
    """A quotient is known if the names go in."""
    batch, cells = Size(6, ("N",)), Size(2)
    assert batch.over(cells) == Size(3, ("N",))
    assert batch.over(Size(4)) is None
    assert cells.over(batch) is None
    assert batch.times(Size(1, ("H",))).over(batch) == Size(1, ("H",))


def test_a_batch_with_a_name():
    """Channels move within each sample."""
    net = Net(x=("N", 12, 5)).reshape([-1, 2, 6, 5]).op("Transpose", perm=[0, 2, 1, 3])
    model = read(net.reshape([-1, 12, 5]).model())
    view = View.of(model.nodes()[0].inputs[0])
    for node in model.nodes():
        view = view and view.through(node)
    assert view is not None
    gather, *others = view.forms()
    assert [step.op for step in gather] == ["Gather"]
    assert gather[0].values == (0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11)
    assert next([step.op for step in form] for form in others) == [
        "Reshape",
        "Transpose",
        "Reshape",
    ]
