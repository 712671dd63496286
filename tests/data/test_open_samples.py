"""Mistakes in the samples that users give, and the message for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import npuconv
from npuconv.config import Preprocess
from npuconv.data import open_samples
from npuconv.data.samples import InputSpec
from npuconv.errors import CalibrationError
from support.builders import Net

G = np.random.default_rng(0).normal(size=(8, 3, 16, 16)).astype(np.float32)
MODEL = Net(image=(1, 3, 16, 16)).conv("image", (4, 3, 3, 3)).model()
LAST = Net(image=(1, 16, 16, 3)).op("Transpose", perm=[0, 3, 1, 2]).conv("", (4, 3, 3, 3)).model()
FOURS = Net(image=(4, 3, 16, 16)).conv("image", (4, 3, 3, 3)).model()


def two() -> Any:
    """Return a model with inputs a and b."""
    net = Net(a=(1, 3, 8, 8), b=(1, 3, 8, 8)).conv("a", (4, 3, 3, 3), to="left")
    return net.conv("b", (4, 3, 3, 3), to="right").op("Add", "left", "right").model()


def refuse(source: Any, model: Any = MODEL, **keys: Any) -> str:
    """Return the message with which convert refuses samples."""
    with pytest.raises(CalibrationError) as caught:
        npuconv.convert(model, calibration=source, ignore=["OPS"], **keys)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def spoilt(value: float) -> np.ndarray:
    """Return doubles with one value replaced."""
    wide = G.astype(np.float64)
    wide[5, 1, 2, 3] = value
    return wide


def ragged() -> np.ndarray:
    """Return images of two sizes, as numpy keeps them."""
    found = np.empty(2, object)
    found[0], found[1] = G[0], G[1][:, :5]
    return found


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (G[:, :, :9], ["shape [8, 3, 9, 16]", "[1, 3, 16, 16]", "first axis counts samples"]),
        (G.transpose(0, 2, 3, 1), ["channels come last", "x.transpose(0, 3, 1, 2)"]),
        (G[0], ["one sample without a batch axis", "x[None]"]),
        (G.reshape(8, -1), ["x.reshape(-1, 3, 16, 16)"]),
        (G.reshape(4, 2, 3, 16, 16), ["x.reshape(-1, 3, 16, 16)"]),
        (G.astype(np.uint8), ["is uint8", "is float32", "scaling is not guessed", "astype"]),
        (np.full(G.shape, 10**18), ["is int64", "scaling is not guessed"]),
        (G > 0, ["is bool"]),
        (G[:0], ["there are no samples"]),
        (spoilt(np.nan), ["row 5 holds NaN or infinity"]),
        (spoilt(np.inf), ["row 5 holds NaN or infinity"]),
        (spoilt(1e300), ["row 5 holds values beyond float32"]),
        (G.astype(np.complex64), ["type complex64 are not numbers"]),
        (["a.png", "b.png"], ["are not numbers"]),
        ([[1, 2], [3]], ["rows of different shapes"]),
        (None, ["values of type NoneType are not numbers"]),
    ],
)
def test_arrays(array: Any, words: list[str]) -> None:
    """Arrays with wrong names, shapes, types or values are refused."""
    message = refuse({"image": array})
    assert "array 'image'" in message or "no samples" in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"img": G}, ["no array named 'image'", "found 'img'", "rename 'img' to 'image'"]),
        ({0: G}, ["no array named 'image'", "found '0'"]),
        ({}, ["found none"]),
        ([], ["there are none"]),
        (iter(()), ["there are none"]),
        ([G[:1], G[1:2]], ["sample 0", "not ndarray", "give {'image': array} for each sample"]),
        (((x, 0) for x in G), ["sample 0", "not tuple"]),
        (["a.png"], ["not str", ".txt file that lists them"]),
        ([{"image": G[:1]}, {"img": G[:1]}], ["sample 1", "rename 'img' to 'image'"]),
        ([{"image": G[0]}], ["sample 0", "x[None]"]),
        ([{"image": G}], ["sample 0", "each dict is one complete input"]),
        (b"photos", ["bytes is no source of samples"]),
        (5, ["int is no source of samples"]),
        ("", ["an empty path"]),
        ("no/such/folder", ["no such file or directory"]),
    ],
)
def test_other_things(source: Any, words: list[str]) -> None:
    """Values that are no dict of arrays are refused."""
    message = refuse(source)
    assert all(word in message for word in words), message


def test_other_models() -> None:
    """Models with channels last, two inputs or a fixed batch get their own hints."""
    assert "channels come first: give x.transpose(0, 2, 3, 1)" in refuse({"image": G}, LAST)
    few = {"a": G[:4, :, :8, :8], "b": G[:3, :, :8, :8]}
    assert "different numbers of samples: 'a' 4, 'b' 3" in refuse(few, two())
    assert "no array named 'b'" in refuse({"a": few["a"]}, two())
    assert "there are no samples; a batch takes 4 rows" in refuse({"image": G[:3]}, FOURS)


def test_files(tmp_path: Path) -> None:
    """Every message begins with the file."""
    np.savez(tmp_path / "objects.npz", image=ragged())
    np.save(tmp_path / "objects.npy", ragged())
    np.save(tmp_path / "plain.npy", G)
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "weights.pt").write_text("x")
    (tmp_path / "list.txt").write_text("a.png\n")
    (tmp_path / "empty").mkdir()
    cases = {
        "objects.npz": "Python objects, which are not read: are all samples of one shape?",
        "objects.npy": "Python objects, which are not read: are all samples of one shape?",
        "text.npz": "not a valid .npz or .npy file",
        "weights.pt": "not a source of samples",
        "list.txt": "no such file: a.png",
        "empty": "no .npz, .npy, .jpg, .jpeg, .png or .bmp file in it",
    }
    for name, words in cases.items():
        message = refuse(str(tmp_path / name))
        assert str(tmp_path / name) in message
        assert words in message
    assert "np.savez(file, a=..., b=...)" in refuse(str(tmp_path / "plain.npy"), two())


def test_images(tmp_path: Path) -> None:
    """Damaged images, a missing normalization and wrong colours are refused."""
    for k in range(5):
        Image.new("RGB", (20, 24), (10 * k, 0, 0)).save(tmp_path / f"{k}.png")
    folder, unit = str(tmp_path), {"preset": "unit"}
    assert "--preprocess unit|signed|imagenet|raw" in refuse(folder)
    assert "--mean without --std" in refuse(folder, preprocess={"mean": [0]})
    assert "try --color rgb" in refuse(folder, preprocess={**unit, "color": "gray"})
    gray = Net(image=(1, 1, 16, 16)).conv("image", (4, 1, 3, 3)).model()
    assert "try --color gray" in refuse(folder, gray, preprocess=unit)
    both = {"preset": "imagenet", "color": "gray"}
    assert "of --preprocess imagenet has 3 values for 1" in refuse(folder, gray, preprocess=both)
    assert "try --input-layout nhwc" in refuse(folder, LAST, preprocess=unit)
    whole = (tmp_path / "3.png").read_bytes()
    (tmp_path / "3.png").write_bytes(whole[: len(whole) * 3 // 4])
    message = refuse(folder, preprocess=unit)
    assert "3.png" in message
    assert "remove the file" in message


def test_what_is_taken() -> None:
    """Other ways to give the same samples are accepted."""
    rows = [{"image": x[None]} for x in G]
    sources: list[Any] = [{"image": G}, G, rows, iter(rows), {"image": G.tolist()}, [*rows]]
    used = [npuconv.convert(MODEL, calibration=s).report.quantization for s in sources]
    scales = [[t.scale for t in one.tensors] for one in used if one]
    assert all(one == scales[0] for one in scales)
    assert npuconv.convert(MODEL, calibration=G[:1]).report.accuracy is not None


def test_one_sample_is_few() -> None:
    """One sample leaves none to hold out."""
    warnings = npuconv.convert(MODEL, calibration=G[:1]).report.summary.warnings
    assert any("too few samples to keep some apart" in text for text in warnings)


def test_a_mistake_in_a_generator_is_its_own() -> None:
    """An error of the user's generator is raised as it is."""
    with pytest.raises(ZeroDivisionError):
        npuconv.convert(MODEL, calibration=(1 / 0 for _ in range(2)))


def test_a_part_of_a_file_is_described(tmp_path):
    """The description counts the samples that are used, and no warning does."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones((9, 2), np.float32))
    spec = InputSpec("x", np.dtype(np.float32), ("N", 2))
    found = open_samples(path, [spec], Preprocess(), limit=4)
    assert (found.description, found.notes) == ("a.npz, 4 of 9", ())
    assert open_samples(path, [spec], Preprocess(), limit=9).description == "a.npz"
