"""Arrays of an .npz, read row by row: equal to the whole array, with bounded memory."""

from __future__ import annotations

import gc
import io
import struct
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npuconv.config import Preprocess
from npuconv.data import InputSpec, Samples, open_samples
from npuconv.data import archives as archive
from npuconv.data import arrays as checked
from npuconv.data.archives import Archive, npz
from npuconv.errors import CalibrationError

X = np.random.default_rng(0).normal(size=(24, 3, 4, 4)).astype(np.float32)
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
SPEC = InputSpec("x", np.dtype("float32"), ("N", 3, 4, 4))


def pack(path: Path, kind: int = zipfile.ZIP_DEFLATED, **arrays: Any) -> Path:
    """Return an archive of arrays, or of the bytes of members."""
    with zipfile.ZipFile(path, "w", kind) as file:
        for name, array in arrays.items():
            stream = io.BytesIO(array if isinstance(array, bytes) else b"")
            if not isinstance(array, bytes):
                np.save(stream, array)
            file.writestr(f"{name}.npy", stream.getvalue())
    return path


def read(source: Any, spec: InputSpec = SPEC, limit: int = 512) -> Samples:
    """Open the samples of a source."""
    return open_samples(source, (spec,), Preprocess(), limit=limit)


def refuse(path: Path, spec: InputSpec = SPEC) -> str:
    """Return the message with which a file is refused."""
    with pytest.raises(CalibrationError) as caught:
        list(read(path, spec))
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def member(shape: str, data: bytes = b"", descr: str = "<f4") -> bytes:
    """Return an .npy whose header holds the given values."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}"
    return b"\x93NUMPY\x01\x00v\x00" + text.encode().ljust(117) + b"\n" + data


def same(left: Samples, right: Samples) -> None:
    """Assert equal samples, in the same order."""
    assert len(left) == len(right)
    assert left.indices == right.indices
    for a, b in zip(left, right, strict=True):
        assert a["x"].dtype == b["x"].dtype
        assert np.array_equal(a["x"], b["x"])


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set sizes so small that every array is mapped, and checked in several steps."""
    monkeypatch.setattr(archive, "HELD_BYTES", 0)
    monkeypatch.setattr(checked, "PIECE_BYTES", 700)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_samples_as_from_an_array(tmp_path: Path, kind: int) -> None:
    """Samples equal those of the array: all, some, split, and read twice."""
    path = pack(tmp_path / "a.npz", kind, x=X, y=X)
    assert isinstance(Archive(path)["x"], np.memmap)
    for limit in (512, 7, 1):
        ours, theirs = read(path, limit=limit), read({"x": X, "y": X}, limit=limit)
        same(ours, theirs)
        same(ours, theirs)
    same(ours := read(path), theirs := read({"x": X}))
    same(ours[:5], theirs[:5])
    same(ours[::-1], theirs[::-1])
    for left, right in zip(ours.split(5), theirs.split(5), strict=True):
        same(left, right)


def test_no_file_stays_open(tmp_path: Path) -> None:
    """An archive holds no open file, whether its array could be read or not."""
    good = Archive(pack(tmp_path / "good.npz", x=X))
    bad = Archive(pack(tmp_path / "bad.npz", x=b"no array"))
    assert good.peek("x").shape == X.shape
    assert good["x"].shape == X.shape
    with pytest.raises(CalibrationError):
        bad["x"]
    assert {good.file, bad.file}.isdisjoint(Path(f.path) for f in psutil.Process().open_files())


@settings(suppress_health_check=UNCHECKED, max_examples=40)
@given(st.lists(st.integers(0, 23), max_size=12), st.sampled_from(KINDS[:2]))
def test_in_any_order(tmp_path: Path, order: list[int], kind: int) -> None:
    """The order of reading does not matter."""
    rows = Archive(pack(tmp_path / f"{kind}.npz", kind, x=X))["x"]
    for k in order:
        assert np.array_equal(rows[k], X[k])
        assert np.array_equal(rows[k : k + 3], X[k : k + 3])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0, dtype=">f8"),
        np.asfortranarray(np.arange(12, dtype=np.float32).reshape(4, 3)),
        np.arange(6, dtype=np.int16),
        np.array([True, False]),
        np.zeros((3, 0), np.float32),
    ],
)
def test_kinds_of_arrays(tmp_path: Path, array: np.ndarray) -> None:
    """Orders of bytes and axes, integers, flags, and empty rows are supported."""
    wanted = np.dtype("float32") if array.dtype.kind == "f" else array.dtype
    spec = InputSpec("x", wanted, ("N", *array.shape[1:]))
    same(read(pack(tmp_path / "a.npz", x=array), spec), read({"x": array}, spec))


def test_several_threads(tmp_path: Path) -> None:
    """Several threads can read one file."""
    for kind in KINDS[:2]:
        samples = read(pack(tmp_path / f"{kind}.npz", kind, x=X))
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(samples.__getitem__, [*range(24)] * 4))
        assert np.array_equal(np.concatenate([f["x"] for f in found]), np.concatenate([X] * 4))


