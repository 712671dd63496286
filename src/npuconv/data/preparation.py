"""Preparation of images as ``convert`` did it, kept in the metadata of an integer model."""

import json
from typing import Annotated, Any, Literal

import onnx

from npuconv.config import Preprocess
from npuconv.data.normalizations import PRESETS, asked_for
from npuconv.errors import ModelError
from npuconv.model.proto import metadata_of
from npuconv.records import dataclass
from npuconv.validated import Bounded, Field, Record

KEY = "npuconv.preprocess"  # key in the metadata of a model
_MAX_SHOWN = 60  # characters of a record that cannot be read
_MAX_SIDE = 2**13  # pixels of an image: a file of strangers may ask for more than memory holds
# Far beyond any pixel, and far enough from the ends of float32 that their quotient is finite.
_Mean = Annotated[float, Bounded(ge=-1e15, le=1e15)]
_Std = Annotated[float, Bounded(ge=1e-15, le=1e15)]
_Side = Annotated[int, Bounded(ge=1, le=_MAX_SIDE)]


class PreparationEntry(Record):
    """The entry of the metadata, as JSON."""

    certainty: Literal["given", "inferred", "guessed"]
    mean: tuple[_Mean, ...] = Field(min_length=1, max_length=4)
    std: tuple[_Std, ...] = Field(min_length=1, max_length=4)
    resize: tuple[_Side, ...] | None = Field(default=None, max_length=2)
    crop: tuple[_Side, _Side] | None = None
    color: Literal["rgb", "bgr", "gray"]
    layout: Literal["nchw", "nhwc"]

    def plain(self) -> dict[str, Any]:
        """Return the values that are set, as JSON has them."""
        values = self.model_dump(mode="json")
        return {key: value for key, value in values.items() if value is not None}


@dataclass(frozen=True)
class Preparation:
    """Conversion of images to inputs, read from the metadata of a model."""

    keys: Preprocess
    origin: str  # where it comes from, in one phrase for people
    is_guess: bool  # true where nobody has confirmed the normalization


def record(keys: Preprocess, certainty: str) -> str:
    """Write the preparation of images for the metadata; empty without a normalization.

    ``certainty`` is given, inferred or guessed.

    Mean and std are in pixels of 0..255, in the order of the channels of the input.
    """
    pixels = asked_for(keys)
    if pixels is None:
        return ""
    entry = PreparationEntry.from_attributes(
        keys, certainty=certainty, mean=pixels.mean, std=pixels.std
    )
    return json.dumps(entry.plain(), sort_keys=True, separators=(",", ":"))


def read(model: onnx.ModelProto, name: str) -> Preparation | None:
    """Return the preparation in the metadata of a model; None if it is missing.

    Raises:
        ModelError: the entry of its metadata is damaged.
    """
    entry = read_entry(model, name)
    if entry is None:
        return None
    values = entry.model_dump()
    del values["certainty"]
    keys = Preprocess.model_validate(values)
    for preset in PRESETS:  # its name instead of its numbers
        candidate = keys.model_copy(update={"preset": preset, "mean": None, "std": None})
        pixels = asked_for(candidate)
        if pixels is not None and (pixels.mean, pixels.std) == (keys.mean, keys.std):
            keys = candidate
            break
    preposition = "to" if entry.certainty == "given" else "by"
    origin = f"{entry.certainty} {preposition} convert, kept in {name}"
    return Preparation(keys, origin, entry.certainty == "guessed")


def read_entry(model: onnx.ModelProto, name: str) -> PreparationEntry | None:
    """Return the entry of the metadata of a model; None if it is missing.

    Raises:
        ModelError: it is damaged.
    """
    text = metadata_of(model).get(KEY, "")
    if not text:
        return None
    try:
        return PreparationEntry.model_validate_json(text)
    except ValueError:
        excerpt = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
        raise ModelError(
            f"{name}: its metadata says {KEY} = {excerpt!r}, which is no preprocessing",
            hint="somebody has changed it: give --preprocess, or convert the model again",
        ) from None
