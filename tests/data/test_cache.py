"""The cache: the same bytes with and without it, and damaged files ignored."""

from __future__ import annotations

import io

import numpy as np
import pytest

from npuconv.arithmetic.statistics import Statistics
from npuconv.data import runner
from npuconv.data.cache import Cache, fingerprint
from npuconv.data.collect import collect
from npuconv.errors import CalibrationError, OutputError
from support.builders import Net, digits, images

TENSORS = {"x": 1, "t0": 1, "t3": None}
FIELDS = [field for field in Statistics.__dataclass_fields__ if field not in ("name", "axis")]


def feeds(count, start=0):
    return [{"x": images(1, 1, 8, 8, seed=start + k)} for k in range(count)]


def assert_equal(one, two):
    assert list(one) == list(two)
    for name in one:
        for key in FIELDS:
            assert np.array_equal(getattr(one[name], key), getattr(two[name], key)), (name, key)


@pytest.fixture
def runs(monkeypatch):
    """Record the first sample of every run of the model."""
    seen = []
    run = runner.Runner.run

    def spy(self, samples, number):
        seen.extend(range(number, number + len(samples)))
        return run(self, samples, number)

    monkeypatch.setattr(runner.Runner, "run", spy)
    return seen


def interrupted(samples, after):
    for number, feed in enumerate(samples):
        if number == after:
            raise KeyboardInterrupt
        yield feed


class Sized:
    """A source with a length, as ``Samples`` is."""

    def __init__(self, items, length):
        self.items, self.length = items, length

    def __len__(self):
        """Return the number of all samples, also where the source is interrupted."""
        return self.length

    def __iter__(self):
        """Yield one sample after the other."""
        return iter(self.items)


@pytest.mark.parametrize("count", [1, 16, 35])
def test_the_second_time_nothing_runs(tmp_path, runs, count):
    """The second time all comes from the cache, equal to the bit."""
    without = collect(digits(), TENSORS, feeds(count))
    first = collect(digits(), TENSORS, feeds(count), cache=Cache(tmp_path))
    runs.clear()
    cache = Cache(tmp_path)
    second = collect(digits(), TENSORS, feeds(count), cache=cache)
    assert_equal(without, first)
    assert_equal(without, second)
    assert sorted(runs) == []
    assert cache.notes == []


def test_an_interrupted_run_goes_on(tmp_path, runs):
    """Finished parts are kept, and the result equals that of one run."""
    samples = feeds(50)
    stopped = Sized(interrupted(samples, 40), 50)
    with pytest.raises(KeyboardInterrupt):
        collect(digits(), TENSORS, stopped, cache=Cache(tmp_path))
    runs.clear()
    resumed = collect(digits(), TENSORS, samples, cache=Cache(tmp_path))
    assert sorted(runs) == list(range(32, 50))
    assert_equal(resumed, collect(digits(), TENSORS, samples))


def test_progress_goes_on_too(tmp_path):
    """A sample from the cache counts as done."""
    done = []
    for _ in range(2):
        done.clear()
        collect(
            digits(), TENSORS, feeds(20), cache=Cache(tmp_path), progress=lambda: done.append(1)
        )
        assert len(done) == 20


def test_a_sample_that_changed(tmp_path, runs):
    """Only the part of a changed sample runs again."""
    samples = feeds(40)
    collect(digits(), TENSORS, samples, cache=Cache(tmp_path))
    samples[20] = feeds(1, start=99)[0]
    runs.clear()
    again = collect(digits(), TENSORS, samples, cache=Cache(tmp_path))
    assert sorted(runs) == list(range(16, 32))
    assert_equal(again, collect(digits(), TENSORS, samples))


def test_fewer_samples_than_before(tmp_path, runs):
    """A stored part with more samples is not used."""
    collect(digits(), TENSORS, (feed for feed in feeds(20)), cache=Cache(tmp_path))
    runs.clear()
    fewer = collect(digits(), TENSORS, (feed for feed in feeds(18)), cache=Cache(tmp_path))
    assert sorted(runs) == [16, 17]
    assert_equal(fewer, collect(digits(), TENSORS, (feed for feed in feeds(18))))


def test_more_samples_than_before(tmp_path, runs):
    """A short last part is not used as the beginning of a longer one."""
    collect(digits(), TENSORS, (feed for feed in feeds(20)), cache=Cache(tmp_path))
    runs.clear()
    longer = collect(digits(), TENSORS, (feed for feed in feeds(30)), cache=Cache(tmp_path))
    assert sorted(runs) == list(range(16, 30))
    assert_equal(longer, collect(digits(), TENSORS, (feed for feed in feeds(30))))


@pytest.mark.parametrize(
    ("model", "tensors"),
    [
        (digits(), {"x": 1, "t0": 1, "t3": 1}),
        (digits(), {"t0": 1, "x": 1, "t3": None}),
        (Net(x=(1, 1, 8, 8)).op("Neg").op("Abs").op("Relu").op("Neg").model(), TENSORS),
    ],
)
def test_another_question(tmp_path, runs, model, tensors):
    """Another axis, order or model finds no stored part."""
    collect(digits(), TENSORS, feeds(3), cache=Cache(tmp_path))
    runs.clear()
    collect(model, tensors, feeds(3), cache=Cache(tmp_path))
    assert sorted(runs) == [0, 1, 2]


