"""The options that say how image files become inputs of a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Preset = Literal["unit", "signed", "imagenet", "raw", "none"]


class Strict(BaseModel):
    """Options that take no key they do not know, and stay as they are."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def _or_one(kind: str) -> Callable[[dict[str, Any]], None]:
    """Says in the JSON schema that one number is taken for a list of it."""

    def add(schema: dict[str, Any]) -> None:
        schema["anyOf"].insert(0, {"type": kind})

    return add


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Preprocess(Strict):
    """Conversion of an image file to a model input.

    The pixel value v (0..255) becomes ``(v - mean) / std`` per channel, after resizing
    and cropping. Presets are shorthands for mean and std.
    """

    preset: Preset | None = Field(
        None,
        description="unit: 0..1; signed: -1..1; imagenet: ImageNet mean and std; raw: 0..255; "
        "none: nothing is assumed where no data is given",
    )
    mean: tuple[float, ...] | None = Field(
        None,
        description="subtracted, in pixel units 0..255: one number, or one per channel",
        json_schema_extra=_or_one("number"),
    )
    std: tuple[float, ...] | None = Field(
        None,
        description="divided by, in pixel units 0..255: one number, or one per channel",
        json_schema_extra=_or_one("number"),
    )
    resize: tuple[int, ...] | None = Field(
        None,
        description="HEIGHT,WIDTH, or one number for the short side",
        json_schema_extra=_or_one("integer"),
    )
    crop: tuple[int, int] | None = Field(
        None,
        description="HEIGHT,WIDTH of a centre crop, or one number for a square",
        json_schema_extra=_or_one("integer"),
    )
    color: Literal["rgb", "bgr", "gray"] = Field("rgb", description="channel order")
    layout: Literal["nchw", "nhwc"] = Field("nchw", description="layout of the model input")

    @property
    def said(self) -> str:
        """Given settings in one phrase: ``imagenet, resize 256, color bgr``."""
        given = self.model_dump(exclude_defaults=True)
        preset = given.pop("preset", None)
        shown = {
            key: value if isinstance(value, tuple) else (value,) for key, value in given.items()
        }
        parts = (f"{key} {' '.join(map(_short, values))}" for key, values in shown.items())
        return ", ".join((*filter(None, (preset,)), *parts))

    @model_validator(mode="before")
    @classmethod
    def _not_a_preset(cls, value: Any) -> Any:
        if isinstance(value, str):
            preset = value if value in get_args(Preset) else "unit"
            raise ValueError(f"must be keys, as {{preset: {preset}}}, not {value!r}")
        return value

    @field_validator("mean", "std", "resize", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (value,) if _is_number(value) else value

    @field_validator("crop", mode="before")
    @classmethod
    def _square(cls, value: Any) -> Any:
        return (value, value) if _is_number(value) else value

    @field_validator("std")
    @classmethod
    def _no_zero(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and min(value, default=1) <= 0:
            raise ValueError(f"a standard deviation is above 0, not {min(value):g}")
        return value

    @field_validator("mean", "std")
    @classmethod
    def _finite(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and not all(map(math.isfinite, value)):
            raise ValueError("must be finite numbers")
        return value
