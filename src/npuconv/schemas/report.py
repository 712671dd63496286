"""The report: what was found, what was rewritten, and how accurate the result is.

Nothing in it depends on the clock, on chance or on where the files lie: the same model
and options give the same bytes. Missing numbers are ``None``, never a guess.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npuconv.diagnostics import Severity, Status
from npuconv.schemas.budget import Budget, Channels, HostPadding, Repeated
from npuconv.schemas.changes import Alternative, Choice, Planned, Refusal, Rewrite
from npuconv.schemas.device import Device, MacShare, Port, Subgraph, Traffic
from npuconv.schemas.part import Part
from npuconv.schemas.quant import Assumed, LayerQuant, Quantization, TensorQuant, WeightQuant
from npuconv.schemas.rules import RuleInfo

__all__ = [
    "SCHEMA_VERSION",
    "Accuracy",
    "Alternative",
    "Assumed",
    "Budget",
    "Channels",
    "Choice",
    "Count",
    "Device",
    "FindingInfo",
    "HostPadding",
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
    "Repeated",
    "Report",
    "Rewrite",
    "RuleInfo",
    "Subgraph",
    "Summary",
    "TargetInfo",
    "TensorQuant",
    "TensorSpec",
    "Timing",
    "Tool",
    "Traffic",
    "UnknownLimit",
    "WeightQuant",
    "WorstSample",
]

SCHEMA_VERSION = 1
Placement = Literal["device", "host", "undocumented"]


class Tool(Part):
    """Program that wrote the report."""

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
    not_judged: tuple[str, ...] = Field(
        (), description="of a check: what was asked for that only a conversion can tell"
    )
    exit_code: int
    by_severity: dict[Severity, int]
    by_status: dict[Status, int]
    placement: dict[Placement, Count]
    accepted: int = Field(0, description="findings that stand and that a baseline accepts")
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
    accepted: bool = Field(False, description="a baseline lists it: it fails nothing")


class NodeInfo(Part):
    """One node of the device-ready float graph."""

    name: str
    op: str
    placement: Placement
    reason: str
    macs: int | None
    parameters: int
    subgraph: int | None = Field(None, description="of the device, from 1; null on the host")
    form: str = Field("", description="the operator with what tells it apart: `Conv 3x3, stride 2`")
    inputs: tuple[str, ...] = Field((), description="tensors it reads, constants left out")
    outputs: tuple[str, ...] = Field((), description="tensors it makes")
    shape: tuple[int | str | None, ...] | None = Field(None, description="of its first output")


class PartAccuracy(Part):
    """The int8 model against the float model, a tensor that an output is put together from."""

    name: str
    sqnr_db: float | None = Field(
        description="null: exact where the cosine is a number, else zeros or not finite"
    )
    cosine: float | None


class OutputAccuracy(Part):
    """The int8 model against the float model, one output."""

    name: str
    sqnr_db: float | None = Field(
        description="10 log10(sum f^2 / sum (f-q)^2); null: exact where the cosine is a number, "
        "else zeros or not finite"
    )
    cosine: float | None
    top1_agreement: float | None = Field(
        description="share of positions with the same largest class; null where nothing tells "
        "which axis has the classes: neither a Softmax nor the shape [N, C]"
    )
    parts: tuple[PartAccuracy, ...] = Field(
        (),
        description="where it is put together from tensors of several kinds, as boxes and scores",
    )


class WorstSample(Part):
    """The sample on which the int8 model is furthest from the float model."""

    number: int = Field(description="in the data, from 0")
    sqnr_db: float


class Accuracy(Part):
    """The int8 model against the float model."""

    samples: int
    held_out: bool = Field(
        description="true: nothing was decided on these samples but by a budget of multiplications"
    )
    sqnr_db: float | None
    cosine: float | None
    top1_agreement: float | None
    outputs: tuple[OutputAccuracy, ...]
    interval_db: tuple[float, float] | None = Field(
        None,
        description="lowest and highest SQNR of all outputs that is expected on as many new "
        "samples, with a probability of 80 %; null without any error",
    )
    median_db: float | None = Field(None, description="of the SQNR of single samples")
    worst_sample: WorstSample | None = None
    worst_output: str | None = Field(None, description="the one with the lowest SQNR of several")
    unsaturated_db: float | None = Field(
        None, description="SQNR before a final Softmax, Sigmoid or the like; null without one"
    )
    notes: tuple[str, ...] = Field((), description="what makes the figure worth less")


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
    """Report on one model for one target."""

    schema_version: Literal[1] = 1
    tool: Tool
    model: ModelInfo
    target: TargetInfo
    summary: Summary
    findings: tuple[FindingInfo, ...] = ()
    rules: tuple[RuleInfo, ...] = Field((), description="those that have findings")
    plan: tuple[Planned, ...] = Field((), description="source nodes that become something else")
    rewrites: tuple[Rewrite, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    device: Device | None = None
    calibration: Assumed | None = Field(
        None, description="what is taken, or would be, where no calibration data is given"
    )
    quantization: Quantization | None = None
    accuracy: Accuracy | None = None
    unknown_limits: tuple[UnknownLimit, ...] = ()
    timings: tuple[Timing, ...] | None = None

    @property
    def is_doubtful(self) -> bool:
        """True when it can be converted, but a reader should know something before trusting it."""
        shown = any(one.code.startswith("CAL") and one.severity == "warning" for one in self.left)
        return self.ok and bool(self.summary.warnings or shown)

    @property
    def left(self) -> tuple[FindingInfo, ...]:
        """Findings that no rewrite has removed, and no baseline accepts."""
        return tuple(f for f in self.findings if f.status != "rewritten" and not f.accepted)

    @property
    def ok(self) -> bool:
        """True when nothing blocks the conversion."""
        return self.summary.verdict != "refused"
