"""Tests of the rewrite of batches."""

from __future__ import annotations

from npuconv.legalize.fitting.splits.batch import split_batch
from support.builders import Net
from support.fits import fit, layer, proposals


def test_one_image_at_a_time():
    """All read the same weights."""
    found = fit(Net(x=(3, 4, 6, 6)).conv("x", (2, 4, 3, 3)), in_n={"equals": 1})
    assert found.ops == {"Slice": 3, "Conv": 3, "Concat": 1}
    assert len(found.weights) == 1


def test_as_many_as_fit():
    """The last may be fewer."""
    found = fit(Net(x=(5, 4, 6, 6)).conv("x", (2, 4, 3, 3)), in_n={"max": 2})
    assert [n.inputs[0].shape[0] for n in found.model.nodes("Conv")] == [2, 2, 1]


def test_an_unknown_batch_is_left_alone():
    """An unknown batch breaks no limit."""
    assert proposals(split_batch, layer(source=(None, 8, 9, 9)), in_n={"max": 1}) == []
