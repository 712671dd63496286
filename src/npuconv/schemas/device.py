"""The part of a report that says what the device does."""

from __future__ import annotations

from pydantic import Field

from npuconv.schemas.part import Part


class Port(Part):
    """A tensor that goes into a device subgraph, or comes out of it."""

    name: str
    bytes: int | None = Field(description="in int8; null where a dimension is not known")


class Subgraph(Part):
    """Nodes that the device runs in one go, without the host in between."""

    number: int
    nodes: int
    first: str = Field(description="the first of its nodes")
    last: str
    macs: int | None
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class Traffic(Part):
    """Tensors that cross between device and host in one inference, in one direction."""

    tensors: int
    bytes: int | None = Field(description="in int8; null where a dimension is not known")


class MacShare(Part):
    """Multiply-accumulates on the device, and of the whole model."""

    device: int | None = Field(description="null where a dimension is not known")
    total: int | None


class Kept(Part):
    """Nodes that one pattern of `keep_float` keeps on the host."""

    pattern: str
    nodes: int = Field(description="of the model as it came")
    macs: int | None = Field(description="of those that the device would do; null: not known")


class KeptFloat(Part):
    """Cost of all `keep_float` patterns, compared with the same conversion without them."""

    patterns: tuple[Kept, ...]
    transitions_without: int
    bytes_without: int | None = Field(description="that would cross; null: not known")


class Device(Part):
    """Work and traffic of the device in one inference."""

    macs_before: MacShare = Field(description="of the model as it came")
    macs_after: MacShare = Field(description="of the rewritten model")
    to_device: Traffic
    to_host: Traffic
    subgraphs: tuple[Subgraph, ...]
    kept_float: KeptFloat | None = Field(None, description="null where `keep_float` is not given")
