"""The part of a report that says what was rewritten, and what it costs."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from npuconv.schemas.part import Part


class Alternative(Part):
    """One form a convolution could have taken."""

    form: str
    macs: int | None
    weight_bytes: int
    moved_bytes: int = Field(description="copied between its parts, per inference")
    cost: float | None = Field(description="by the weights of the target file; null: unknown")
    obstacle: str = Field("", description="why it cannot be taken")
    chosen: bool


class Choice(Part):
    """The forms that one pass had to choose from for a node."""

    pass_name: str = Field(alias="pass", serialization_alias="pass")
    alternatives: tuple[Alternative, ...]

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Rewrite(Part):
    """One change to the graph, measured against what it replaced."""

    pass_name: str = Field(alias="pass", serialization_alias="pass")
    node: str
    before: str
    after: str
    max_abs_difference: float | None = Field(
        description="largest difference of the outputs on the same inputs; null: not measured"
    )
    reference: str = Field(description="what ran the original: onnxruntime, onnx.reference, ...")
    note: str = ""
    macs_before: int | None = Field(0, description="null where a dimension is not known")
    macs_after: int | None = 0
    weight_bytes_before: int = Field(0, description="of int8 weights")
    weight_bytes_after: int = 0
    alternatives: tuple[Alternative, ...] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Planned(Part):
    """Result of all rewrites together for one node of the source model."""

    node: str
    passes: tuple[str, ...] = Field(description="in the order in which they ran")
    was: str
    becomes: str
    macs_before: int | None = Field(description="null where a dimension is not known")
    macs_after: int | None
    weight_bytes_before: int = Field(description="of int8 weights")
    weight_bytes_after: int
    choices: tuple[Choice, ...] = ()


class Refusal(Part):
    """A rewrite that nearly happened, and why it did not."""

    pass_name: str = Field(alias="pass", serialization_alias="pass")
    node: str
    reason: str

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
