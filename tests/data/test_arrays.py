"""Samples from arrays, in memory and in files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from npuconv.config import Preprocess
from npuconv.data import InputSpec, Samples, open_samples
from npuconv.data.samples import spread
from npuconv.errors import CalibrationError

X = np.random.default_rng(0).normal(size=(6, 3, 4, 4)).astype(np.float32)


def spec(name: str = "x", shape: Any = ("N", 3, 4, 4), dtype: str = "float32") -> InputSpec:
    """Return an input of a model."""
    return InputSpec(name, np.dtype(dtype), shape)


def read(source: Any, *inputs: InputSpec, limit: int = 512, **keys: Any) -> Samples:
    """Open samples of a source for these inputs, or for x of [N, 3, 4, 4]."""
    return open_samples(source, inputs or (spec(),), Preprocess(**keys), limit=limit)


def refuse(source: Any, *inputs: InputSpec) -> str:
    """Return the message with which a source is refused."""
    with pytest.raises(CalibrationError) as caught:
        read(source, *inputs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def stacked(samples: Samples, name: str = "x") -> np.ndarray:
    """Return all samples of one input, one after the other."""
    return np.concatenate([feed[name] for feed in samples])


@pytest.mark.parametrize("batch", [1, "N", None])
def test_rows_are_samples(batch: int | str | None) -> None:
    """A free batch makes each row a sample with a batch axis of 1."""
    samples = read({"x": X}, spec(shape=(batch, 3, 4, 4)))
    assert len(samples) == 6
    assert samples[2]["x"].shape == (1, 3, 4, 4)
    assert np.array_equal(stacked(samples), X)
    assert np.array_equal(stacked(samples), X), "a second pass gives the same"
    assert not samples.synthetic
    assert (samples.description, samples.notes) == ("arrays", ())


def test_fixed_batch_takes_rows_together() -> None:
    """A fixed batch of 4 takes 4 rows; a note names those left over."""
    samples = read({"x": X}, spec(shape=(4, 3, 4, 4)))
    assert [feed["x"].shape for feed in samples] == [(4, 3, 4, 4)]
    assert samples.notes == ("rows that do not fill a batch of 4 are ignored",)
    assert "a batch takes 8 rows" in refuse({"x": X}, spec(shape=(8, 3, 4, 4)))


def test_complete_inputs_scalars_and_unknown_rank() -> None:
    """One rank more means complete inputs; an unknown rank takes rows."""
    assert read({"x": X[:, None]})[1]["x"].shape == (1, 3, 4, 4)
    assert np.array_equal(read({"x": [1.0, 2.0]}, spec(shape=()))[1]["x"], 2.0)
    assert read({"x": X}, spec(shape=None))[0]["x"].shape == (1, 3, 4, 4)
    assert read(X[:, 0, 0, 0], spec(shape=(None,)))[0]["x"].shape == (1,)


@pytest.mark.parametrize("shape", [(6, 3, 4, 5), (3, 4, 4), (), (2, 1, 3, 4, 5), (6, 4, 4, 3)])
def test_wrong_shape(shape: tuple[int, ...]) -> None:
    """The message has the array, its shape and the shape wanted."""
    message = refuse({"x": np.ones(shape, np.float32)})
    assert f"array 'x' has shape {list(shape)}, but input 'x' is [N, 3, 4, 4]" in message


def test_names() -> None:
    """A missing name is reported with those found, an extra one is a note."""
    message = refuse({"images": X, "y": X}, spec("image"))
    assert "no array named 'image'; found 'images', 'y' (rename 'images' to 'image', or" in message
    assert "name the arrays like" in refuse({"q": X})
    assert "found none" in refuse({})
    assert read({"x": X, "labels": object()}).notes == (
        "arrays not used, as no input has their name: 'labels'",
    )
    assert "no array named 'a', 'b'" in refuse({"arr_0": X}, spec("a"), spec("b"))


def test_single_input_takes_an_array_without_name() -> None:
    """An array, or one that numpy named, is the only input."""
    assert np.array_equal(stacked(read(X)), X)
    assert np.array_equal(stacked(read({"arr_0": X})), X)


def test_other_float_types_are_converted_with_a_note() -> None:
    """Doubles and halves become float32."""
    samples = read({"x": X.astype(np.float64)})
    assert samples[0]["x"].dtype == np.float32
    assert samples.notes == ("array 'x' is float64, read as float32",)


def test_pixels_are_not_scaled() -> None:
    """Integers for a float input are refused with the way out."""
    message = refuse({"x": np.zeros((2, 3, 4, 4), np.uint8)})
    assert "scaling is not guessed" in message
    assert "x.astype(np.float32)" in message


@pytest.mark.parametrize(
    ("values", "dtype", "fits"),
    [
        ([0, 255], "uint8", True),
        ([0, 256], "uint8", False),
        (np.array([-1], np.int8), "uint8", False),
        (np.array([2**63], np.uint64), "int64", False),
        ([0, 1], "bool", True),
        ([0, 2], "bool", False),
        ([True, False], "int64", True),
        (np.array([5], np.int64), "int64", True),
    ],
)
def test_integers_must_fit(values: Any, dtype: str, fits: bool) -> None:
    """Integers go into an integer input if it holds their values."""
    wanted = spec(shape=("N",), dtype=dtype)
    if fits:
        assert stacked(read({"x": values}, wanted)).tolist() == list(values)
    else:
        assert f"{dtype} cannot hold" in refuse({"x": values}, wanted)


def test_types_without_a_way() -> None:
    """Floats for integer inputs, text, and inputs that hold no numbers are refused."""
    assert "x.astype(np.int64)" in refuse({"x": [1.5]}, spec(shape=("N",), dtype="int64"))
    assert "are not numbers" in refuse({"x": ["a"]}, spec(shape=("N",)))
    assert "cannot be fed" in refuse({"x": [1]}, spec(shape=("N",), dtype="U4"))
    assert "rows of different shapes" in refuse({"x": [[1.0], [1.0, 2.0]]})


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_not_finite(bad: float) -> None:
    """The row with a value that float32 cannot hold is named."""
    values = np.zeros((100, 2))
    values[70, 1] = bad
    assert "array 'x': row 70 holds" in refuse({"x": values}, spec(shape=("N", 2)))


def test_numbers_of_samples() -> None:
    """All inputs need equally many samples, and at least one."""
    a, b = spec("a", ("N", 2)), spec("b", ("N", 2))
    message = refuse({"a": np.ones((3, 2)), "b": np.ones((2, 2))}, a, b)
    assert "different numbers of samples: 'a' 3, 'b' 2" in message
    assert "there are no samples" in refuse({"a": np.ones((0, 2))}, a)


def test_limit_spreads() -> None:
    """Fewer samples than there are come from the whole source."""
    samples = read({"x": np.arange(100.0)[:, None]}, spec(shape=("N", 1)), limit=4)
    assert (stacked(samples).ravel() // 25).tolist() == [0, 1, 2, 3]
    assert samples.description.endswith(", 4 of 100")
    assert not any("of 100" in note for note in samples.notes)


@given(st.integers(1, 300), st.integers(1, 300))
def test_spread_is_even(total: int, wanted: int) -> None:
    """One place is in each of as many equal runs, the same every time."""
    places, number = spread(total, wanted), min(total, wanted)
    assert len(places) == number
    for k, place in enumerate(places):
        assert k * total // number <= place < (k + 1) * total // number
    assert places == spread(total, wanted)


@pytest.mark.parametrize("period", [2, 3, 4])
def test_samples_that_alternate(period: int) -> None:
    """All kinds of samples are on both sides, and some among those chosen for a limit."""
    for total in range(8 + 2 * period, 129):
        samples = Samples(lambda _: {}, tuple(range(total)), "")
        for part in samples.split(max(8, total // 4)):
            assert len({k % period for k in part.indices}) == period, total
        limited = spread(total, total // period)
        assert len(limited) < 8 or len({k % period for k in limited}) > 1, total


@given(st.integers(1, 50), st.data())
def test_split_is_a_partition(total: int, data: st.DataObject) -> None:
    """Every sample is in one part, in order, and held out ones are as many as asked for."""
    held_out = data.draw(st.integers(0, total - 1))
    samples = read({"x": np.arange(float(total))[:, None]}, spec(shape=("N", 1)))
    kept, held = samples.split(held_out)
    assert len(held) == held_out
    assert sorted(kept.indices + held.indices) == list(range(total))
    assert list(kept.indices) == sorted(kept.indices)


def test_slices_and_impossible_splits() -> None:
    """A slice is fewer samples; at least one must be left to calibrate on."""
    samples = read({"x": X})
    assert np.array_equal(stacked(samples[1:3]), X[1:3])
    with pytest.raises(CalibrationError, match="arrays: cannot hold out 6 of 6"):
        samples.split(6)


def test_changing_a_sample_does_not_change_the_source() -> None:
    """Samples of the input's type share the memory of the source, which is still writable."""
    source = X.copy()
    samples = read({"x": source})
    with pytest.raises(ValueError, match="read-only"):
        samples[0]["x"][:] = 9
    source += 1
    assert np.array_equal(samples[0]["x"], X[:1] + 1)


