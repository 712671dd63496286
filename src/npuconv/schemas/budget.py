"""Schema of what was spent on accuracy: extra MACs, and traffic for padding by the host."""

from __future__ import annotations

from pydantic import Field

from npuconv.schemas.part import Part


class Repeated(Part):
    """A layer that runs several times."""

    node: str
    times: int
    extra_macs: int


class Channels(Part):
    """A tensor some of whose channels are made several times."""

    tensor: str = Field(description="its name in the legal float model")
    layers: tuple[str, ...] = Field(description="nodes that make or read its channels")
    channels: int = Field(description="without the copies")
    copies: int = Field(description="more channels on the device")
    extra_macs: int


class Budget(Part):
    """Goal and limit (--min-sqnr, --max-extra-macs), and the extra MACs that were spent."""

    min_sqnr_db: float | None = Field(None, description="the goal, in dB; null without one")
    max_extra_percent: float = Field(description="of the device's MACs before")
    extra_macs: int
    extra_percent: float = Field(description="of the device's MACs before")
    before_db: float | None = Field(
        description="SQNR without it, simulated on the samples that decided what was bought"
    )
    simulated_db: float | None = Field(
        description="the same with it; what was measured in int8 is under accuracy"
    )
    unsaturated: bool = Field(
        False, description="both are of the outputs before a Softmax or the like saturates them"
    )
    repeated: tuple[Repeated, ...] = ()
    channels: tuple[Channels, ...] = ()


class HostPadding(Part):
    """Tensors that the host pads as --pad-on-host auto or all, or --max-extra-bytes, permits."""

    tensors: tuple[str, ...] = Field(description="made by the device, padded by the host")
    extra_bytes: int | None = Field(description="that cross in one inference; null: not known")
    extra_percent: float | None = Field(description="of the bytes that cross without it")
    gain_db: float | None = Field(description="estimated, of all outputs together")
