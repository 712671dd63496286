"""The report: what was found, what was rewritten, and how accurate the result is.

Nothing in it depends on the clock, on chance or on where the files lie: the same model
and options give the same bytes. Missing numbers are ``None``, never a guess.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from npuconv.diagnostics import Severity, Status

SCHEMA_VERSION = 1
Placement = Literal["device", "host", "undocumented"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tool(_Part):
    """Who wrote the report."""

    name: str = "npuconv"
    version: str


class TensorSpec(_Part):
    """A model input or output."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None = Field(
        description="a name is a symbolic dimension, null one of unknown size"
    )


class ModelInfo(_Part):
    """The source model."""

    path: str
    sha256: str
    ir_version: int
    opset: dict[str, int] = Field(description="by domain; '' is the ONNX standard domain")
    producer: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class TargetInfo(_Part):
    """The target description that was used."""

    name: str
    version: str
    sha256: str


class Count(_Part):
    """Nodes and multiply-accumulates of one placement."""

    nodes: int
    macs: int | None = Field(description="null where a dynamic dimension leaves it open")


class Summary(_Part):
    """The verdict, and the numbers behind it."""

    verdict: Literal["convertible", "converted", "refused"]
    headline: str = Field(description="one sentence for people")
    warnings: tuple[str, ...] = Field((), description="what a reader must know before trusting it")
    exit_code: int
    by_severity: dict[Severity, int]
    by_status: dict[Status, int]
    placement: dict[Placement, Count]
    transitions: int = Field(description="edges that cross between device and host")


class FindingInfo(_Part):
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


class Alternative(_Part):
    """One form a convolution could have taken."""

    form: str
    macs: int | None
    weight_bytes: int
    moved_bytes: int = Field(description="copied between its parts, per inference")
    cost: float | None = Field(description="by the weights of the target file; null: unknown")
    obstacle: str = Field("", description="why it cannot be taken")
    chosen: bool


class Rewrite(_Part):
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


class Refusal(_Part):
    """A rewrite that nearly happened, and why it did not."""

    pass_name: str = Field(alias="pass", serialization_alias="pass")
    node: str
    reason: str

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class NodeInfo(_Part):
    """One node of the device-ready float graph."""

    name: str
    op: str
    placement: Placement
    reason: str
    macs: int | None
    parameters: int


class TensorQuant(_Part):
    """How one activation tensor is quantized."""

    name: str
    scale: float
    zero_point: int
    minimum: float
    maximum: float
    clip_fraction: float = Field(description="share of the calibration values beyond the range")


class LayerQuant(_Part):
    """The output of one layer on one sample, errors of earlier layers included."""

    name: str
    sqnr_db: float | None
    cosine: float | None
    note: str = ""


class Quantization(_Part):
    """How the model was quantized."""

    format: str
    method: str
    samples: int
    source: str = Field(description="where the samples come from")
    synthetic: bool
    tensors: tuple[TensorQuant, ...] = ()
    layers: tuple[LayerQuant, ...] = ()


class OutputAccuracy(_Part):
    """The int8 model against the float model, one output."""

    name: str
    sqnr_db: float | None = Field(description="10 log10(sum f^2 / sum (f-q)^2); null: exact")
    cosine: float | None
    top1_agreement: float | None


class Accuracy(_Part):
    """The int8 model against the float model."""

    samples: int
    held_out: bool = Field(description="true: these samples were not used to calibrate")
    sqnr_db: float | None
    cosine: float | None
    top1_agreement: float | None
    outputs: tuple[OutputAccuracy, ...]


class UnknownLimit(_Part):
    """A limit that nobody has written down, and what the model needs of it."""

    limit: str
    values: tuple[str, ...]
    nodes: int = Field(description="how many nodes depend on it")
    example: str = Field(description="the node with the most demanding value")
    source: str
    assumption: str = ""


class Timing(_Part):
    """Wall time of one stage, in seconds; only with --timings."""

    stage: str
    seconds: float


class Report(_Part):
    """Everything npuconv has to say about one model on one target."""

    schema_version: Literal[1] = 1
    tool: Tool
    model: ModelInfo
    target: TargetInfo
    summary: Summary
    findings: tuple[FindingInfo, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    quantization: Quantization | None = None
    accuracy: Accuracy | None = None
    unknown_limits: tuple[UnknownLimit, ...] = ()
    timings: tuple[Timing, ...] | None = None

    @property
    def ok(self) -> bool:
        """True when nothing blocks the conversion."""
        return self.summary.verdict != "refused"
