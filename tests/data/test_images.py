"""Images: decoding, geometry, normalization, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuconv import limits
from npuconv.config import Preprocess
from npuconv.data import InputSpec, Samples, open_samples
from npuconv.errors import CalibrationError


def spec(shape: Any = (1, 3, 8, 8), dtype: str = "float32") -> InputSpec:
    """Return an image input."""
    return InputSpec("image", np.dtype(dtype), shape)


def read(source: Any, *inputs: InputSpec, **keys: Any) -> Samples:
    """Open samples of images, 0..255 by default."""
    keys = keys if {"preset", "mean", "std"} & keys.keys() else {"preset": "raw", **keys}
    return open_samples(source, inputs or (spec(),), Preprocess(**keys))


def refuse(source: Any, *inputs: InputSpec, **keys: Any) -> str:
    """Return the message with which images are refused."""
    with pytest.raises(CalibrationError) as caught:
        list(read(source, *inputs, **keys))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def save(path: Path, size: tuple[int, int] = (8, 8), color: Any = (10, 20, 30)) -> Path:
    """Write an image of one colour; size is height, width."""
    Image.new("RGB", size[::-1], color).save(path)
    return path


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Return an 8 x 8 image of colour 10, 20, 30."""
    return save(tmp_path / "photo.png")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"preset": "raw"}, (10, 20, 30)),
        ({"preset": "unit"}, (10 / 255, 20 / 255, 30 / 255)),
        ({"preset": "signed"}, (-117.5 / 127.5, -107.5 / 127.5, -97.5 / 127.5)),
        (
            {"preset": "imagenet"},
            ((10 - 123.675) / 58.395, (20 - 116.28) / 57.12, (30 - 103.53) / 57.375),
        ),
        (
            {"preset": "imagenet", "color": "bgr"},
            ((30 - 103.53) / 57.375, (20 - 116.28) / 57.12, (10 - 123.675) / 58.395),
        ),
        ({"preset": "unit", "mean": (10,)}, (0, 10 / 255, 20 / 255)),
        ({"preset": "imagenet", "std": (1,), "mean": (0, 0, 10)}, (10, 20, 20)),
        ({"mean": (1, 2, 3), "std": (2,), "color": "bgr"}, (14.5, 9, 3.5)),
    ],
)
def test_normalization(photo: Path, keys: dict[str, Any], expected: tuple[float, ...]) -> None:
    """Presets and explicit values, in the order of the channels."""
    feed = read(photo, **keys)[0]["image"]
    assert feed.shape == (1, 3, 8, 8)
    assert feed.dtype == np.float32
    assert feed[0, :, 3, 3] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_normalization_is_not_guessed(photo: Path) -> None:
    """A missing preset or value lists the presets."""
    assert "unit|signed|imagenet|raw" in refuse(photo, preset=None)
    assert "--preprocess none is for runs without --calibration" in refuse(photo, preset="none")
    assert "--mean without --std" in refuse(photo, mean=(0,))
    assert "--std without --mean" in refuse(photo, std=(1,))
    assert "mean has 2 values for 3" in refuse(photo, mean=(0, 0), std=(1,))
    assert "std has 2 values for 3" in refuse(photo, mean=(0,), std=(1, 1))


def test_layout_gray_and_half(photo: Path) -> None:
    """Channels last, one channel, and float16 inputs."""
    assert read(photo, spec((1, 8, 8, 3)), layout="nhwc")[0]["image"][0, 0, 0].tolist() == [
        10,
        20,
        30,
    ]
    gray = read(photo, spec((1, 1, 8, 8)), color="gray")[0]["image"]
    assert gray.shape == (1, 1, 8, 8)
    assert gray[0, 0, 0, 0] == 18
    assert read(photo, spec(dtype="float16"))[0]["image"].dtype == np.float16