def test_iterable_of_dicts() -> None:
    """Dicts of complete inputs are kept, also from a generator, up to the limit."""

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        for k in range(5):
            yield {"x": X[k : k + 1], "id": np.array(k)}

    samples = read(feeds(), limit=3)
    assert np.array_equal(stacked(samples), X[:3])
    assert np.array_equal(stacked(samples), X[:3])
    assert samples.notes == ("arrays not used, as no input has their name: 'id'",)
    assert read([{"x": X}], spec(shape=None))[0]["x"].shape == X.shape


def test_iterables_that_are_refused() -> None:
    """Other items, wrong shapes, and other sources are refused."""
    assert "expected a dict of arrays, not int" in refuse([1])
    assert "there are none" in refuse(iter([]))
    message = refuse([{"x": X[:1]}, {"x": X[0]}])
    assert "calibration sample 1: array 'x' has shape [3, 4, 4]" in message
    assert "int is no source" in refuse(3)


def test_model_without_inputs() -> None:
    """A model without inputs has one empty sample."""
    assert list(open_samples(None, (), Preprocess())) == [{}]


def test_preprocessing_is_not_for_arrays(tmp_path: Path) -> None:
    """Options for images are not applied to arrays, and a note says so."""
    np.save(tmp_path / "a.npy", X)
    for source in (X, [{"x": X[:1]}], tmp_path, tmp_path / "a.npy"):
        assert "arrays are used as they are" in read(source, preset="unit").notes[0]


