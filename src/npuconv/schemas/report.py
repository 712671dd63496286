"""Schema of the report of ``npuconv check`` and ``npuconv convert``.

A report does not depend on the clock, on chance or on the folder of the files: the same model
and options give the same bytes. Missing numbers are ``None``, never a guess.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from npuconv import files
from npuconv.diagnostics import Severity, Status

SCHEMA_VERSION = 1
LEVELS_PER_BIN = 8  # int8 levels in one bin of a histogram
Placement = Literal["device", "host", "undocumented"]
Shape = tuple[int | str | None, ...] | None


class Part(BaseModel):
    """Base class of all parts of a report: immutable, without undeclared fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Tool(Part):
    """Program that wrote the report."""

    name: str = "npuconv"
    version: str


class TensorSpec(Part):
    """A model input or output."""

    name: str
    dtype: str
    shape: Shape = Field(description="a name is a symbolic dimension, null one of unknown size")


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
    macs: int | None = Field(description="null where a dimension is not known")


class Summary(Part):
    """Verdict, exit code and counts."""

    verdict: Literal["convertible", "converted", "refused"]
    headline: str = Field(description="one sentence for people")
    warnings: tuple[str, ...] = Field((), description="reasons not to trust the result as it is")
    not_judged: tuple[str, ...] = Field(
        (), description="of a check: options that only a conversion can judge"
    )
    exit_code: int
    by_severity: dict[Severity, int]
    by_status: dict[Status, int]
    placement: dict[Placement, Count]
    accepted: int = Field(0, description="remaining findings that a baseline accepts")
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
    accepted: bool = Field(False, description="a baseline lists it: it does not fail a check")


class RuleInfo(Part):
    """A rule that has findings in the report; ``npuconv explain CODE`` tells more."""

    code: str
    name: str
    severity: Severity = Field(description="unless a finding or the user says otherwise")
    summary: str
    checks: str = Field(description="the condition that it checks")
    why: str = Field(description="consequence of a violation")
    fix: str = Field(description="general remedy")


class Alternative(Part):
    """One form a convolution could have taken."""

    form: str
    macs: int | None
    weight_bytes: int
    moved_bytes: int = Field(description="copied between its parts, per inference")
    cost: float | None = Field(description="by the weights of the target file; null: unknown")
    obstacle: str = Field("", description="reason why it is not possible; empty if it is")
    chosen: bool


class Choice(Part):
    """The forms that one pass had to choose from for a node."""

    pass_name: str = Field(alias="pass")
    alternatives: tuple[Alternative, ...]


class Rewrite(Part):
    """One change to the graph, measured against what it replaced."""

    pass_name: str = Field(alias="pass")
    node: str
    before: str
    after: str
    max_abs_difference: float | None = Field(
        description="largest difference of the outputs; null: not measured"
    )
    reference: str = Field(description="runtime of the original: onnxruntime, onnx.reference, ...")
    note: str = ""
    macs_before: int | None = Field(0, description="null where a dimension is not known")
    macs_after: int | None = 0
    weight_bytes_before: int = Field(0, description="of int8 weights")
    weight_bytes_after: int = 0
    alternatives: tuple[Alternative, ...] = ()


class RewriteRow(Part):
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
    """A rewrite that was considered but not done, with the reason."""

    pass_name: str = Field(alias="pass")
    node: str
    reason: str


class NodeInfo(Part):
    """One node of the device-ready float graph."""

    name: str
    op: str
    placement: Placement
    reason: str
    macs: int | None
    parameters: int
    subgraph: int | None = Field(None, description="of the device, from 1; null on the host")
    form: str = Field("", description="operator with its main attributes: `Conv 3x3, stride 2`")
    inputs: tuple[str, ...] = Field((), description="tensors it reads, constants left out")
    outputs: tuple[str, ...] = Field((), description="tensors it makes")
    shape: Shape = Field(None, description="of its first output")


