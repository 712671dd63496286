"""Schema of the report of ``npuconv verify``: two models compared on the same samples."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npuconv.schemas.part import Part
from npuconv.schemas.report import Tool

SCHEMA_VERSION = 1


class VerifiedModel(Part):
    """One of the two models."""

    path: str
    sha256: str


class Errors(Part):
    """Error of values of the int8 model against those of the float model, over all samples."""

    sqnr_db: float | None = Field(
        description="10 log10(sum f^2 / sum (f-q)^2); null: exact where the cosine is a number"
    )
    cosine: float | None = Field(description="null where one side is all zeros or not finite")
    max_abs_error: float | None


class VerifiedPart(Errors):
    """A tensor of both models that an output is put together from."""

    name: str


class VerifiedOutput(Errors):
    """An output of both models."""

    name: str
    top1_agreement: float | None = Field(
        description="share of positions where the largest class is the same; null where nothing "
        "tells which axis has the classes"
    )
    parts: tuple[VerifiedPart, ...] = Field(
        (), description="what it is put together from where that is several tensors: boxes, scores"
    )


class VerifiedLayer(Errors):
    """The output of one layer; errors of earlier layers are in it."""

    name: str = Field(description="the layer as the float model calls it")
    tensor: str = Field(description="its output in the float model")
    note: str = ""


class Labelled(Part):
    """Top-1 accuracy of each model: how often its largest output value is the label."""

    output: str
    samples: int
    float_top1: float = Field(description="share of the samples")
    int8_top1: float


class VerifyReport(Part):
    """Error of an int8 model against the float model it was made from."""

    schema_version: Literal[1] = 1
    tool: Tool
    float_model: VerifiedModel
    int8_model: VerifiedModel
    samples: int
    source: str = Field(description="where the samples come from")
    synthetic: bool
    warnings: tuple[str, ...] = ()
    total: Errors = Field(description="all numbers of all outputs together")
    outputs: tuple[VerifiedOutput, ...]
    layers: tuple[VerifiedLayer, ...] = ()
    layer_samples: int = Field(description="on how many samples the layers were compared")
    unmatched: tuple[str, ...] = Field(
        (), description="layers of the int8 model whose output the float model does not have"
    )
    labelled: Labelled | None = None
    min_sqnr_db: float | None = None
    passed: bool = Field(description="false where min_sqnr_db is given and missed")
