"""Blocks of one float pass: what several processes collect is what one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuconv.data import Samples, runner
from npuconv.data.cache import Cache
from npuconv.data.collect import (
    Block,
    Collected,
    collect,
    collect_shared,
    share,
    shared_cache,
)
from npuconv.data.runner import PART
from npuconv.errors import CalibrationError
from support.asserts import same_statistics
from support.builders import Net, digits, images

TENSORS = {"x": 1, "t0": 1, "t3": None}


def samples(count: int, *, broken: int = -1) -> Samples:
    """Return images for ``digits``."""

    def load(k: int):
        return {"x": images(1, 1, 8, 8, seed=k) * (np.nan if k == broken else 1)}

    return Samples(load, tuple(range(count)), "test")


@pytest.fixture(autouse=True)
def _as_before():
    """Reset the block of this process after the test."""
    yield
    share(None)


def make(folder, model, tensors, feeds, block):
    """Make the parts of a block."""
    share(folder, block)
    with pytest.raises(Collected):
        gather(model, tensors, feeds)
    share(None)


def gather(model, tensors, feeds, named=None):
    """Collect as a conversion does."""
    return collect_shared(model, tensors, feeds, progress=lambda: None, cache=shared_cache(named))


@given(st.integers(0, 700), st.integers(1, 40))
def test_blocks_are_whole_parts_of_all(total, of):
    """Every sample is in one block, in order; a block begins with a part."""
    ranges = [Block(number, of).samples(total) for number in range(of)]
    joined = [sample for own in ranges for sample in own]
    assert joined == (list(range(total)) if total > PART else [])
    assert all(own.start % PART == 0 for own in ranges)
    sizes = [len(own) for own in ranges]
    assert max(sizes) - min(sizes) <= 2 * PART


@settings(max_examples=12)
@given(st.integers(17, 70), st.permutations(range(5)), st.integers(1, 5))
def test_the_same_to_the_bit(tmp_path_factory, total, order, of):
    """However many processes there are, and in any order, nothing is left to run."""
    folder, feeds = tmp_path_factory.mktemp("parts"), samples(total)
    for number in (n for n in order if n < of):
        make(folder, digits(), TENSORS, feeds, Block(number, of))
    share(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.Runner, "run", None)
        joined = gather(digits(), TENSORS, feeds, "not used")
    share(None)
    same_statistics(joined, collect(digits(), TENSORS, feeds))


def test_a_block_that_is_missing(tmp_path):
    """A missing block is made by the conversion; a block is not made twice."""
    feeds = samples(70)
    make(tmp_path, digits(), TENSORS, feeds, Block(1, 3))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(before) == 2
    make(tmp_path, digits(), TENSORS, feeds, Block(1, 3))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    same_statistics(gather(digits(), TENSORS, feeds, tmp_path), collect(digits(), TENSORS, feeds))


def test_the_first_sample_decides_for_all_blocks(tmp_path):
    """The size of a batch depends on the first sample alone, in every block."""
    net = Net(x=("n", 3, 8, 8))
    net.op("Sub", "x", net.op("ReduceMean", "x", axes=[0], keepdims=1).last)
    model, tensors = net.model(), {"t1": 1}

    def load(k: int):
        return {"x": images(1, 3, 8, 8, seed=k) * np.float32(k > 0)}

    feeds = Samples(load, tuple(range(40)), "test")
    for number in range(3):
        make(tmp_path, model, tensors, feeds, Block(number, 3))
    found = gather(model, tensors, feeds, tmp_path)
    assert np.any(found["t1"].highs > 0)  # they were mixed
    same_statistics(found, collect(model, tensors, feeds))


def test_a_sample_that_breaks_it(tmp_path):
    """The error is the same as without blocks, and parts before it are stored."""
    feeds = samples(40, broken=20)
    make(tmp_path, digits(), TENSORS, feeds, Block(0, 2))
    share(tmp_path, Block(1, 2))
    with pytest.raises(CalibrationError, match="sample 20"):
        gather(digits(), TENSORS, feeds)
    share(tmp_path)
    with pytest.raises(CalibrationError, match="sample 20"):
        gather(digits(), TENSORS, feeds)
    assert len(list(tmp_path.glob("*.npz"))) == 1


@pytest.mark.parametrize(
    ("tensors", "count"), [({}, 40), (TENSORS, PART)], ids=["no tensors", "one part"]
)
def test_nothing_to_do(tmp_path, tensors, count):
    """A process with a block stops also where there is no part to make."""
    make(tmp_path, digits(), tensors, samples(count), Block(0, 2))
    assert list(tmp_path.iterdir()) == []


def test_where_parts_are(tmp_path):
    """Parts are in the folder of the process, else in that of the conversion, else nowhere."""
    assert shared_cache(None) is None
    assert isinstance(shared_cache(tmp_path / "a"), Cache)
    share(tmp_path / "b")
    assert shared_cache(tmp_path / "a").folder == tmp_path / "b"
