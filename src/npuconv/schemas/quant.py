"""The part of a report that says how tensors and layers were quantized."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npuconv.schemas.budget import Budget, HostPadding
from npuconv.schemas.part import Part


class TensorQuant(Part):
    """Quantization of one activation tensor."""

    name: str
    scale: float = Field(description="of the channel with the largest")
    zero_point: int = Field(description="of the channel with the lowest")
    channels: int = Field(1, description="how many scales it has; 1: one for all channels")
    smallest_scale: float | None = Field(None, description="of the channel with the smallest")
    highest_zero_point: int | None = Field(None, description="of the channel with the highest")
    minimum: float
    maximum: float
    lowest: float | None = Field(
        None, description="the smallest number that int8 holds, of the channel with the lowest"
    )
    highest: float | None = Field(
        None, description="the largest number that int8 holds, of the channel with the highest"
    )
    clip_fraction: float = Field(
        description="share of the calibration values beyond the range; 0 where a Relu or Clip "
        "follows that cuts them off anyway"
    )
    method: str = Field("", description="how the range was chosen")


class WeightQuant(Part):
    """The weights of one layer, as the float model has them."""

    minimum: float
    maximum: float
    channels: int = Field(description="of the output")
    smallest_reach: float = Field(
        description="largest magnitude in the channel where that is smallest"
    )
    clip_fraction: float = Field(description="share of the weights beyond what int8 holds")


class LayerQuant(Part):
    """The output of one layer on one sample, errors of earlier layers included."""

    name: str
    sqnr_db: float | None
    cosine: float | None
    note: str = ""
    rounding: str = Field("", description="how the weights were rounded")
    alone_db: float | None = Field(
        None, description="SQNR of the outputs if this layer alone is rounded"
    )
    noise_share: float | None = Field(
        None, description="share, 0..1, of the noise in the outputs that its rounding makes"
    )
    weights: WeightQuant | None = None


class Assumed(Part):
    """Inputs that are assumed where no calibration data is given."""

    sentence: str = Field(description="all of it, for people")
    pictures: Literal["photographs", "made-up", "none"]
    normalization: str = Field(description="of the pictures; empty where it is not known")
    certainty: Literal["given", "inferred", "guessed", "unknown"]
    share: float | None = Field(None, description="of the odds that speak for it, if inferred")
    runner_up: str = Field("", description="the normalization that is next, if inferred")


class Quantization(Part):
    """Quantization of the model."""

    format: str
    method: str
    samples: int
    source: str = Field(description="where the samples come from")
    synthetic: bool
    tensors: tuple[TensorQuant, ...] = ()
    layers: tuple[LayerQuant, ...] = ()
    budget: Budget | None = None
    host_padding: HostPadding | None = Field(
        None, description="null unless the host may pad what the device makes"
    )