class SourceNode(Part):
    """One node of the model as it came, where something of it was rewritten."""

    name: str
    form: str = Field(description="operator with its main attributes: `Conv 3x3, stride 2`")
    inputs: tuple[str, ...] = Field(description="tensors it reads, constants left out")
    outputs: tuple[str, ...] = Field(description="tensors it makes")


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
    nodes: int = Field(description="of the source model")
    macs: int | None = Field(description="that the device would otherwise run; null: not known")


class KeptFloat(Part):
    """Cost of all `keep_float` patterns, compared with the same conversion without them."""

    patterns: tuple[Kept, ...]
    transitions_without: int
    bytes_without: int | None = Field(description="that would cross; null: not known")


class Device(Part):
    """Work and traffic of the device in one inference."""

    macs_before: MacShare = Field(description="of the source model")
    macs_after: MacShare = Field(description="of the rewritten model")
    to_device: Traffic
    to_host: Traffic
    subgraphs: tuple[Subgraph, ...]
    kept_float: KeptFloat | None = Field(None, description="null where `keep_float` is not given")


class Repeated(Part):
    """A layer that is repeated to average its rounding errors."""

    node: str
    times: int
    extra_macs: int


class Channels(Part):
    """A tensor with duplicated channels."""

    tensor: str = Field(description="its name in the legal float model")
    layers: tuple[str, ...] = Field(description="nodes that make or read its channels")
    channels: int = Field(description="number without the duplicates")
    copies: int = Field(description="number of duplicates")
    extra_macs: int


class Budget(Part):
    """Goal and limit (--min-sqnr, --max-extra-macs), and the extra MACs that were spent."""

    min_sqnr_db: float | None = Field(None, description="the goal, in dB; null without one")
    max_extra_percent: float = Field(description="of the device's MACs before")
    extra_macs: int
    extra_percent: float = Field(description="of the device's MACs before")
    before_db: float | None = Field(description="SQNR without the extra MACs, simulated")
    simulated_db: float | None = Field(description="SQNR with the extra MACs, simulated")
    unsaturated: bool = Field(
        False, description="both are of the inputs of a final Softmax or Sigmoid"
    )
    repeated: tuple[Repeated, ...] = ()
    channels: tuple[Channels, ...] = ()


class HostPadding(Part):
    """Tensors that the host pads as --pad-on-host auto or all, or --max-extra-bytes, permits."""

    tensors: tuple[str, ...] = Field(description="outputs of device layers that the host pads")
    extra_bytes: int | None = Field(description="that cross in one inference; null: not known")
    extra_percent: float | None = Field(description="of the bytes that cross without it")
    gain_db: float | None = Field(description="estimated, of all outputs together")


class ChannelRange(Part):
    """Observed range and int8 range of one channel, to 4 digits."""

    channel: int
    minimum: float
    maximum: float
    lowest: float = Field(description="smallest value of int8")
    highest: float = Field(description="largest value of int8")


_HISTOGRAM = (
    "number of values below -128, in 32 bins of 8 int8 levels from -128 to 127, and above 127, "
    "of a sample of the values; empty where they were not observed"
)
_CHANNEL_RANGES = (
    "at most 16 channels, evenly spaced in the order of their width, the widest first; "
    "empty for one channel"
)


class TensorQuant(Part):
    """Quantization of one activation tensor."""

    name: str
    scale: float = Field(description="of the channel with the largest")
    zero_point: int = Field(description="of the channel with the lowest")
    channels: int = Field(1, description="number of scales; 1: one for all channels")
    smallest_scale: float | None = Field(None, description="of the channel with the smallest")
    highest_zero_point: int | None = Field(None, description="of the channel with the highest")
    minimum: float
    maximum: float
    lowest: float | None = Field(
        None, description="smallest value of int8, of the channel with the lowest"
    )
    highest: float | None = Field(
        None, description="largest value of int8, of the channel with the highest"
    )
    clip_fraction: float = Field(
        description="share of the calibration values beyond the range; 0 where a Relu or Clip "
        "follows that cuts them off anyway"
    )
    method: str = Field("", description="method by which the range was chosen")
    histogram: tuple[int, ...] = Field((), description=_HISTOGRAM)
    channel_ranges: tuple[ChannelRange, ...] = Field((), description=_CHANNEL_RANGES)


