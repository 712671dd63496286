"""How a target stores numbers: in activations, in weights and in the bias."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from npuconv.target.limit import Cited, Limit, LimitField

Dtype = Literal[
    "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "int64",
    "float16", "bfloat16", "float32",
]  # fmt: skip
Granularity = Literal["tensor", "channel"]


class Block(Cited):
    """How one kind of number is stored."""

    assumed: tuple[str, ...] = Field(
        (), description="keys of this block that no document states; reports list them"
    )

    @model_validator(mode="after")
    def _assumed_are_keys(self) -> Block:
        for name in self.assumed:
            if name not in type(self).model_fields:
                raise ValueError(f"`assumed` names {name!r}, which is not a key of this block")
        return self


class Activations(Block):
    """Numbers in tensors between device nodes."""

    dtype: Dtype = Field(description="element type")
    zero_point: LimitField = Field(
        default_factory=lambda: Limit.model_validate({"one_of": [0]}),
        description="allowed zero points: a list, {range: [lo, hi]} or '?'",
    )
    granularity: Granularity = Field("tensor", description="one scale per tensor or per channel")

    def allows_zero_point(self, value: int) -> bool | None:
        """Whether a tensor may have this zero point; None if the limit is unknown."""
        return self.zero_point.allows(value, {})


class Weights(Block):
    """Numbers in weights."""

    dtype: Dtype = Field(description="element type")
    symmetric: bool = Field(True, description="whether every zero point is 0")
    granularity: Granularity = Field("channel", description="one scale per tensor or per channel")
    range: tuple[int, int] = Field((-127, 127), description="lowest and highest stored value")

    @model_validator(mode="after")
    def _ordered(self) -> Weights:
        if self.range[0] > self.range[1]:
            raise ValueError(f"range: {self.range[0]} is greater than {self.range[1]}")
        return self


class Bias(Block):
    """Numbers in the bias."""

    dtype: Dtype | Literal["?"] = Field("int32", description="element type, or '?'")
    assume: Dtype = Field("int32", description="with '?': the type that is used until known")

    @property
    def known(self) -> bool:
        """Whether the element type is written down."""
        return self.dtype != "?"

    @property
    def used(self) -> str:
        """The type to write: ``dtype``, or what is assumed if that is unknown."""
        return str(self.dtype) if self.known else self.assume
