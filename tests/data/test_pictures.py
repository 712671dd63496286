"""Pictures for models without data."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from npuconv.config import Preprocess
from npuconv.data import InputSpec, Samples, open_samples, pictures
from npuconv.data.pictures import draw, image_layout
from npuconv.errors import CalibrationError

has_photographs = pytest.mark.skipif(
    importlib.util.find_spec("skimage") is None, reason="npuconv[photos] is not installed"
)


def picture(number: int, size: tuple[int, int], channels: int) -> np.ndarray:
    return draw((*size, channels), "nhwc", number)


@pytest.fixture(params=["photographs", "made"])
def either(request, monkeypatch):
    """Run with photographs, where they are installed, and without; nothing is kept."""
    monkeypatch.setattr(pictures, "MAX_KEPT_PIXELS", 0)
    if request.param == "made":
        monkeypatch.setattr(pictures, "folder", lambda: None)
    elif not pictures.folder():
        pytest.skip("npuconv[photos] is not installed")
    return request.param


@pytest.mark.parametrize(("size", "channels"), [((40, 64), 3), ((32, 32), 1), ((24, 20), 4)])
@pytest.mark.usefixtures("either")
def test_pixels(size, channels):
    """Pictures have the size, are within 0..255, and depend on the number alone."""
    first, again, other = (picture(k, size, channels) for k in (0, 0, 1))
    assert first.shape == (*size, channels)
    assert first.dtype == np.float32
    assert 0 <= first.min() < 60 < 180 < first.max() <= 255
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_kept_picture_is_the_drawn_one(monkeypatch):
    """A caller that changes its picture changes no other."""
    kept = picture(1, (24, 32), 3)
    kept[:] = 0
    kept = picture(1, (24, 32), 3)
    monkeypatch.setattr(pictures, "MAX_KEPT_PIXELS", 0)
    np.testing.assert_array_equal(kept, picture(1, (24, 32), 3))


@pytest.mark.usefixtures("either")
def test_neighbours_are_alike():
    """Most steps between neighbours are small and some are large, as in photographs."""
    steps = np.concatenate(
        [np.abs(np.diff(picture(k, (96, 96), 1)[..., 0], axis=1)).ravel() for k in range(6)]
    )
    assert np.median(steps) < 12
    assert steps.max() > 100


@pytest.mark.usefixtures("either")
def test_text_is_in_wide_pictures(monkeypatch):
    """Wide pictures show text."""
    with_text = picture(0, (32, 256), 3)
    monkeypatch.setattr(pictures, "_write", lambda *_: None)
    assert not np.array_equal(picture(0, (32, 256), 3), with_text)


@pytest.mark.usefixtures("either")
def test_the_fourth_channel_is_brightness():
    """A fourth channel is brightness, which is not constant."""
    found = picture(2, (48, 48), 4)
    np.testing.assert_allclose(found[..., 3], picture(2, (48, 48), 1)[..., 0], atol=1)


@has_photographs
def test_photographs_are_files_of_the_package():
    """All files are in the package, which is not imported."""
    where = pictures.folder()
    assert where is not None
    assert all((where / name).exists() for name in pictures._FILES)


def test_without_the_package(monkeypatch):
    """No package means no photographs, and no error."""
    monkeypatch.setattr(pictures, "find_spec", lambda _: None)
    monkeypatch.setattr(pictures, "folder", pictures.folder.__wrapped__)  # nothing is kept
    assert pictures.folder() is None
    assert not pictures.folder()


def made(
    shape: Any, dtype: str = "float32", *, limit: int = 512, seed: int = 0, **keys: Any
) -> Samples:
    """Return synthetic samples for one input x."""
    spec = InputSpec("x", np.dtype(dtype), shape)
    return open_samples(None, [spec], Preprocess(**keys), limit=limit, seed=seed)


def test_same_seed_same_numbers() -> None:
    """The seed decides, whatever the order of reading."""
    one, two = made((1, 3, 32, 32)), made((1, 3, 32, 32))
    assert np.array_equal(one[5]["x"], list(two)[5]["x"])
    assert not np.array_equal(one[5]["x"], one[6]["x"])
    assert not np.array_equal(one[5]["x"], made((1, 3, 32, 32), seed=1)[5]["x"])


def test_description() -> None:
    """The description says synthetic; there are 32 samples, or the limit."""
    samples = made((1, 4))
    assert samples.synthetic
    assert samples.description == "synthetic, seed 0"
    assert (len(samples), len(made((1, 4), limit=3))) == (32, 3)
    assert samples.split(4)[1].synthetic


@pytest.mark.parametrize(
    ("shape", "expected"),
    [(("N", 3, 24, 40), (1, 3, 24, 40)), ((2, 24, 40, 1), (2, 24, 40, 1))],
)
def test_images_fill_their_range(shape: Any, expected: tuple[int, ...]) -> None:
    """Images are within -1..1, spread over it, and have flat areas."""
    values = np.stack([feed["x"] for feed in made(shape)])
    assert values.shape[1:] == expected
    assert values.dtype == np.float32
    assert -1 <= values.min() < -0.9
    assert 0.9 < values.max() <= 1
    assert 0.3 < values.std() < 0.9


def test_images_follow_the_preprocessing() -> None:
    """A normalization that is given is used; grey ones get the mean of three."""
    unit = made((1, 3, 32, 32), preset="unit")[0]["x"]
    assert 0 <= unit.min() < unit.max() <= 1
    gray = made((1, 1, 32, 32), preset="imagenet")[0]["x"]
    assert -2.2 < gray.min() < -1 < 1 < gray.max() < 2.7


@pytest.mark.parametrize("shape", [(1, 100), (1, 16, 8, 8), (1, 3, 4, 4), (100,)])
def test_other_floats_are_normal(shape: tuple[int, ...]) -> None:
    """Inputs that are no images get mean 0 and deviation 1."""
    values = np.stack([feed["x"] for feed in made(shape)])
    assert abs(values.mean()) < 0.15
    assert 0.9 < values.std() < 1.1


def test_scalars() -> None:
    """An input of rank 0 gets a scalar of its type."""
    assert made(())[0]["x"].shape == ()
    assert made((), "int64")[0]["x"].dtype == np.int64


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_integers_are_zero_or_one(dtype: str) -> None:
    """Token numbers and masks are in every range."""
    values = made(("batch", 20), dtype)[0]["x"]
    assert values.dtype == dtype
    assert set(values.ravel().tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (("N", 3, "h", 8), r"input 'x': dimension 2 of \[N, 3, h, 8\] .*x=1,3,\?,8"),
        ((1, None), r"dimension 1 of \[1, \?\]"),
        (None, r"its rank is not fixed.*--input-shape x=\.\.\."),
    ],
)
def test_open_shapes(shape: Any, message: str) -> None:
    """An open dimension is an error that names the option to give."""
    with pytest.raises(CalibrationError, match=message):
        made(shape)


def test_text_inputs() -> None:
    """Inputs that hold no numbers cannot be made up."""
    with pytest.raises(CalibrationError, match="cannot make up"):
        made((1,), "U4")


@pytest.mark.parametrize(
    ("dtype", "keys", "ends"),
    [
        ("uint8", {}, (0, 255)),
        ("int32", {"preset": "raw"}, (0, 255)),
        ("int8", {}, (-128, 127)),
        ("int16", {"mean": (128.0,), "std": (1.0,)}, (-128, 127)),
    ],
)
@pytest.mark.parametrize("shape", [(1, 3, 32, 32), (1, 32, 32, 3)])
def test_integer_images(
    dtype: str, keys: dict[str, Any], ends: tuple[int, int], shape: Any
) -> None:
    """Integers that the model computes with are whole pixels."""
    pixels = InputSpec("x", np.dtype(dtype), shape, is_quantity=True)
    samples = open_samples(None, [pixels], Preprocess(**keys))
    values = np.concatenate([samples[k]["x"] for k in range(8)])
    assert values.dtype == dtype
    assert ends[0] <= values.min() < values.max() <= ends[1]
    assert np.ptp(values.astype(int)) > 200
    assert samples.synthetic != bool(pictures.folder())


@pytest.mark.parametrize("keys", [{"preset": "unit"}, {"preset": "imagenet"}, {"preset": "signed"}])
def test_integer_images_that_would_be_fractions(keys: dict[str, Any]) -> None:
    """Integers cannot be normalized otherwise."""
    pixels = InputSpec("x", np.dtype("uint8"), (1, 3, 32, 32), is_quantity=True)
    with pytest.raises(CalibrationError, match="'x' is uint8, so its pixels are whole numbers"):
        open_samples(None, [pixels], Preprocess(**keys))


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((1, 3, 8, 8), "nchw"), ((1, 8, 8, 1), "nhwc"), ((1, 4, 9, 9), "nchw"),
     ((1, 16, 8, 8), None), ((1, 3, 8), None), ((1, 8, 8, 3, 1), None), ((1, 3, 1, 8), None),
     ((1, 1, 8, 40), None)],
)  # fmt: skip
def test_images_have_one_three_or_four_channels(shape, layout):
    """Images have 1, 3 or 4 channels, first or last, beside two longer axes."""
    assert image_layout(InputSpec("x", np.dtype(np.float32), shape)) == layout
