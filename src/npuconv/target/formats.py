"""Number formats of a target: of activations, weights and the bias."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from npuconv.target.limit import Cited, Limit, LimitField, Strict

Dtype = Literal[
    "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "int64",
    "float16", "bfloat16", "float32",
]  # fmt: skip
Granularity = Literal["tensor", "channel"]


class Block(Cited):
    """Storage format of one kind of number."""

    assumed: tuple[str, ...] = Field(
        (), description="keys of this block that no document states; reports list them"
    )

    @model_validator(mode="after")
    def _assumed_are_keys(self) -> Block:
        for name in self.assumed:
            if name not in type(self).model_fields:
                raise ValueError(f"`assumed` names {name!r}, which is not a key of this block")
        return self


class Requantize(Strict):
    """Requantization of the int32 accumulator to an output of the device.

    ``float`` multiplies by a float32 factor, rounds half to even and saturates. ``shift``
    multiplies by an integer and shifts the product right, each output channel with its own.
    """

    kind: Literal["float", "shift"] = Field("float", description="float or shift")
    multiplier_bits: int = Field(
        16, ge=2, le=31, description="shift: a multiplier is positive and below 2 to this"
    )
    max_shift: int = Field(62, ge=0, le=62, description="shift: the largest shift")
    rounding: Literal["half_away", "half_up", "half_even"] = Field(
        "half_away", description="shift: where half a step goes: away from zero, up, or to even"
    )

    @model_validator(mode="after")
    def _float_has_no_bits(self) -> Requantize:
        given = self.model_fields_set - {"kind"}
        if self.kind == "float" and given:
            raise ValueError(f"{sorted(given)[0]!r} belongs to kind: shift")
        return self

    def __str__(self) -> str:
        """Return a one-line description."""
        if self.kind == "float":
            return "float"
        return f"shift, {self.multiplier_bits} bits, at most {self.max_shift}, {self.rounding}"


def _kind(value: Any) -> Any:
    """``requantize: shift`` is short for ``{kind: shift}``."""
    return {"kind": value} if isinstance(value, str) else value


def _or_short(schema: dict[str, Any]) -> None:
    """Let the published schema take the short form, too."""
    known = schema.pop("allOf", None) or [{"$ref": schema.pop("$ref")}]
    schema["anyOf"] = [*known, {"enum": ["float", "shift"]}]


class Activations(Block):
    """Numbers in tensors between device nodes."""

    dtype: Dtype = Field(description="element type")
    zero_point: LimitField = Field(
        default_factory=lambda: Limit.model_validate({"one_of": [0]}),
        description="allowed zero points: a list, {range: [lo, hi]} or '?'",
    )
    granularity: Granularity = Field("tensor", description="one scale per tensor or per channel")
    requantize: Annotated[Requantize, BeforeValidator(_kind)] = Field(
        default_factory=lambda: Requantize.model_validate({}),
        description="how a convolution makes its output: float, shift, or {kind: shift, ...}",
        json_schema_extra=_or_short,
    )

    def allows_zero_point(self, value: int) -> bool | None:
        """Return whether a tensor may have this zero point; None if the limit is unknown."""
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
        """Return whether the element type is documented."""
        return self.dtype != "?"

    @property
    def used(self) -> str:
        """The type to write: ``dtype``, or what is assumed if that is unknown."""
        return str(self.dtype) if self.known else self.assume