def test_npz(tmp_path: Path) -> None:
    """An archive is read by name; the description has no directory."""
    np.savez_compressed(tmp_path / "data.npz", x=X, y=X)
    samples = read(str(tmp_path / "data.npz"))
    assert np.array_equal(stacked(samples), X)
    assert samples.description == "data.npz"
    assert samples.notes == ("arrays not used, as no input has their name: 'y'",)
    assert "data.npz: no array named 'z'" in refuse(tmp_path / "data.npz", spec("z"))


def test_npz_of_another_name(tmp_path: Path) -> None:
    """The only array that fits the input is taken, and that is said; of two, none is."""
    path = tmp_path / "data.npz"
    labels = np.arange(6)
    np.savez(path, images=X, y=labels, floats=labels.astype(np.float32))
    samples = read(path)
    assert np.array_equal(stacked(samples), X)
    assert "array 'images' is taken for input 'x'" in samples.notes
    np.savez(path, images=X, others=X)
    assert "no array named 'x'; found 'images', 'others'" in refuse(path)
    np.savez(path, images=X.astype(np.uint8))
    assert "no array named 'x'" in refuse(path)
    np.savez(path, x=X, other=X)
    two = read(path, spec(), spec("z"))
    assert set(two[0]) == {"x", "z"}
    assert "array 'other' is taken for input 'z'" in two.notes


def test_key_of_the_array(tmp_path: Path) -> None:
    """A key names the array of the only input, whatever else fits or has its name."""
    path = tmp_path / "data.npz"
    np.savez(path, x=X, images=X + 1)

    def taken(source: Any, key: str) -> Samples:
        return open_samples(source, (spec(),), Preprocess(preset="unit"), key=key)

    for source in (path, {"x": X, "images": X + 1}):
        samples = taken(source, "images")
        assert np.array_equal(stacked(samples), X + 1)
        assert "arrays not used, as no input has their name: 'x'" in samples.notes
        with pytest.raises(CalibrationError, match="no array named 'image'; found 'x', 'images'"):
            taken(source, "image")
    with pytest.raises(CalibrationError, match="one input, and this one has 'x', 'z'"):
        open_samples(path, (spec(), spec("z")), Preprocess(), key="images")
    Image.new("RGB", (4, 4)).save(tmp_path / "photo.png")
    samples = taken(tmp_path / "photo.png", "images")
    assert "--calibration-key is for arrays, images have none" in samples.notes