def test_channels_that_do_not_fit(photo: Path) -> None:
    """The message says which option to try."""
    assert "--input-layout nhwc" in refuse(photo, spec((1, 8, 8, 3)))
    assert "--input-layout nchw" in refuse(photo, layout="nhwc")
    assert "--color gray" in refuse(photo, spec((1, 1, 8, 8)))
    assert "--color rgb" in refuse(photo, color="gray")
    assert ".npz" in refuse(photo, spec((1, 5, 8, 8)))


@pytest.mark.parametrize(
    "inputs",
    [
        (spec(), spec()),
        (spec((1, 10)),),
        (spec(dtype="int64"),),
        (spec(None),),
    ],
)
def test_models_that_do_not_take_images(photo: Path, inputs: tuple[InputSpec, ...]) -> None:
    """Images need one 4-dimensional float input."""
    assert "one 4-dimensional float input" in refuse(photo, *inputs)


def test_directory_sorted_with_note(tmp_path: Path) -> None:
    """Images of a directory come by name and are fitted to the input with a note."""
    for k, name in enumerate(["c.bmp", "a.PNG", "b.jpeg"]):
        save(tmp_path / name, (20, 30 + k), (k * 100,) * 3)
    samples = read(tmp_path)
    assert [round(float(feed["image"].mean()), -1) for feed in samples] == [100, 200, 0]
    assert samples.description == f"{tmp_path.name}, raw"
    assert samples.notes == (
        "images were scaled to cover 8x8 and cropped at the centre: if training did otherwise,"
        " give --resize and --crop",
    )


def test_batches(tmp_path: Path) -> None:
    """A fixed batch takes that many images."""
    for k in range(5):
        save(tmp_path / f"{k}.png")
    samples = read(tmp_path, spec((2, 3, 8, 8)))
    assert [feed["image"].shape for feed in samples] == [(2, 3, 8, 8)] * 2
    assert "do not fill a batch of 2" in samples.notes[-1]
    assert "5 images do not fill a batch of 6" in refuse(tmp_path, spec((6, 3, 8, 8)))


def test_resize_and_crop(tmp_path: Path) -> None:
    """One number is the short side, two are exact, and the crop is at the centre."""
    path = tmp_path / "wide.png"
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 200
    Image.fromarray(pixels).save(path)
    free = spec(("N", 3, None, None))
    assert read(path, free, resize=(6, 4))[0]["image"].shape == (1, 3, 6, 4)
    assert read(path, free, resize=(20,), crop=(8, 4))[0]["image"].shape == (1, 3, 8, 4)
    assert read(path, spec((1, 3, 5, 15)), resize=(5,))[0]["image"].shape == (1, 3, 5, 15)
    assert np.all(read(path, free, crop=(10, 10))[0]["image"] == 200)
    assert np.all(read(path, spec((1, 3, 10, 10)))[0]["image"] == 200)


def test_sizes_that_do_not_fit(tmp_path: Path) -> None:
    """The message names the option."""
    path = save(tmp_path / "a.png", (10, 20))
    free = spec((1, 3, "h", "w"))
    assert "images become 4x4, but input 'image' is [1, 3, 8, 8] (give --resize" in refuse(
        path, resize=(4, 4)
    )
    assert "a.png: images become 8x16" in refuse(path, resize=(8,))
    assert "10x20 is smaller than the crop 12x12 (give --resize)" in refuse(
        path, free, crop=(12, 12)
    )
    assert "--input-shape image=" in refuse(path, free)
    assert "--resize HEIGHT,WIDTH" in refuse(path, free, resize=(8,))
    for keys in ({"resize": (1, 2, 3)}, {"resize": (0,)}, {"crop": (0, 1)}):
        assert "one or two numbers above 0" in refuse(path, free, **keys)


def test_open_width_needs_a_crop(tmp_path: Path) -> None:
    """A short side alone does not make images of one size."""
    save(tmp_path / "a.png", (8, 8))
    save(tmp_path / "b.png", (8, 16))
    message = refuse(tmp_path, spec((2, 3, 8, "w")), resize=(8,), crop=None)
    assert "--resize HEIGHT,WIDTH" in message


