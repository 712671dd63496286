"""Samples from image files: decoded, resized, cropped and normalized one at a time.

Decoded images may be kept on disk, so that other models need not decode them again: a file
holds the pixels of one image; its name is a digest of the image file and of how it was scaled.
Mean, standard deviation and layout come later, so models that differ in those share it.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from npuconv import files as atomic
from npuconv import limits
from npuconv.config import Preprocess
from npuconv.data.archives import UNREADABLE
from npuconv.data.normalizations import Floats, mean_and_std, normalization_of
from npuconv.data.sample_files import check_ordinary
from npuconv.data.samples import Feed, InputSpec, Samples, choose, count
from npuconv.errors import CalibrationError

Size = tuple[int, int]  # height, width
Pixels = NDArray[np.uint8]  # [H,W] or [H,W,C]
UNREADABLE_IMAGE = (
    *(OSError, SyntaxError, ValueError, EOFError, struct.error),
    Image.DecompressionBombError,
)
FORMAT = 1  # of the cache
_FOLDER = "images"  # in the cache
_shared_folder: str | Path | None = None  # where a conversion names none


@dataclass(frozen=True)
class Plan:
    """Conversion of an image file to one item of a batch."""

    spec: InputSpec  # the input of the model
    keys: Preprocess  # the options that were given
    # Height and width the input asks for; None where it is not fixed.
    size: tuple[int | None, int | None]
    mean: Floats  # float32, one per channel or one for all, in pixel units
    std: Floats  # like mean

    @property
    def fits(self) -> bool:
        """True if images are resized and cropped to the input without being told how."""
        return self.keys.resize is None and self.keys.crop is None

    @property
    def pixels_depend_on(self) -> tuple[object, ...]:
        """Settings that determine the pixels of a decoded image, besides the file."""
        keys = self.keys
        return keys.color, keys.resize, keys.crop, self.size if self.fits else None


def open_images(
    files: Sequence[Path],
    label: str,
    inputs: Sequence[InputSpec],
    preprocess: Preprocess,
    limit: int,
    notes: Sequence[str] = (),
    cache: str | Path | None = None,
) -> Samples:
    """Open samples of image files, in the order given; a fixed batch of B takes B of them.

    Decoded images are kept in the folder ``cache``, and looked for there.

    Raises:
        CalibrationError: the model's input is not one image, an option is missing or does
            not fit, or a file is no image. Damage further inside a file, and a size that
            depends on the file, are found when its turn comes.
    """
    plan = make_plan(label, inputs, preprocess)
    batch = plan.spec.batch
    for file in files:
        check_header(file, limits.present().image_pixels)
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

    folder = cache or _shared_folder
    decoded = Cache(folder, plan.pixels_depend_on) if folder else None

    def load(k: int) -> Feed:
        items = [read_image(file, plan, decoded) for file in files[k * batch : (k + 1) * batch]]
        return {plan.spec.name: np.stack(items).astype(plan.spec.dtype)}

    return replace(
        choose(load, len(files) // batch, limit, label, all_notes), prepared=preprocess.said
    )


def make_plan(label: str, inputs: Sequence[InputSpec], keys: Preprocess) -> Plan:
    """Check the options against the input of the model.

    Raises:
        CalibrationError: naming the option to give or to change.
    """
    spec = inputs[0]
    is_numeric = spec.dtype.kind == "f" or spec.is_quantity
    if len(inputs) != 1 or len(spec.lengths) != 4 or not is_numeric:
        what = ", ".join(f"{i.name!r} {i.dtype} {i.wanted}" for i in inputs)
        raise CalibrationError(
            f"{label}: images need a model with one 4-dimensional float input, or one of integer"
            f" pixels; it has {what}",
            hint="give arrays in an .npz file",
        )
    _check_channels(label, spec, keys)
    height, width = spec.lengths[2:] if keys.layout == "nchw" else spec.lengths[1:3]
    integers = normalization_of(spec, keys) if spec.dtype.kind != "f" else None
    options = (
        keys
        if integers is None
        else keys.model_copy(update={"mean": integers.mean, "std": integers.std})
    )
    mean, std = mean_and_std(label, options, 1 if keys.color == "gray" else 3)
    plan = Plan(spec, keys, (height, width), mean, std)
    _check_sizes(label, plan)
    return plan


def read_image(file: Path, plan: Plan, decoded: Cache | None = None) -> Floats:
    """Return one image as float32 [C,H,W] or [H,W,C].

    Raises:
        CalibrationError: the file is damaged, or its size does not fit.
    """
    try:
        decode = partial(_decode, file, plan)
        pixels = decoded.get(file, decode) if decoded else decode()
    except UNREADABLE_IMAGE as error:
        raise unreadable(file, error) from None
    _check_size(str(file), (pixels.shape[0], pixels.shape[1]), plan)
    values = pixels.astype(np.float32).reshape(*pixels.shape[:2], -1)
    values = (values - plan.mean) / plan.std
    return values.transpose(2, 0, 1) if plan.keys.layout == "nchw" else values


def _decode(file: Path, plan: Plan) -> Pixels:
    """Decode an image, turn it upright, resize and crop it."""
    with warnings.catch_warnings(), Image.open(file) as image:
        warnings.simplefilter("ignore")
        upright = ImageOps.exif_transpose(image)
        return np.asarray(_resize(file, _convert(file, upright, plan.keys.color), plan))


def _convert(file: Path, image: Image.Image, color: str) -> Image.Image:
    if image.mode[0] in "IF":
        # Pillow would clip these to 0..255 and not scale them.
        raise CalibrationError(f"{file}: has more than 8 bits a channel", hint="save it with 8")
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    if color == "gray":
        return image.convert("L")
    image = image.convert("RGB")
    return Image.merge("RGB", image.split()[::-1]) if color == "bgr" else image


def _resize(file: Path, image: Image.Image, plan: Plan) -> Image.Image:
    resize, crop = plan.keys.resize, plan.keys.crop
    if plan.fits:
        crop = (plan.size[0] or 0, plan.size[1] or 0)
        image = _scaled(image, max(crop[0] / image.height, crop[1] / image.width), crop)
    elif resize and len(resize) == 2:
        image = image.resize((resize[1], resize[0]), Image.Resampling.BILINEAR)
    elif resize:
        short = min(image.size)
        image = _scaled(image, resize[0] / short, (resize[0], resize[0]))
    if crop:
        if image.height < crop[0] or image.width < crop[1]:
            raise CalibrationError(
                f"{file}: {image.height}x{image.width} is smaller than the crop"
                f" {crop[0]}x{crop[1]}",
                hint="give --resize",
            )
        left, top = (image.width - crop[1]) // 2, (image.height - crop[0]) // 2
        image = image.crop((left, top, left + crop[1], top + crop[0]))
    return image


def _scaled(image: Image.Image, factor: float, minimum: Size) -> Image.Image:
    height = max(minimum[0], round(image.height * factor))
    width = max(minimum[1], round(image.width * factor))
    return image.resize((width, height), Image.Resampling.BILINEAR)


def _check_channels(label: str, spec: InputSpec, keys: Preprocess) -> None:
    wanted = 1 if keys.color == "gray" else 3
    here, there = (spec.lengths[1], spec.lengths[3])[:: 1 if keys.layout == "nchw" else -1]
    if here in (None, wanted):
        return
    other = "nhwc" if keys.layout == "nchw" else "nchw"
    color = "rgb" if keys.color == "gray" else "gray"
    hint = f"--input-layout {other}" if there == wanted else f"--color {color}"
    raise CalibrationError(
        f"{label}: {keys.color} images in {keys.layout} have {count(wanted, 'channel')}, but"
        f" input {spec.name!r} is {spec.wanted}",
        hint=f"try {hint}" if there == wanted or here in (1, 3) else "give arrays in an .npz file",
    )


def _check_sizes(label: str, plan: Plan) -> None:
    """Raise if the size options do not fit the input; no image is read."""
    resize, crop = plan.keys.resize, plan.keys.crop
    if (resize and len(resize) > 2) or min((*(resize or ()), *(crop or ())), default=1) < 1:
        raise CalibrationError(f"{label}: --resize takes one or two numbers above 0, --crop two")
    exact = crop or (resize if resize and len(resize) == 2 else None)
    if exact:
        _check_size(label, (exact[0], exact[1]), plan)
    elif None in plan.size:
        raise CalibrationError(
            f"{label}: input {plan.spec.name!r} is {plan.spec.wanted}, so the size is not known",
            hint=f"give --resize HEIGHT,WIDTH, or --input-shape {plan.spec.name}=...",
        )


def _check_size(label: str, size: Size, plan: Plan) -> None:
    if any(want not in (None, have) for have, want in zip(size, plan.size, strict=True)):
        raise CalibrationError(
            f"{label}: images become {size[0]}x{size[1]}, but input {plan.spec.name!r} is"
            f" {plan.spec.wanted}",
            hint="give --resize HEIGHT,WIDTH, or leave out --resize and --crop",
        )


def check_header(file: Path, max_pixels: int) -> None:
    """Raise if a file holds no image, or too large a one; nothing is decoded.

    Raises:
        CalibrationError: no image, or one of more than ``max_pixels``.
    """
    check_ordinary(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's are not for the user
            with Image.open(file) as image:
                pixels = image.width * image.height
    except UNREADABLE_IMAGE as error:
        raise unreadable(file, error) from None
    if pixels > max_pixels:
        text = f"{file}: has {image.width} x {image.height} pixels, over {max_pixels}"
        raise CalibrationError(text, hint=limits.hint("image_pixels"))


def unreadable(file: Path, error: Exception) -> CalibrationError:
    """Return the error for the user for one that Pillow has raised."""
    if isinstance(error, Image.DecompressionBombError):
        cause = "larger than Pillow's limit against decompression bombs"
    elif isinstance(error, UnidentifiedImageError):
        cause = "not an image"
    else:
        cause = getattr(error, "strerror", None) or str(error)
    missing = isinstance(error, FileNotFoundError)
    hint = "" if missing else "remove the file, or save it again as .png or .jpg"
    return CalibrationError(f"{file}: {cause}", hint=hint)


def keep_in(folder: str | Path) -> None:
    """Keep decoded images in this folder from now on, where a conversion names none.

    For processes that convert one of many models on the same images.
    """
    global _shared_folder
    _shared_folder = folder


class Cache:
    """A folder of decoded images.

    ``how`` is what the pixels depend on besides the file, as plain data.

    Raises:
        OutputError: the folder cannot be made.
    """

    def __init__(self, folder: str | Path, how: object) -> None:
        atomic.make_folder(folder)
        self._folder = atomic.make_folder(Path(folder) / _FOLDER)
        self._how = json.dumps([FORMAT, PIL.__version__, how]).encode()

    def get(self, file: Path, decode: Callable[[], Pixels]) -> Pixels:
        """Return the pixels of an image file; decoded by one process, though many may ask at once.

        Raises:
            OSError: the image cannot be read.
            OutputError: the cache cannot be written.
        """
        digest = hashlib.sha256(self._how)
        digest.update(file.read_bytes())
        path = self._folder / f"{digest.hexdigest()[:40]}.npy"
        pixels = _read(path)
        if pixels is not None:
            return pixels
        with (self._folder / f"{path.stem[:2]}.lock").open("ab") as lock:
            atomic.hold(lock)
            pixels = _read(path)
            if pixels is None:
                pixels = decode()
                stream = io.BytesIO()
                np.save(stream, pixels, allow_pickle=False)
                atomic.write(path, stream.getvalue())
            return pixels


def _read(path: Path) -> Pixels | None:
    try:
        pixels = np.load(path, allow_pickle=False)
    except UNREADABLE:
        return None
    return pixels if isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 else None