def test_npy_and_directories_of_parts(tmp_path: Path) -> None:
    """Files of a directory follow each other by name; others are ignored with a note."""
    for name, part in (("b", X[2:]), ("a", X[:2])):
        np.save(tmp_path / f"{name}.npy", part)
    assert np.array_equal(stacked(read(tmp_path / "b.npy")), X[2:])
    (tmp_path / "README").write_text("")
    (tmp_path / ".hidden").write_text("")
    samples = read(tmp_path)
    assert np.array_equal(stacked(samples), X)
    assert np.array_equal(samples[-1]["x"], X[5:])
    assert samples.description == tmp_path.name
    assert samples.notes == ("1 other file ignored",)


def test_directory_with_a_file_per_input(tmp_path: Path) -> None:
    """Files named like the inputs hold one input each."""
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X * 2)
    np.save(tmp_path / "c.npy", X)
    samples = read(tmp_path, spec("a"), spec("b"))
    assert np.array_equal(stacked(samples, "b"), X * 2)
    assert samples.notes == ("arrays not used, as no input has their name: 'c'",)
    assert "no array named 'd'" in refuse(tmp_path, spec("a"), spec("d"))


def test_current_directory_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory "." is described by its name."""
    np.save(tmp_path / "a.npy", X)
    monkeypatch.chdir(tmp_path)
    assert read(".").description == tmp_path.name


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Every damage is one line with the file and the cause."""
    good = tmp_path / "good.npz"
    np.savez(good, x=X)
    data = good.read_bytes()
    cases = {
        "empty.npz": (b"", "file is empty"),
        "text.npz": (b"hello, world", "not a valid .npz or .npy file"),
        "cut.npz": (data[: len(data) // 2], "damaged"),
        "flipped.npz": (data[:300] + b"????" + data[304:], "damaged"),
        "cut.npy": (b"\x93NUMPY\x01\x00", "damaged"),
    }
    for name, (content, cause) in cases.items():
        (tmp_path / name).write_bytes(content)
        message = refuse(tmp_path / name)
        assert name in message
        assert cause in message
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9, %d)}"
    (tmp_path / "huge.npy").write_bytes((header % 10**14).ljust(127) + b"\n")
    assert "huge.npy" in refuse(tmp_path / "huge.npy")
    np.save(tmp_path / "none.npy", X[:0])
    assert "none.npy: there are no samples" in refuse(tmp_path / "none.npy")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    assert "Python objects" in refuse(tmp_path / "objects.npz")


def test_array_larger_than_the_archive(tmp_path: Path) -> None:
    """An archive that claims more than it holds is refused in one line."""
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9, %d)}"
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("x.npy", (header % 10**15).ljust(127) + b"\n")
    message = refuse(tmp_path / "huge.npz")
    assert "huge.npz: damaged: 'x' of shape [9, 1000000000000000] takes" in message


def test_file_that_vanishes(tmp_path: Path) -> None:
    """A part that is gone when its turn comes is an error of its own file."""
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", X)
    samples = read(tmp_path)
    (tmp_path / "a.npy").unlink()
    with pytest.raises(CalibrationError, match=r"a\.npy: No such file"):
        list(samples)


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    """Missing, empty, mixed and unknown sources are told apart."""
    assert "no such file" in refuse(tmp_path / "no.npz")
    assert "no .npz, .npy" in refuse(tmp_path)
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "b.jpg").write_bytes(b"")
    assert "together" in refuse(tmp_path)
    (tmp_path / "c.csv").write_text("1")
    assert "not a source of samples" in refuse(tmp_path / "c.csv")


def test_zip_named_npy(tmp_path: Path) -> None:
    """An archive with the wrong suffix among files by input is refused in one line."""
    np.savez(tmp_path / "z.npz", q=X[:, :2])
    (tmp_path / "z.npz").rename(tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", X)
    assert "x.npy" in refuse(tmp_path / "x.npy")
    assert "not numbers" in refuse(tmp_path)


def test_two_dimensional_maps_stay_on_disk(tmp_path: Path) -> None:
    """An .npy file is mapped, and samples are plain arrays."""
    np.save(tmp_path / "a.npy", X)
    assert type(read(tmp_path / "a.npy")[0]["x"]) is np.ndarray
