"""Tests of sums of convolutions as one convolution."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.model import query
from npuconv.model.partial_sums import PartialSum, partial_sum
from support.asserts import read
from support.builders import Net

X = (1, 4, 9, 9)


def sliced(net: Net, axis: int, start: int, stop: int, step: int = 1, source: str = "x") -> str:
    """A slice along one axis; its name."""
    bounds = [net.constant(np.asarray([n])) for n in (start, stop, axis, step)]
    return net.op("Slice", source, *bounds).last


def summed(net: Net, *terms: str, op: str = "Sum") -> PartialSum | None:
    """The convolutions behind the sum of tensors."""
    model = read(net.op(op, *terms).model())
    return partial_sum(model, model.graph.outputs[0])


def halves(**attrs: object) -> tuple[Net, list[str]]:
    """Two convolutions of two channels each."""
    net = Net(x=X)
    cuts = [sliced(net, 1, start, start + 2) for start in (0, 2)]
    return net, [net.conv(cut, (3, 2, 3, 3), bias=False, **attrs).last for cut in cuts]


def taps(starts: tuple[int, ...], counts: tuple[int, ...], **attrs: object) -> PartialSum | None:
    """Convolutions of the taps of a row of three, 1x1 image lines."""
    net, terms = Net(x=(1, 4, 1, 9)), []
    for start, count in zip(starts, counts, strict=True):
        cut = sliced(net, 3, start, start + 7 + count - 1)
        terms.append(net.conv(cut, (3, 4, 1, count), bias=False, **attrs).last)
    return summed(net, *terms)


def test_channels_are_put_side_by_side():
    """Pads and strides are those of the parts; each part knows what it reads."""
    found = summed(*_spread(halves(pads=[1] * 4, strides=[2, 1])))
    assert found is not None
    assert found.weight == (3, 4, 3, 3)
    assert (found.attrs["pads"], found.attrs["strides"]) == ([1] * 4, [2, 1])
    assert [part.bounds for part in found.parts] == [((1, 0, 2, 1),), ((1, 2, 4, 1),)]
    weights = [query.constant_input(conv, 1) for conv in found.convs]
    assert np.array_equal(found.joined(weights), np.concatenate(weights, axis=1))


def _spread(pair: tuple[Net, list[str]]) -> tuple:
    net, terms = pair
    return net, *terms


def test_taps_are_put_beside_each_other():
    """Two taps and one are three."""
    found = taps((0, 2), (2, 1))
    assert found is not None
    assert (found.weight, found.attrs["dilations"]) == ((3, 4, 1, 3), [1, 1])
    assert [part.index[3] for part in found.parts] == [slice(0, 2, 1), slice(2, 3, 1)]


def test_a_step_of_the_slice_is_the_stride_of_the_whole():
    """Phases of the input: every second tap each."""
    net = Net(x=(1, 4, 1, 10))
    even, odd = sliced(net, 3, 0, 9, 2), sliced(net, 3, 1, 9, 2)
    terms = [net.conv(even, (3, 4, 1, 2), bias=False).last]
    terms.append(net.conv(odd, (3, 4, 1, 1), bias=False).last)
    found = summed(net, *terms)
    assert found is not None
    assert (found.weight, found.attrs["strides"]) == ((3, 4, 1, 3), [1, 2])
    assert [part.index[3] for part in found.parts] == [slice(0, 3, 2), slice(1, 2, 2)]


def test_sums_of_sums_and_slices_of_slices():
    """Channels of parts of the window."""
    net, sums = Net(x=(1, 4, 1, 9)), []
    for start in (0, 1):
        row = sliced(net, 3, start, start + 8)
        cuts = [sliced(net, 1, first, first + 2, source=row) for first in (0, 2)]
        each = [net.conv(cut, (3, 2, 1, 1), bias=False).last for cut in cuts]
        sums.append(net.op("Add", *each).last)
    found = summed(net, *sums, op="Add")
    assert found is not None
    assert found.weight == (3, 4, 1, 2)
    assert len(found.parts) == 4
    assert len(found.nodes(query.producer(found.convs[0].outputs[0]).outputs[0])) == 3


@pytest.mark.parametrize(
    ("starts", "counts"), [((0, 1), (2, 1)), ((1, 2), (1, 1)), ((0, 3), (1, 1))]
)
def test_weights_that_are_there_twice_or_not_at_all(starts, counts):
    """Overlapping taps, no first tap, a gap: no one convolution has just these weights."""
    assert taps(starts, counts) is None


def test_what_is_not_alike_is_no_sum():
    """Another tensor, another stride, a reader in between, a Relu."""
    net, terms = halves()
    assert summed(net, *terms) is not None
    net, (first, second) = halves()
    assert summed(net, first, net.op("Relu", second).last) is None
    net, terms = halves()
    net.output(net.op("Neg", terms[0]).last)
    assert summed(net, *terms) is None
    net = Net(x=X, y=X)
    terms = [net.conv(name, (3, 4, 1, 1)).last for name in ("x", "y")]
    assert summed(net, *terms) is None


def test_a_constant_is_a_term():
    """A bias that is added behind."""
    net, terms = halves()
    found = summed(net, *terms, net.constant(np.ones((1, 3, 1, 1), np.float32)))
    assert found is not None
    assert [one.shape for one in found.constants] == [(1, 3, 1, 1)]
