"""Tests of movements: any nodes in a row that move data, against numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from npuconv.legalize.tools.movement import Movement, Size, Step
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
    """Also where runs and axes overlap in parts, so that there is no movement."""
    places, net = random_chain(seed)
    model = read(net.model())
    movement = Movement.from_tensor(model.nodes()[0].inputs[0])
    for node in model.nodes():
        movement = movement and movement.through(node)
    if movement is None:
        return
    source = np.arange(places.size).reshape([size.number for size in movement.source])
    forms = list(movement.forms())
    assert forms
    detours = list(itertools.islice(movement.forms(2), 0, None, 7))
    for form in forms + detours:
        array = source
        for step in form:
            array = applied(step, array)
            assert array.shape == tuple(size.number for size in step.dims)
        assert np.array_equal(array, places), form
        assert len(form) <= (3 if form in forms else 4)


def test_most_chains_are_followed():
    """They are the purpose."""
    movements = 0
    for seed in range(CASES):
        model = read(random_chain(seed)[1].model())
        movement = Movement.from_tensor(model.nodes()[0].inputs[0])
        for node in model.nodes():
            movement = movement and movement.through(node)
        movements += movement is not None
    assert movements > 0.8 * CASES


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
    movement = Movement.from_tensor(model.nodes()[0].inputs[0])
    for node in model.nodes():
        movement = movement and movement.through(node)
    assert movement is not None
    gather, *others = movement.forms()
    assert [step.op for step in gather] == ["Gather"]
    assert gather[0].values == (0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11)
    assert next([step.op for step in form] for form in others) == [
        "Reshape",
        "Transpose",
        "Reshape",
    ]


@pytest.mark.parametrize("index", range(3))
def test_a_part_of_the_channels_in_another_rank(index: int):
    """A Gather of channels, then a Reshape."""
    net = Net(x=(6, 24, 1, 1)).reshape([6, 3, 2, 4]).op("Transpose", perm=[1, 0, 2, 3])
    net.op("Gather", net.last, net.constant(np.asarray(index, np.int64)), axis=0)
    model = read(net.model())
    movement = Movement.from_tensor(model.nodes()[0].inputs[0])
    for node in model.nodes():
        movement = movement and movement.through(node)
    assert movement is not None
    (form,) = movement.forms()
    assert [step.op for step in form] == ["Gather", "Reshape"]
    array = source = np.arange(144).reshape(6, 24, 1, 1)
    for step in form:
        array = applied(step, array)
    assert np.array_equal(array, source.reshape(6, 3, 2, 4)[:, index])