def test_exif_orientation(tmp_path: Path) -> None:
    """A photograph taken on its side is turned upright."""
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif, quality=100)
    turned = read(tmp_path, spec((1, 3, 16, 8)), crop=(16, 8))[0]["image"][0, 0]
    assert turned[:6].min() > 200
    assert turned[-6:].max() < 50


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "LA"])
def test_modes_become_rgb(tmp_path: Path, mode: str) -> None:
    """Gray, palette, transparent and print images become three channels."""
    image = Image.new("RGB", (8, 8), (255, 255, 255)).convert(mode)
    image.save(tmp_path / ("a.jpg" if mode == "CMYK" else "a.png"))
    assert np.all(read(tmp_path)[0]["image"] >= 254)


def test_deep_images_are_refused(tmp_path: Path) -> None:
    """Sixteen bits would be clipped and not scaled."""
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(tmp_path / "a.png")
    assert "more than 8 bits" in refuse(tmp_path)


def test_files_that_are_no_images(tmp_path: Path) -> None:
    """Text, nothing, and half an image are named."""
    path = tmp_path / "a.jpg"
    path.write_text("hello")
    assert "a.jpg: not an image" in refuse(tmp_path)
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    assert "a.jpg: image file is truncated" in refuse(tmp_path)


def test_decompression_bombs(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image beyond Pillow's limit is refused."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert "decompression bombs" in refuse(photo)


def test_too_many_pixels(photo: Path) -> None:
    """The message names the limit and the flag that raises it."""
    with limits.applied(limits.Limits(image_pixels=10)):
        text = refuse(photo)
    assert "over 10" in text
    assert "--max-image-pixels" in text
    with (
        Image.open(photo) as image,
        limits.applied(limits.Limits(image_pixels=image.width * image.height)),
    ):
        assert len(read(photo)) == 1


def test_lists(tmp_path: Path) -> None:
    """A list names images relative to itself, with comments and empty lines."""
    (tmp_path / "sub").mkdir()
    save(tmp_path / "sub" / "b.png", color=(9, 9, 9))
    save(tmp_path / "a.png", color=(5, 5, 5))
    path = tmp_path / "list.txt"
    path.write_text("# images\n\nsub/b.png\na.png\n")
    samples = read(path)
    assert [feed["image"].max() for feed in samples] == [9, 5]
    assert samples.description == "list.txt, raw"
    path.write_text("a.png\nno.png\n")
    assert "list.txt:2: no such file: no.png" in refuse(path)
    path.write_text("# nothing\n")
    assert "the list is empty" in refuse(path)
    path.write_bytes(b"\xff\xfe\xff")
    assert "not a UTF-8 text file" in refuse(path)
    assert "No such file" in refuse(tmp_path / "no.txt")


def test_images_are_read_when_needed(tmp_path: Path) -> None:
    """Opening looks at headers only, and a second pass reads again."""
    save(tmp_path / "a.png")
    samples = read(tmp_path)
    save(tmp_path / "a.png", color=(1, 1, 1))
    assert [next(iter(samples))["image"].max() for _ in range(2)] == [1, 1]


SPEC = InputSpec("x", np.dtype(np.float32), (1, 3, 8, 12))
UNIT = Preprocess(preset="unit")


@pytest.mark.parametrize("keys", [{}, {"preset": "raw"}])
def test_integer_pixels(tmp_path: Path, keys: dict[str, Any]) -> None:
    """Integer pixels need no normalization, and take no other."""
    photo = save(tmp_path / "p.png")
    pixels = InputSpec("image", np.dtype("uint8"), (1, 3, 8, 8), is_quantity=True)
    values = open_samples(photo, [pixels], Preprocess(**keys))[0]["image"]
    assert values.dtype == np.uint8
    assert values[0, :, 0, 0].tolist() == [10, 20, 30]
    assert "whole numbers" in refuse(photo, pixels, preset="unit")