class WeightQuant(Part):
    """The weights of one layer, as the float model has them."""

    minimum: float
    maximum: float
    channels: int = Field(description="of the output")
    smallest_reach: float = Field(description="smallest of the largest magnitudes of all channels")
    clip_fraction: float = Field(description="share of the weights beyond what int8 holds")
    histogram: tuple[int, ...] = Field((), description=_HISTOGRAM)


class LayerQuant(Part):
    """The output of one layer on one sample, errors of earlier layers included."""

    name: str
    sqnr_db: float | None
    cosine: float | None
    note: str = ""
    rounding: str = Field("", description="method by which the weights were rounded")
    alone_db: float | None = Field(None, description="SQNR of the outputs if only this is rounded")
    noise_share: float | None = Field(None, description="0..1, of the noise in the outputs")
    weights: WeightQuant | None = None


class Assumed(Part):
    """Inputs that are assumed where no calibration data is given."""

    sentence: str = Field(description="complete description for people")
    pictures: Literal["photographs", "made-up", "none"]
    normalization: str = Field(description="of the pictures; empty where it is not known")
    certainty: Literal["given", "inferred", "guessed", "unknown"]
    share: float | None = Field(None, description="probability of the normalization, if inferred")
    runner_up: str = Field("", description="second most probable normalization, if inferred")


class ChangedScale(Part):
    """A tensor or layer of a quantized model whose integers differ from those it came with."""

    name: str = Field(description="tensor of the float graph, or node of the source")
    reason: str


class SourceScales(Part):
    """Scales that are kept of a model that was quantized already."""

    tensors: int = Field(description="int8 tensors that keep the scale of the source")
    all_tensors: int
    layers: int = Field(description="layers with the integer weights of the source")
    all_layers: int
    changed: tuple[ChangedScale, ...] = ()


class Quantization(Part):
    """Quantization of the model."""

    format: str
    method: str
    samples: int
    source: str = Field(description="origin of the samples")
    synthetic: bool
    tensors: tuple[TensorQuant, ...] = ()
    layers: tuple[LayerQuant, ...] = ()
    budget: Budget | None = None
    host_padding: HostPadding | None = Field(None, description="null unless the host may pad")
    source_scales: SourceScales | None = Field(
        None, description="null unless the model was quantized already and its scales are kept"
    )


class PartAccuracy(Part):
    """Accuracy of one tensor that an output is concatenated from."""

    name: str
    sqnr_db: float | None = Field(
        description="10 log10(sum f^2 / sum (f-q)^2); null: exact where the cosine is a number, "
        "else zeros or not finite"
    )
    cosine: float | None


class OutputAccuracy(PartAccuracy):
    """Accuracy of one output of the int8 model against the float model."""

    top1_agreement: float | None = Field(
        description="share of positions with the same largest class; null where nothing tells "
        "which axis has the classes: neither a Softmax nor the shape [N, C]"
    )
    parts: tuple[PartAccuracy, ...] = Field(
        (), description="tensors that it is concatenated from, as boxes and scores"
    )


class WorstSample(Part):
    """The sample on which the int8 model is furthest from the float model."""

    number: int = Field(description="in the data, from 0")
    sqnr_db: float


class Accuracy(Part):
    """Accuracy of the int8 model against the float model."""

    samples: int
    held_out: bool = Field(
        description="true: only the allocation of extra MACs has used these samples"
    )
    sqnr_db: float | None
    cosine: float | None
    top1_agreement: float | None
    outputs: tuple[OutputAccuracy, ...]
    interval_db: tuple[float, float] | None = Field(
        None, description="80 % interval of the SQNR on as many new samples; null without any error"
    )
    median_db: float | None = Field(None, description="of the SQNR of single samples")
    worst_sample: WorstSample | None = None
    worst_output: str | None = Field(None, description="the one with the lowest SQNR of several")
    unsaturated_db: float | None = Field(None, description="SQNR before a final Softmax or Sigmoid")
    notes: tuple[str, ...] = Field((), description="reasons why the figure says less")


