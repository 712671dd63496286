"""Samples from image files: decoded, resized, cropped and normalized image by image."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npuconv import limits
from npuconv.amounts import count
from npuconv.config import Preprocess
from npuconv.data.normalizations import Floats, mean_and_std, normalization_of
from npuconv.data.sample_files import check_ordinary
from npuconv.data.samples import Feed, InputSpec, Samples, choose
from npuconv.errors import CalibrationError
from npuconv.lazy import Image, ImageOps
from npuconv.records import dataclass, replace

Pixels = NDArray[np.uint8]  # [H,W] or [H,W,C]
# Pillow raises these, and ``Image.DecompressionBombError``.
_UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, struct.error)


@dataclass(frozen=True)
class ImagePlan:
    """Conversion of an image file to one item of a batch."""

    spec: InputSpec  # the input of the model
    keys: Preprocess  # options of the user
    size: tuple[int | None, int | None]  # height and width of the input; None: not fixed
    mean: Floats  # float32 [1] or [C], in pixel units
    std: Floats  # float32 [1] or [C], in pixel units

    @property
    def fits(self) -> bool:
        """True if images are scaled to cover the input and cropped, by default."""
        return self.keys.resize is None and self.keys.crop is None


def open_images(
    files: Sequence[Path],
    label: str,
    inputs: Sequence[InputSpec],
    preprocess: Preprocess,
    limit: int,
    notes: Sequence[str] = (),
) -> Samples:
    """Open samples of image files, in the order given; a fixed batch of B takes B of them.

    Raises:
        CalibrationError: the model's input is not one image, an option is missing or does
            not fit, or a file is not an image. Damage further inside a file, and a size that
            depends on the file, are found when its turn comes.
    """
    plan = plan_images(label, inputs, preprocess)
    batch = plan.spec.batch
    for file in files:
        _check_header(file, limits.present().image_pixels)
    if len(files) < batch:
        raise CalibrationError(f"{label}: {len(files)} images do not fill a batch of {batch}")
    all_notes = list(notes)
    if plan.fits:
        height, width = plan.size
        all_notes.append(
            f"images were scaled to cover {height}x{width} and cropped at the centre"
            ": if training did otherwise, give --resize and --crop"
        )
    if plan.spec.array:
        all_notes.append("--calibration-key is for arrays, images have none")
    if len(files) % batch:
        all_notes.append(f"images that do not fill a batch of {batch} are ignored")

    def load(k: int) -> Feed:
        items = [_read_image(file, plan) for file in files[k * batch : (k + 1) * batch]]
        return {plan.spec.name: np.stack(items).astype(plan.spec.dtype)}

    samples = choose(load, len(files) // batch, limit, label, all_notes)
    return replace(samples, prepared=preprocess.phrase)


def plan_images(label: str, inputs: Sequence[InputSpec], keys: Preprocess) -> ImagePlan:
    """Check the options against the input of the model; no image is read.

    Raises:
        CalibrationError: naming the option to give or to change.
    """
    spec = inputs[0]
    is_numeric = spec.dtype.kind == "f" or spec.is_quantity
    if len(inputs) != 1 or len(spec.lengths) != 4 or not is_numeric:
        text = ", ".join(f"{i.name!r} {i.dtype} {i.shape_text}" for i in inputs)
        raise CalibrationError(
            f"{label}: images need a model with one 4-dimensional float input, or one of integer"
            f" pixels; it has {text}",
            hint="give arrays in an .npz file",
        )
    channels = 1 if keys.color == "gray" else 3
    of_layout = {"nchw": spec.lengths[1], "nhwc": spec.lengths[3]}
    length = of_layout.pop(keys.layout)
    if length not in (None, channels):
        ((layout, other_length),) = of_layout.items()
        color = "rgb" if keys.color == "gray" else "gray"
        hint = "give arrays in an .npz file"
        if other_length == channels:
            hint = f"try --input-layout {layout}"
        elif length in (1, 3):
            hint = f"try --color {color}"
        raise CalibrationError(
            f"{label}: {keys.color} images in {keys.layout} have {count(channels, 'channel')}, but"
            f" input {spec.name!r} is {spec.shape_text}",
            hint=hint,
        )
    height, width = spec.lengths[2:] if keys.layout == "nchw" else spec.lengths[1:3]
    options = keys
    if spec.dtype.kind != "f" and (integers := normalization_of(spec, keys)):
        options = keys.model_copy(update={"mean": integers.mean, "std": integers.std})
    mean, std = mean_and_std(label, options, channels)
    plan = ImagePlan(spec, keys, (height, width), mean, std)
    resize, crop = keys.resize, keys.crop
    if (resize and len(resize) > 2) or min((*(resize or ()), *(crop or ())), default=1) < 1:
        raise CalibrationError(f"{label}: --resize takes one or two numbers above 0, --crop two")
    exact = crop or (resize if resize and len(resize) == 2 else None)
    if exact:
        _check_size(label, exact, plan)
    elif None in plan.size:
        raise CalibrationError(
            f"{label}: input {spec.name!r} is {spec.shape_text}, so the size is not known",
            hint=f"give --resize HEIGHT,WIDTH, or --input-shape {spec.name}=...",
        )
    return plan


def _check_size(label: str, size: Sequence[int], plan: ImagePlan) -> None:
    if any(want not in (None, have) for have, want in zip(size, plan.size, strict=True)):
        raise CalibrationError(
            f"{label}: images become {size[0]}x{size[1]}, but input {plan.spec.name!r} is"
            f" {plan.spec.shape_text}",
            hint="give --resize HEIGHT,WIDTH, or leave out --resize and --crop",
        )


def _check_header(file: Path, max_pixels: int) -> None:
    """Refuse a file without an image, or an image over ``max_pixels``, without decoding it.

    Raises:
        CalibrationError: the file is not an image, or has too many pixels.
    """
    check_ordinary(file)
    with _explained(file), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's are not for the user
        with Image.open(file) as image:
            pixels = image.width * image.height
    if pixels > max_pixels:
        text = f"{file}: has {image.width} x {image.height} pixels, over {max_pixels}"
        raise CalibrationError(text, hint=limits.hint("image_pixels"))


def _read_image(file: Path, plan: ImagePlan) -> Floats:
    """Return one image as float32 [C,H,W] or [H,W,C].

    Raises:
        CalibrationError: the file is damaged, or its size does not fit.
    """
    with _explained(file):
        pixels = _decode(file, plan)
    _check_size(str(file), pixels.shape[:2], plan)
    values = pixels.astype(np.float32).reshape(*pixels.shape[:2], -1)
    values = (values - plan.mean) / plan.std
    return values.transpose(2, 0, 1) if plan.keys.layout == "nchw" else values


def _decode(file: Path, plan: ImagePlan) -> Pixels:
    """Decode an image, turn it upright, convert its colours, resize and crop it."""
    resize, crop, color = plan.keys.resize, plan.keys.crop, plan.keys.color
    with warnings.catch_warnings(), Image.open(file) as source:
        warnings.simplefilter("ignore")
        image = ImageOps.exif_transpose(source)
        if image.mode[0] in "IF":  # Pillow would clip these to 0..255 and not scale them
            text = f"{file}: has more than 8 bits a channel"
            raise CalibrationError(text, hint="save it with 8")
        if image.mode in ("P", "PA"):
            image = image.convert("RGBA")
        image = image.convert("L" if color == "gray" else "RGB")
        if color == "bgr":
            image = Image.merge("RGB", image.split()[::-1])
        if plan.fits:
            crop = (plan.size[0] or 0, plan.size[1] or 0)
            image = _scale(image, max(crop[0] / image.height, crop[1] / image.width), crop)
        elif resize and len(resize) == 2:
            image = image.resize((resize[1], resize[0]), Image.Resampling.BILINEAR)
        elif resize:
            image = _scale(image, resize[0] / min(image.size), (resize[0], resize[0]))
        if crop:
            if image.height < crop[0] or image.width < crop[1]:
                raise CalibrationError(
                    f"{file}: {image.height}x{image.width} is smaller than the crop"
                    f" {crop[0]}x{crop[1]}",
                    hint="give --resize",
                )
            x, y = (image.width - crop[1]) // 2, (image.height - crop[0]) // 2
            image = image.crop((x, y, x + crop[1], y + crop[0]))
        return np.asarray(image)


def _scale(image: Image.Image, factor: float, minimum: tuple[int, int]) -> Image.Image:
    """Scale an image to at least this height and width."""
    height = max(minimum[0], round(image.height * factor))
    width = max(minimum[1], round(image.width * factor))
    return image.resize((width, height), Image.Resampling.BILINEAR)


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Turn any error of Pillow into a one-line CalibrationError about the file.

    Raises:
        CalibrationError: the file cannot be read.
    """
    from PIL import UnidentifiedImageError

    try:
        yield
    except (*_UNREADABLE, Image.DecompressionBombError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        if isinstance(error, Image.DecompressionBombError):
            cause = "larger than Pillow's limit against decompression bombs"
        elif isinstance(error, UnidentifiedImageError):
            cause = "not an image"
        missing = isinstance(error, FileNotFoundError)
        hint = "" if missing else "remove the file, or save it again as .png or .jpg"
        raise CalibrationError(f"{file}: {cause}", hint=hint) from None
