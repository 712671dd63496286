"""Decoded images on disk: the same numbers, read from the image file once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from npuconv.config import Preprocess
from npuconv.errors import CalibrationError, OutputError
from npuconv.samples import InputSpec, decoded, images, open_samples

SPEC = InputSpec("x", np.dtype(np.float32), (1, 3, 8, 12))
UNIT = Preprocess(preset="unit")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three noisy images."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        pixels = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Which images were decoded."""
    seen: list[Path] = []
    decode = images._pixels

    def counted(file, plan):
        seen.append(file)
        return decode(file, plan)

    monkeypatch.setattr(images, "_pixels", counted)
    return seen


def feeds(photos, preprocess=UNIT, spec=SPEC, **keywords):
    return [feed[spec.name] for feed in open_samples(photos, [spec], preprocess, **keywords)]


def test_the_same_numbers_once(photos, tmp_path, count):
    """With and without, from the image and from the disk."""
    plain = feeds(photos)
    assert len(count) == 3
    for _ in range(2):
        found = feeds(photos, cache=tmp_path / "cache")
        assert all((a == b).all() for a, b in zip(plain, found, strict=True))
    assert len(count) == 6


def test_what_shares_pixels(photos, tmp_path, count):
    """Mean, deviation and layout come later; sizes and colours do not."""
    cache = tmp_path / "cache"
    feeds(photos, cache=cache)
    feeds(photos, Preprocess(preset="imagenet"), cache=cache)
    other = InputSpec("y", np.dtype(np.float32), (1, 8, 12, 3))
    feeds(photos, Preprocess(preset="signed", layout="nhwc"), other, cache=cache)
    assert len(count) == 3
    feeds(photos, Preprocess(preset="unit", color="bgr"), cache=cache)
    feeds(photos, Preprocess(preset="unit", resize=(8, 12)), cache=cache)
    assert len(count) == 9


def test_another_image_of_that_name(photos, tmp_path, count):
    """The content counts, not where it lies."""
    feeds(photos, cache=tmp_path / "cache")
    Image.new("RGB", (30, 20), (9, 9, 9)).save(photos / "0.png")
    (photos / "1.png").rename(photos / "4.png")
    (changed, *_) = feeds(photos, cache=tmp_path / "cache")
    assert np.unique(changed).size == 1
    assert len(count) == 4


def test_a_damaged_file_is_made_anew(photos, tmp_path, count):
    """What cannot be read, or is no image, is not trusted."""
    before = feeds(photos, cache=tmp_path / "cache")
    kept = sorted((tmp_path / "cache" / "images").glob("*.npy"))
    whole = kept[0].read_bytes()
    for damage in (whole[:8] + b"\x01" + whole[9:], whole.replace(b"'descr'", b"b'escr'")):
        kept[0].write_bytes(damage)
        feeds(photos, cache=tmp_path / "cache")
    kept[0].write_bytes(b"")
    kept[1].write_bytes(kept[1].read_bytes()[:100])
    np.save(kept[2], np.zeros(3))
    after = feeds(photos, cache=tmp_path / "cache")
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
    assert len(count) == 8


def test_the_size_is_checked_all_the_same(photos, tmp_path):
    """Pixels from the cache of a model that takes another size."""
    keys = Preprocess(preset="unit", resize=(8,))
    feeds(photos, keys, SPEC, cache=tmp_path)
    with pytest.raises(CalibrationError, match="images become 8x12"):
        feeds(photos, keys, InputSpec("x", np.dtype(np.float32), (1, 3, 8, 8)), cache=tmp_path)


def test_many_at_once(photos, tmp_path):
    """Whoever asks first decodes; the others wait for it."""
    kept = decoded.Decoded(tmp_path / "cache", "how")
    calls: list[int] = []

    def decode() -> decoded.Pixels:
        calls.append(1)
        return np.full((4, 4), 7, np.uint8)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: kept.get(photos / "0.png", decode), range(32)))
    assert len(calls) == 1
    assert all((one == 7).all() for one in found)


def test_the_folder_of_a_process(photos, tmp_path, count):
    """A worker says once where images are kept."""
    decoded.keep_in(tmp_path / "shared")
    try:
        feeds(photos)
        feeds(photos)
    finally:
        decoded.keep_in("")
    assert len(count) == 3
    feeds(photos)
    assert len(count) == 6


def test_a_folder_that_cannot_be_made(tmp_path):
    """Said with its name."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file: cannot be made"):
        decoded.Decoded(tmp_path / "file", "how")


def test_without_locks(photos, tmp_path, monkeypatch):
    """A system that has none decodes all the same."""
    monkeypatch.setitem(__import__("sys").modules, "fcntl", None)
    assert len(feeds(photos, cache=tmp_path / "cache")) == 3