class UnknownLimit(Part):
    """An undocumented limit, and the values that the model needs."""

    limit: str
    values: tuple[str, ...]
    nodes: int = Field(description="number of nodes that depend on it")
    example: str = Field(description="the node with the most demanding value")
    source: str
    assumption: str = ""


class Timing(Part):
    """Wall time of one stage, in seconds; only with --timings."""

    stage: str
    seconds: float


class VelaEstimate(Part):
    """Estimates of Arm's compiler Vela for the written file, with --with-vela.

    Figures are null where it does not compile the file.
    """

    command: str = Field(description="without the path of the file")
    error: str = Field("", description="last line of Vela where it fails")
    npu_operators: int | None = None
    cpu_operators: int | None = None
    refused: tuple[str, ...] = Field((), description="outputs of operators that it leaves to CPU")
    cycles: int | None = Field(None, description="of one inference")
    inference_ms: float | None = None
    sram_kib: float | None = None
    flash_kib: float | None = None


class Report(Part):
    """Report on one model for one target."""

    schema_version: Literal[1] = 1
    tool: Tool
    model: ModelInfo
    target: TargetInfo
    summary: Summary
    findings: tuple[FindingInfo, ...] = ()
    rules: tuple[RuleInfo, ...] = Field((), description="those that have findings")
    plan: tuple[RewriteRow, ...] = Field((), description="source nodes that become something else")
    rewrites: tuple[Rewrite, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    source_nodes: tuple[SourceNode, ...] = Field(
        (), description="the graph before it was rewritten; empty where nothing was"
    )
    device: Device | None = None
    calibration: Assumed | None = Field(
        None, description="what is taken, or would be, where no calibration data is given"
    )
    quantization: Quantization | None = None
    accuracy: Accuracy | None = None
    vela: VelaEstimate | None = Field(None, description="null without --with-vela")
    unknown_limits: tuple[UnknownLimit, ...] = ()
    timings: tuple[Timing, ...] | None = None

    @property
    def is_doubtful(self) -> bool:
        """True if it can be converted, but with warnings; undocumented limits are none."""
        warned = (f.severity == "warning" and f.status != "unknown" for f in self.left)
        return self.ok and (bool(self.summary.warnings) or any(warned))

    @property
    def left(self) -> tuple[FindingInfo, ...]:
        """Findings that no rewrite has removed, and no baseline accepts."""
        return tuple(f for f in self.findings if f.status != "rewritten" and not f.accepted)

    @property
    def ok(self) -> bool:
        """True if nothing blocks the conversion."""
        return self.summary.verdict != "refused"

    def __repr__(self) -> str:
        """Return the verdict in one line; the fields are what ``model_dump`` is for."""
        counted = sum(self.summary.by_severity.get(level, 0) for level in Severity)
        measured = self.accuracy and self.accuracy.sqnr_db
        accuracy = "" if measured is None else f", SQNR {measured:.1f} dB"
        return (
            f"<Report {self.model.path} on {self.target.name}: {self.summary.verdict}"
            f"{accuracy}, {counted} finding{'s' * (counted != 1)}>"
        )

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        html: str = _renderer("notebook").render(self)
        return html

    def save_html(self, path: str | Path) -> None:
        """Write the report as one HTML page, whole or not at all.

        Raises:
            OutputError: the destination cannot be written.
        """
        files.write(path, _renderer("html").render(self))


def _renderer(name: str) -> Any:
    """Return a module of ``npuconv.report``, which is imported when a report is shown."""
    return import_module(f"npuconv.report.{name}")