@pytest.mark.parametrize("kind", KINDS[:2])
def test_only_some_rows_are_held(
    tmp_path: Path, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not grow with the number of rows."""
    monkeypatch.undo()
    monkeypatch.setattr(archive, "HELD_BYTES", 2**20)
    monkeypatch.setattr(checked, "PIECE_BYTES", 2**16)
    spec = InputSpec("x", np.dtype("float32"), ("N", 2**14))
    path = pack(tmp_path / "a.npz", kind, x=np.zeros((256, 2**14), np.float32))
    gc.collect()
    tracemalloc.start()
    try:
        assert sum(1 for _ in read(path, spec)) == 256
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**21, "the array takes 2**24"


def test_no_archive(tmp_path: Path) -> None:
    """The start of an archive alone is none."""
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04")
    assert "not a zip file" in refuse(tmp_path / "b.npz")


def test_an_empty_archive(tmp_path: Path) -> None:
    """An archive without arrays is refused."""
    assert "found none" in refuse(pack(tmp_path / "a.npz"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (member("(9, 10000000000000000)"), "takes 360000000000000128 bytes, 128 are there"),
        (member("(2, 3, 4, 4)", bytes(383)), "takes 512 bytes, 511 are there"),
        (member("(-1, 3, 4, 4)"), "cannot have the shape"),
        (member(f"({10**30}, 0)"), "cannot have the shape"),
        (member("(2,)", bytes(16), "|O"), "Python objects"),
        (member("(2, 3)", bytes(6), "|S1"), "not numbers"),
        (member("(2, 3, 4, 4"), "damaged"),
        (member("(2,)", bytes(16), ",f4"), "damaged"),
        (member("()", bytes(4)), "has shape []"),
        (b"\x93NUMPY\x07\x00", "damaged"),
        (b"just text", "damaged"),
        (b"", "damaged"),
    ],
)
def test_members_that_lie(tmp_path: Path, content: bytes, words: str) -> None:
    """A header that does not fit the data is refused before anything is read."""
    for kind in KINDS[:2]:
        assert words in refuse(pack(tmp_path / "a.npz", kind, x=content))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("kind", KINDS[:2])
def test_the_sum_is_checked(tmp_path: Path, kind: int, dtype: str) -> None:
    """The checksum is tested, also where every value would do."""
    numbers = np.random.default_rng(1).integers(-9, 9, (64, 64)).astype(dtype)
    path = pack(tmp_path / "a.npz", kind, x=numbers)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert "damaged" in refuse(path, InputSpec("x", np.dtype(dtype), ("N", 64)))


def _directory(data: bytes, place: int, number: int) -> bytes:
    """Return the archive with a number of its directory changed."""
    start = data.index(b"PK\x01\x02") + place
    return data[:start] + struct.pack("<I", number) + data[start + 4 :]


def test_a_directory_that_lies(tmp_path: Path) -> None:
    """Wrong sizes and checksums in the directory are refused."""
    kept = pack(tmp_path / "a.npz", x=member("(99, 3, 4, 4)", bytes(X.nbytes))).read_bytes()
    (tmp_path / "a.npz").write_bytes(_directory(kept, 24, 2**31))
    assert "times as large as in the file" in refuse(tmp_path / "a.npz")
    (tmp_path / "a.npz").write_bytes(_directory(kept, 24, 4000))
    assert "damaged" in refuse(tmp_path / "a.npz")


def test_an_array_larger_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array larger than the memory is an error of one line."""

    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(archive.np, "memmap", full)
    assert "larger than the memory" in refuse(pack(tmp_path / "a.npz", x=X))


def test_encrypted(tmp_path: Path) -> None:
    """Encrypted archives are refused."""
    path = pack(tmp_path / "a.npz", x=X)
    data = bytearray(path.read_bytes())
    for place in (data.index(b"PK\x03\x04") + 6, data.index(b"PK\x01\x02") + 8):
        data[place] |= 1
    path.write_bytes(data)
    assert "encrypted" in refuse(path)


@settings(suppress_health_check=UNCHECKED, max_examples=150)
@given(st.integers(0, 2000), st.integers(1, 255), st.booleans())
def test_any_damage_is_reported(tmp_path: Path, place: int, change: int, compress: bool) -> None:
    """Any changed byte is an error of the file, or does not change the values."""
    path = pack(tmp_path / "a.npz", KINDS[compress], x=X[:3])
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= change
    path.write_bytes(data)
    with suppress(CalibrationError):
        assert np.array_equal(np.concatenate([feed["x"] for feed in read(path)]), X[:3])


def test_what_is_written_is_read_back():
    """Scalars and arrays that do not lie in one piece included; the order does not matter."""
    wide = np.arange(12, dtype=np.int8).reshape(3, 4)
    arrays = {"b": wide.T, "a": np.asarray(0.5, np.float32)}
    data = npz(arrays)
    assert data == npz(dict(reversed(arrays.items())))
    with np.load(io.BytesIO(data)) as found:
        assert found.files == ["a", "b"]
        assert found["a"].shape == ()
        np.testing.assert_array_equal(found["b"], wide.T)