def plain_array():
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    return stream.getvalue()


def spoil(change):
    """Return a function that rewrites the arrays of a file."""

    def apply(path):
        with np.load(path) as archive:
            arrays = dict(archive)
        change(arrays)
        np.savez(path, **arrays)

    return apply


def flipped(mark, offset, value):
    """Return a function that changes a byte behind every such mark, as those of a zip's headers."""

    def apply(path):
        data = bytearray(path.read_bytes())
        at = data.find(mark)
        while at >= 0:
            data[at + offset] = value
            at = data.find(mark, at + 1)
        path.write_bytes(data)

    return apply


def less(key):
    return spoil(lambda arrays: arrays.update({key: arrays[key][:-1]}))


def other(key, value):
    return spoil(lambda arrays: arrays.update({key: value(arrays[key])}))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"not an archive"),
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(plain_array()),
        flipped(b"PK\x01\x02", 10, 99),  # a compression that nobody knows
        flipped(b"PK\x01\x02", 8, 1),  # encrypted
        flipped(b"{'descr'", 0, ord("(")),  # a header that does not end
        spoil(lambda arrays: arrays.pop("means")),
        other("key", lambda _: np.asarray(["0" * 64], "S64")),
        other("prints", lambda prints: prints[::-1]),
        other("batch", lambda batch: batch * 0),
        other("lows", lambda lows: lows.astype(np.float64)),
        other("lows", lambda lows: lows + 1e6),
        other("means", lambda means: means * np.nan),
        other("numbers", lambda numbers: numbers + 100),
        other("widths", lambda widths: widths + 1),
        other("samples", lambda samples: samples + 1),
        other("positions", lambda positions: positions * 5000),
        other("channels", lambda channels: channels - 1),
        other("values", lambda values: np.append(values, np.float32(0))),
        other("values", lambda _: np.asarray([{}], object)),
        other("prints", lambda prints: np.arange(len(prints))),
        other("prints", lambda prints: np.full(len(prints), b"\xff")),
        *(less(key) for key in ("lows", "squares", "values", "numbers", "counts", "samples")),
    ],
)
def test_a_damaged_file(tmp_path, runs, damage):
    """A damaged file is ignored with a note, and written anew."""
    good = collect(digits(), TENSORS, feeds(3), cache=Cache(tmp_path))
    (path,) = tmp_path.iterdir()
    damage(path)
    runs.clear()
    cache = Cache(tmp_path)
    assert_equal(collect(digits(), TENSORS, feeds(3), cache=cache), good)
    assert sorted(runs) == [0, 1, 2]
    assert len(cache.notes) == 1
    assert path.name in cache.notes[0]
    runs.clear()
    assert_equal(collect(digits(), TENSORS, feeds(3), cache=Cache(tmp_path)), good)
    assert sorted(runs) == []


def test_a_file_under_another_name(tmp_path):
    """A renamed part is ignored."""
    collect(digits(), TENSORS, feeds(3), cache=Cache(tmp_path))
    (path,) = tmp_path.iterdir()
    path.rename(path.with_name(path.name.replace("-000000-", "-000016-")))
    cache = Cache(tmp_path)
    collect(digits(), TENSORS, Sized(feeds(20), 3), cache=cache)
    assert len(cache.notes) == 1


def test_samples_are_not_kept_because_of_the_cache(tmp_path):
    """No more than three parts' worth of samples is alive at any time."""
    alive = [0, 0]

    class Counted(np.ndarray):
        def __array_finalize__(self, source):
            alive[0] += 1
            alive[1] = max(alive)

        def __del__(self):
            alive[0] -= 1

    def source():
        for feed in feeds(100):
            yield {"x": feed["x"].view(Counted)}

    collect(digits(), TENSORS, source(), cache=Cache(tmp_path))
    assert alive[1] < 40


def test_errors_are_not_kept(tmp_path):
    """A sample that is not finite is an error again the next time."""
    samples = feeds(20)
    samples[18]["x"][:] = np.nan
    for _ in range(2):
        with pytest.raises(CalibrationError, match="sample 18"):
            collect(digits(), TENSORS, samples, cache=Cache(tmp_path))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be():
    """A file in the place of the folder is refused."""
    with pytest.raises(OutputError, match="cannot be made"):
        Cache(__file__)


def test_a_new_folder(tmp_path):
    """The folder is made, with those above it."""
    collect(digits(), TENSORS, feeds(2), cache=Cache(tmp_path / "a" / "b"))
    assert list((tmp_path / "a" / "b").glob("*.npz"))


def test_fingerprints():
    """Fingerprints cover names, types, shapes and bytes, not the memory layout."""
    x = images(2, 3)
    same = [{"x": x}, {"x": x.copy()}, {"x": np.asfortranarray(x)}]
    others = [{"y": x}, {"x": x.reshape(3, 2)}, {"x": x.view(np.int32)}, {"x": x + 1}, {}]
    assert len({fingerprint(feed) for feed in same}) == 1
    assert len({fingerprint(feed) for feed in [*same, *others]}) == 1 + len(others)
    assert fingerprint({"a": x, "b": x}) == fingerprint({"b": x, "a": x})
