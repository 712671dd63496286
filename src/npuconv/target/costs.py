"""Cost model of a device, to choose between two legal forms of the same convolution."""

from __future__ import annotations

from pydantic import Field

from npuconv.target.limit import Cited

WEIGHTS = ("mac", "weight_byte", "convolution", "moved_byte")


class Costs(Cited):
    """Weights of a sum; only their ratios matter.

    The cost of a form is ``mac * MACs + weight_byte * bytes of int8 weights + convolution *
    number of convolutions + moved_byte * bytes that are copied between them``.
    """

    mac: float = Field(1.0, ge=0, description="one multiply-accumulate")
    weight_byte: float = Field(1.0, ge=0, description="one byte of weights fetched")
    convolution: float = Field(0.0, ge=0, description="starting one convolution")
    moved_byte: float = Field(0.0, ge=0, description="one byte sliced, concatenated or reordered")

    def of(self, macs: int, weight_bytes: int, convolutions: int, moved_bytes: int) -> float:
        """The cost of one form."""
        return (
            self.mac * macs
            + self.weight_byte * weight_bytes
            + self.convolution * convolutions
            + self.moved_byte * moved_bytes
        )
