"""Schema of the report of ``npuconv check`` and ``npuconv convert``.

A report does not depend on the clock, on chance or on the folder of the files: the same model
and options give the same bytes. Missing numbers are ``None``, never a guess.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from npuconv import files
from npuconv.amounts import count
from npuconv.findings import Severity, Status
from npuconv.schemas.quality import Accuracy, Assumed, QuantizationInfo
from npuconv.validated import Field, Record

SCHEMA_VERSION = 1
Placement = Literal["device", "host", "undocumented"]
Shape = tuple[int | str | None, ...] | None


class Tool(Record):
    """Program that wrote the report."""

    name: str = "npuconv"
    version: str


class TensorSpec(Record):
    """A model input or output."""

    name: str
    dtype: str
    shape: Shape = Field(description="a name is a symbolic dimension, null one of unknown size")


class ModelInfo(Record):
    """The source model."""

    path: str
    sha256: str
    ir_version: int
    opset: dict[str, int] = Field(description="opset by domain; '' is the ONNX standard domain")
    producer: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class TargetInfo(Record):
    """The target description that was used."""

    name: str
    version: str
    sha256: str


class Count(Record):
    """Nodes and multiply-accumulates of one placement."""

    nodes: int
    macs: int | None = Field(description="null where a dimension is not known")


class Summary(Record):
    """Verdict, exit code and counts."""

    verdict: Literal["convertible", "converted", "refused"]
    headline: str = Field(description="one sentence for people")
    warnings: tuple[str, ...] = Field(
        default=(), description="reasons not to trust the result as it is"
    )
    not_judged: tuple[str, ...] = Field(
        default=(), description="options that a check cannot judge, only a conversion can"
    )
    activations: Literal["int8", "float"] = Field(
        default="int8", description="element type in the model that convert writes, or would write"
    )
    exit_code: int
    by_severity: dict[Severity, int] = Field(
        description="findings left to look at, and `warnings`; without undocumented limits and "
        "what a baseline accepts"
    )
    by_status: dict[Status, int] = Field(description="all findings")
    placement: dict[Placement, Count]
    accepted: int = Field(default=0, description="remaining findings that a baseline accepts")
    transitions: int = Field(description="edges that cross between device and host")


class CodeFrame(Record):
    """A line of training code, from the stack trace of a node."""

    file: str
    line: int
    function: str
    text: str
    path: str = Field(
        default="",
        description="path of the file in `source_root`, and `line` is of it; empty: not there",
    )


class NodeSource(Record):
    """Training code of a node, as the exporter of the model wrote it."""

    module: str = Field(description="path of the module; empty: the model itself")
    class_name: str = Field(
        default="", keys=("class", "class_name"), description="`LayerNorm in BertEmbeddings`"
    )
    frame: CodeFrame | None = Field(
        default=None, description="the innermost frame outside of packages"
    )
    frames: tuple[CodeFrame, ...] = Field(
        default=(),
        description="all frames, the innermost last; of a finding those in `source_root`",
    )


class FindingInfo(Record):
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
    accepted: bool = Field(
        default=False, description="a baseline lists it: it does not fail a check"
    )
    node_source: NodeSource | None = Field(default=None, description="training code of the node")


class RuleInfo(Record):
    """A rule that has findings in the report; ``npuconv explain CODE`` shows more."""

    code: str
    name: str
    severity: Severity = Field(description="unless a finding or the user says otherwise")
    summary: str
    checks: str = Field(description="the condition that it checks")
    why: str = Field(description="consequence of a violation")
    fix: str = Field(description="general remedy")


class Alternative(Record):
    """One form a convolution could have taken."""

    form: str
    macs: int | None
    weight_bytes: int
    moved_bytes: int = Field(description="bytes copied between its parts, per inference")
    crossings: int = Field(
        default=0, description="tensors that cross because the host cuts and joins"
    )
    cost: float | None = Field(description="cost by the weights of the target; null: unknown")
    obstacle: str = Field(default="", description="reason why it is not possible; empty if it is")
    chosen: bool


class FormChoice(Record):
    """The forms that one pass had to choose from for a node."""

    pass_name: str = Field(keys=("pass", "pass_name"))
    alternatives: tuple[Alternative, ...]


class Rewrite(Record):
    """One change to the graph, measured against the nodes that it replaced."""

    pass_name: str = Field(keys=("pass", "pass_name"))
    node: str
    before: str
    after: str
    max_abs_difference: float | None = Field(
        description="largest difference of the outputs; null: not measured"
    )
    reference: str = Field(description="runtime of the original: onnxruntime, onnx.reference, ...")
    note: str = ""


class RewriteRow(Record):
    """Result of all rewrites together for one node of the source model."""

    node: str
    passes: tuple[str, ...] = Field(description="passes in the order in which they ran")
    was: str
    becomes: str
    macs_before: int | None = Field(description="null where a dimension is not known")
    macs_after: int | None
    weight_bytes_before: int = Field(description="bytes of int8 weights")
    weight_bytes_after: int
    choices: tuple[FormChoice, ...] = ()


class Refusal(Record):
    """A rewrite that was considered but not done, with the reason."""

    pass_name: str = Field(keys=("pass", "pass_name"))
    node: str
    reason: str


class NodeInfo(Record):
    """One node of the device-ready float graph."""

    name: str
    op: str
    placement: Placement
    reason: str
    macs: int | None
    parameters: int
    subgraph: int | None = Field(
        default=None, description="number of its subgraph; null on the host"
    )
    form: str = Field(
        default="", description="operator with its main attributes: `Conv 3x3, stride 2`"
    )
    inputs: tuple[str, ...] = Field(default=(), description="input tensors without constants")
    outputs: tuple[str, ...] = Field(default=(), description="output tensors")
    shape: Shape = Field(default=None, description="shape of its first output")
    source: NodeSource | None = Field(
        default=None, description="training code; null: the model names none"
    )


class SourceNode(Record):
    """One node of the source model; only reported if a node of it was rewritten."""

    name: str
    form: str = Field(description="operator with its main attributes: `Conv 3x3, stride 2`")
    inputs: tuple[str, ...] = Field(description="input tensors without constants")
    outputs: tuple[str, ...] = Field(description="output tensors")


class SubgraphTensor(Record):
    """A tensor that goes into a device subgraph, or comes out of it."""

    name: str
    bytes: int | None = Field(description="bytes in int8; null where a dimension is not known")


class DeviceSubgraph(Record):
    """Nodes that the device runs in one go, without the host in between."""

    number: int
    nodes: int
    first: str = Field(description="the first of its nodes")
    last: str
    macs: int | None
    inputs: tuple[SubgraphTensor, ...]
    outputs: tuple[SubgraphTensor, ...]


class Traffic(Record):
    """Tensors that cross between device and host in one inference, in one direction."""

    tensors: int
    bytes: int | None = Field(description="bytes in int8; null where a dimension is not known")


class MacShare(Record):
    """Multiply-accumulates on the device, and of the whole model."""

    device: int | None = Field(description="null where a dimension is not known")
    total: int | None


class FloatPattern(Record):
    """Nodes that one pattern of `keep_float` keeps on the host."""

    pattern: str
    nodes: int = Field(description="number of nodes of the source model")
    macs: int | None = Field(description="MACs that the device would run else; null: not known")


class KeptFloat(Record):
    """Cost of all `keep_float` patterns, compared with the same conversion without them."""

    patterns: tuple[FloatPattern, ...]
    transitions_without: int
    bytes_without: int | None = Field(description="bytes that would cross; null: not known")


class Device(Record):
    """Work and traffic of the device in one inference."""

    macs_before: MacShare = Field(description="MACs of the source model")
    macs_after: MacShare = Field(description="MACs of the rewritten model")
    to_device: Traffic
    to_host: Traffic
    subgraphs: tuple[DeviceSubgraph, ...]
    kept_float: KeptFloat | None = Field(
        default=None, description="null where `keep_float` is not given"
    )


class UnknownLimit(Record):
    """An undocumented limit, and the values that the model needs."""

    limit: str
    values: tuple[str, ...]
    nodes: int = Field(description="number of nodes that depend on it")
    example: str = Field(description="the node with the most demanding value")
    source: str
    assumption: str = ""


class Timing(Record):
    """Wall time of one stage, in seconds; only with --timings."""

    stage: str
    seconds: float


class Report(Record):
    """Report on one model for one target."""

    schema_version: Literal[1] = 1
    tool: Tool
    model: ModelInfo
    target: TargetInfo
    summary: Summary
    findings: tuple[FindingInfo, ...] = ()
    rules: tuple[RuleInfo, ...] = Field(default=(), description="rules that have findings")
    plan: tuple[RewriteRow, ...] = Field(
        default=(), description="source nodes that become something else"
    )
    rewrites: tuple[Rewrite, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    source_nodes: tuple[SourceNode, ...] = Field(
        default=(), description="the graph before it was rewritten; empty where nothing was"
    )
    device: Device | None = None
    calibration: Assumed | None = Field(
        default=None, description="samples that are assumed if no calibration data is given"
    )
    quantization: QuantizationInfo | None = None
    accuracy: Accuracy | None = None
    unknown_limits: tuple[UnknownLimit, ...] = ()
    timings: tuple[Timing, ...] | None = None

    @property
    def is_doubtful(self) -> bool:
        """True if it can be converted, but with warnings other than undocumented limits."""
        warned = (f.severity == "warning" and f.status != "unknown" for f in self.open_findings)
        return self.ok and (bool(self.summary.warnings) or any(warned))

    @property
    def open_findings(self) -> tuple[FindingInfo, ...]:
        """Findings that no rewrite has removed, and no baseline accepts."""
        return tuple(f for f in self.findings if f.status != "rewritten" and not f.accepted)

    @property
    def ok(self) -> bool:
        """True if nothing blocks the conversion."""
        return self.summary.verdict != "refused"

    def __repr__(self) -> str:
        """Return the verdict in one line; ``model_dump`` returns all fields."""
        counted = sum(self.summary.by_severity.get(level, 0) for level in Severity)
        measured = self.accuracy and self.accuracy.sqnr_db
        accuracy = "" if measured is None else f", SQNR {measured:.1f} dB"
        return (
            f"<Report {self.model.path} on {self.target.name}: {self.summary.verdict}"
            f"{accuracy}, {count(counted, 'finding')}>"
        )

    __str__ = __repr__

    def _repr_html_(self) -> str:
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
