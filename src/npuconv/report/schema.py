"""The report: what was found, what was rewritten, and how accurate the result is.

Nothing in it depends on the clock, on chance or on where the files lie: the same model
and options give the same bytes. Missing numbers are ``None``, never a guess.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npuconv.diagnostics import Severity, Status
from npuconv.report.schema_changes import Alternative, Choice, Planned, Refusal, Rewrite
from npuconv.report.schema_device import Device, MacShare, Port, Subgraph, Traffic
from npuconv.report.schema_part import Part

__all__ = [
    "SCHEMA_VERSION",
    "Accuracy",
    "Alternative",
    "Choice",
    "Count",
    "Device",
    "FindingInfo",
    "LayerQuant",
    "MacShare",
    "ModelInfo",
    "NodeInfo",
    "OutputAccuracy",
    "Placement",
    "Planned",
    "Port",
    "Quantization",
    "Refusal",
    "Report",
    "Rewrite",
    "Subgraph",
    "Summary",
    "TargetInfo",
    "TensorQuant",
    "TensorSpec",
    "Timing",
    "Tool",
    "Traffic",
    "UnknownLimit",
]

SCHEMA_VERSION = 1
Placement = Literal["device", "host", "undocumented"]


class Tool(Part):
    """Who wrote the report."""

    name: str = "npuconv"
    version: str


class TensorSpec(Part):
    """A model input or output."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None = Field(
        description="a name is a symbolic dimension, null one of unknown size"
    )


class ModelInfo(Part):
    """The source model."""

    path: str
    sha256: str
    ir_version: int
    opset: dict[str, int] = Field(description="by domain; '' is the ONNX standard domain")
    producer: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class TargetInfo(Part):
    """The target description that was used."""

    name: str
    version: str
    sha256: str


class Count(Part):
    """Nodes and multiply-accumulates of one placement."""

    nodes: int
    macs: int | None = Field(description="null where a dynamic dimension leaves it open")


class Summary(Part):
    """The verdict, and the numbers behind it."""

    verdict: Literal["convertible", "converted", "refused"]
    headline: str = Field(description="one sentence for people")
    warnings: tuple[str, ...] = Field((), description="what a reader must know before trusting it")
    exit_code: int
    by_severity: dict[Severity, int]
    by_status: dict[Status, int]
    placement: dict[Placement, Count]
    transitions: int = Field(description="edges that cross between device and host")


class FindingInfo(Part):
    """One finding; see ``npuconv explain CODE``."""

    code: str
    name: str
    severity: Severity
    status: Status
    node: str
    op_type: str
    message: str
    value: str
    limit: str
    source: str
    fix: str
    rewritten_by: str
    rewritten_into: str


class NodeInfo(Part):
    """One node of the device-ready float graph."""

    name: str
    op: str
    placement: Placement
    reason: str
    macs: int | None
    parameters: int
    subgraph: int | None = Field(None, description="of the device, from 1; null on the host")


class TensorQuant(Part):
    """How one activation tensor is quantized."""

    name: str
    scale: float = Field(description="of the channel with the largest")
    zero_point: int = Field(description="of the channel with the lowest")
    channels: int = Field(1, description="how many scales it has; 1: one for all channels")
    smallest_scale: float | None = Field(None, description="of the channel with the smallest")
    highest_zero_point: int | None = Field(None, description="of the channel with the highest")
    minimum: float
    maximum: float
    clip_fraction: float = Field(description="share of the calibration values beyond the range")
    method: str = Field("", description="how the range was chosen")


class LayerQuant(Part):
    """The output of one layer on one sample, errors of earlier layers included."""

    name: str
    sqnr_db: float | None
    cosine: float | None
    note: str = ""
    rounding: str = Field("", description="how the weights were rounded")
    alone_db: float | None = Field(
        None, description="estimated SQNR of the outputs if this layer alone were rounded"
    )
    noise_share: float | None = Field(
        None, description="share, 0..1, of the noise in the outputs that its rounding makes"
    )


class Quantization(Part):
    """How the model was quantized."""

    format: str
    method: str
    samples: int
    source: str = Field(description="where the samples come from")
    synthetic: bool
    tensors: tuple[TensorQuant, ...] = ()
    layers: tuple[LayerQuant, ...] = ()


class OutputAccuracy(Part):
    """The int8 model against the float model, one output."""

    name: str
    sqnr_db: float | None = Field(description="10 log10(sum f^2 / sum (f-q)^2); null: exact")
    cosine: float | None
    top1_agreement: float | None


class Accuracy(Part):
    """The int8 model against the float model."""

    samples: int
    held_out: bool = Field(description="true: these samples were not used to calibrate")
    sqnr_db: float | None
    cosine: float | None
    top1_agreement: float | None
    outputs: tuple[OutputAccuracy, ...]


class UnknownLimit(Part):
    """A limit that nobody has written down, and what the model needs of it."""

    limit: str
    values: tuple[str, ...]
    nodes: int = Field(description="how many nodes depend on it")
    example: str = Field(description="the node with the most demanding value")
    source: str
    assumption: str = ""


class Timing(Part):
    """Wall time of one stage, in seconds; only with --timings."""

    stage: str
    seconds: float


class Report(Part):
    """Everything npuconv has to say about one model on one target."""

    schema_version: Literal[1] = 1
    tool: Tool
    model: ModelInfo
    target: TargetInfo
    summary: Summary
    findings: tuple[FindingInfo, ...] = ()
    plan: tuple[Planned, ...] = Field((), description="source nodes that become something else")
    rewrites: tuple[Rewrite, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    device: Device | None = None
    quantization: Quantization | None = None
    accuracy: Accuracy | None = None
    unknown_limits: tuple[UnknownLimit, ...] = ()
    timings: tuple[Timing, ...] | None = None

    @property
    def ok(self) -> bool:
        """True when nothing blocks the conversion."""
        return self.summary.verdict != "refused"
