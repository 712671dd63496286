"""A realistic report with every section filled, and names that try to break out of a format."""

from __future__ import annotations

from collections import Counter
from typing import Any

from npuconv.findings import Severity, Status
from npuconv.schemas.quality import (
    Accuracy,
    LayerQuant,
    OutputAccuracy,
    PartAccuracy,
    QuantizationInfo,
    TensorQuant,
)
from npuconv.schemas.report import (
    CodeFrame,
    Count,
    Device,
    DeviceSubgraph,
    FindingInfo,
    MacShare,
    ModelInfo,
    NodeInfo,
    NodeSource,
    Refusal,
    Report,
    Rewrite,
    SubgraphTensor,
    Summary,
    TargetInfo,
    TensorSpec,
    Timing,
    Tool,
    Traffic,
    UnknownLimit,
)
from report.plan_factory import make_plan

EVIL = (
    "\x1b[31mred\x1b[0m",
    "line\nfeed\r::error::forged",
    "::error file=x::forged",
    "<script>alert(1)</script>",
    "a|b`c*d_e_[f](g)\\",
    "nul\x00bell\x07\u202eevil\u2028end\uffff",
    "##[error]forged ##vso[task.complete]",
    "100%,a:b]]>&amp;\"'",
    "层/卷积" * 30,
    "/backbone" * 40 + "/Conv",
)


def code(
    module: str, file: str = "models/net.py", text: str = "return y", **changes: Any
) -> NodeSource:
    """Training code of a node: a line of that file."""
    frame = CodeFrame(file=file, line=42, function="forward", text=text, **changes)
    return NodeSource.model_validate(
        {"module": module, "class": "Conv2d in Stem", "frame": frame, "frames": (frame,)}
    )


def finding(node: str = "/stem/Conv", **changes: Any) -> FindingInfo:
    """One finding; an error of one rule unless told otherwise."""
    values: dict[str, Any] = {
        "code": "KRN001",
        "name": "kernel-too-large",
        "severity": Severity.ERROR,
        "status": Status.REMAINING,
        "node": node,
        "op_type": "Conv",
        "message": "kernel height 11 exceeds 7",
        "value": "11",
        "limit": "at most 7",
        "source": "npu-int8.yaml:31, notes/kernel_shape",
        "fix": "split the kernel, or train with one of at most 7 x 7",
        "rewritten_by": "",
        "rewritten_into": "",
    }
    return FindingInfo(**(values | changes))


_POOL: dict[str, Any] = {
    "code": "OPS002",
    "name": "operator-undocumented",
    "severity": Severity.WARNING,
    "op_type": "Sigmoid",
    "message": "the target says nothing of Sigmoid; it is left to the host",
    "value": "Sigmoid",
    "limit": "",
    "source": "npu-int8.yaml:58, notes/operators",
    "fix": "ask the hardware's owner, or add the operator to the target file",
}
_UNKNOWN: dict[str, Any] = {
    "code": "LIM001",
    "name": "limit-unknown",
    "severity": Severity.WARNING,
    "status": Status.UNKNOWN,
    "value": "3",
    "limit": "?",
    "source": "npu-int8.yaml:22, notes/kernel_shape",
    "fix": "",
}
_REWRITTEN: dict[str, Any] = {
    "code": "PAD001",
    "name": "auto-pad-unsupported",
    "status": Status.REWRITTEN,
    "message": "auto_pad is SAME_UPPER, only NOTSET reaches the device",
    "value": "SAME_UPPER",
    "limit": "NOTSET",
    "source": "npu-int8.yaml:12, notes/auto_pad",
    "fix": "",
    "rewritten_by": "make-pads-explicit",
    "rewritten_into": "pads=[0, 0, 1, 1]",
}


def _findings() -> tuple[FindingInfo, ...]:
    return (
        finding("/backbone/stem/conv/Conv", node_source=code("stem.conv")),
        finding("/head/conv_cls/Conv", message="kernel height 9 exceeds 7", value="9"),
        finding(
            "",
            code="SHP004",
            name="dynamic-batch",
            op_type="",
            message="the batch is dynamic",
            value="N",
            limit="a number",
            fix="give --input-shape image=1,3,240,320",
            source="",
        ),
        *(
            finding(f"/backbone/stage{at}/act/Sigmoid", **_POOL, node_source=code(f"body.{at}.act"))
            for at in range(12)
        ),
        *(
            finding(
                name,
                **{**_POOL, "message": f"odd name {name}"},
                node_source=code(name, name, name, path=name),
            )
            for name in EVIL
        ),
        *(
            finding(
                f"/neck/{at}/Conv", **{**_UNKNOWN, "value": str(at), "message": f"kernel_h is {at}"}
            )
            for at in (1, 3, 5)
        ),
        finding(
            "/neck/5/Conv",
            code="QNT003",
            name="range-wide",
            severity=Severity.NOTE,
            message="two channels hold most of the range",
            value="",
            limit="",
            source="",
            fix="",
        ),
        *(finding(f"/neck/{at}/Conv", **_REWRITTEN) for at in range(3)),
        finding("/neck/9/Conv", **{**_REWRITTEN, "rewritten_into": "pads=[1, 1, 0, 0]"}),
    )


def rewrite(pass_name: str, **values: Any) -> Rewrite:
    """One change; ``pass`` is a word of Python, so it goes in by way of a dict."""
    return Rewrite.model_validate({"pass": pass_name, **values})


def refusal(pass_name: str, **values: Any) -> Refusal:
    """A rewrite that was considered but not done."""
    return Refusal.model_validate({"pass": pass_name, **values})


def _rewrites() -> tuple[Rewrite, ...]:
    pads = tuple(
        rewrite(
            "make-pads-explicit",
            node=f"/neck/{at}/Conv",
            before="auto_pad=SAME_UPPER",
            after="pads=[0, 0, 1, 1]",
            max_abs_difference=0.0,
            reference="onnxruntime" if at else "onnx.reference",
        )
        for at in range(3)
    )
    fused = (1.2e-7, 3.4e-6, None)
    folds = tuple(
        rewrite(
            "fuse-batchnorm",
            node=EVIL[at],
            before="Conv + BatchNormalization",
            after="Conv",
            max_abs_difference=difference,
            reference="onnxruntime",
            note="" if at else "bias was added",
        )
        for at, difference in enumerate(fused)
    )
    return (*pads, *folds)


def _device() -> Device:
    def one(number: int, name: str, size: int | None) -> DeviceSubgraph:
        return DeviceSubgraph(
            number=number,
            nodes=number,
            first=name,
            last=name,
            macs=size,
            inputs=(
                SubgraphTensor(name="image", bytes=230_400),
                SubgraphTensor(name=name, bytes=size),
            ),
            outputs=(SubgraphTensor(name=name, bytes=512),),
        )

    return Device(
        macs_before=MacShare(device=145_640_000, total=1_213_700_000),
        macs_after=MacShare(device=1_203_400_000, total=1_213_700_000),
        to_device=Traffic(tensors=2, bytes=3_072),
        to_host=Traffic(tensors=1, bytes=None),
        subgraphs=tuple(one(at, name, at * 1000 or None) for at, name in enumerate(EVIL, 1)),
    )


def _layers() -> tuple[LayerQuant, ...]:
    named = tuple(
        LayerQuant(name=f"/backbone/stage{at}/conv/Conv", sqnr_db=16.5 + 2.75 * at, cosine=0.99)
        for at in range(14)
    )
    evil = LayerQuant(name=EVIL[3], sqnr_db=7.25, cosine=0.91, note="weights dominate")
    return (*named, evil, LayerQuant(name="/head/Conv", sqnr_db=None, cosine=None, note="no data"))


_NODES = (
    NodeInfo(
        name=EVIL[3],
        op="Conv",
        placement="device",
        reason="",
        macs=1 << 30,
        parameters=864,
        source=code(EVIL[4], EVIL[5], EVIL[3]),
    ),
    NodeInfo(
        name="/act",
        op="Sigmoid",
        placement="undocumented",
        reason="not listed",
        macs=None,
        parameters=0,
    ),
)
_QUANTIZATION = QuantizationInfo(
    format="qoperator",
    method="mse",
    samples=8,
    source="dead leaves",
    synthetic=True,
    tensors=(
        TensorQuant(
            name="image",
            scale=0.0078431,
            zero_point=0,
            minimum=-1.0,
            maximum=1.0,
            clip_fraction=0.0004,
        ),
    ),
    layers=_layers(),
)
_ACCURACY = Accuracy(
    samples=16,
    held_out=False,
    sqnr_db=21.34,
    cosine=0.99631,
    top1_agreement=0.9375,
    outputs=(
        OutputAccuracy(
            name="boxes",
            sqnr_db=21.3,
            cosine=0.9963,
            top1_agreement=0.9375,
            parts=(
                PartAccuracy(name="/head/Mul", sqnr_db=21.3, cosine=0.9963),
                PartAccuracy(name=EVIL[2], sqnr_db=4.1, cosine=0.71),
            ),
        ),
        OutputAccuracy(name=EVIL[2], sqnr_db=None, cosine=1.0, top1_agreement=None),
    ),
)
_UNKNOWN_LIMITS = (
    UnknownLimit(
        limit="Conv.kernel_h",
        values=("1", "3", "5"),
        nodes=41,
        example="/neck/5/Conv",
        source="npu-int8.yaml:22, notes/kernel_shape",
    ),
    UnknownLimit(
        limit="Conv.fused_activations",
        values=("Relu", "Clip(0, 6)"),
        nodes=30,
        example=EVIL[9],
        source="npu-int8.yaml:40",
        assumption="Relu and Clip can be fused",
    ),
)


def make_report(**changes: Any) -> Report:
    """A refused report with every section filled."""
    values: dict[str, Any] = {
        "tool": Tool(version="0.1.0"),
        "model": ModelInfo(
            path="models/face_detector.onnx",
            sha256="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            ir_version=8,
            opset={"": 17},
            producer="pytorch 2.4",
            inputs=(TensorSpec(name="image", dtype="float32", shape=("N", 3, 240, 320)),),
            outputs=(TensorSpec(name="boxes", dtype="float32", shape=None),),
        ),
        "target": TargetInfo(
            name="npu-int8", version="1", sha256="60303ae22b998861bce3b28f33eec1be"
        ),
        "summary": make_summary(),
        "findings": _findings(),
        "plan": make_plan(EVIL),
        "device": _device(),
        "rewrites": _rewrites(),
        "refusals": (
            refusal("fuse-batchnorm", node=EVIL[0], reason="its weight is shared with 'x'"),
            refusal("fold-pad", node="", reason="the fill value is 1, not 0"),
        ),
        "nodes": _NODES,
        "quantization": _QUANTIZATION,
        "accuracy": _ACCURACY,
        "unknown_limits": _UNKNOWN_LIMITS,
        "timings": (Timing(stage="legalize", seconds=0.25),),
    }
    report = Report(**(values | changes))
    counts = Counter(f.severity for f in report.open_findings if f.status is not Status.UNKNOWN)
    counts[Severity.ERROR] = sum(f.severity is Severity.ERROR for f in report.open_findings)
    counts[Severity.WARNING] += len(report.summary.warnings)
    summary = report.summary.model_copy(
        update={"by_severity": {level: counts[level] for level in Severity if counts[level]}}
    )
    return report.model_copy(update={"summary": summary})


def make_summary(**changes: Any) -> Summary:
    """The summary of that report."""
    values: dict[str, Any] = {
        "verdict": "refused",
        "headline": "3 errors of 2 rules block the conversion",
        "warnings": (
            "calibrated on synthetic inputs, accuracy is unproven: give a handful of real samples "
            "with --calibration",
        ),
        "exit_code": 1,
        "by_severity": {},
        "by_status": {Status.REMAINING: 26, Status.REWRITTEN: 4, Status.UNKNOWN: 3},
        "placement": {
            "device": Count(nodes=61, macs=1_203_400_000),
            "host": Count(nodes=5, macs=10_300_000),
            "undocumented": Count(nodes=4, macs=0),
        },
        "transitions": 3,
    }
    return Summary(**(values | changes))


def make_clean() -> Report:
    """A report without findings."""
    summary = make_summary(
        verdict="converted",
        headline="every node is within the limits",
        warnings=(),
        exit_code=0,
        by_severity={},
        by_status={},
        transitions=0,
        placement={"device": Count(nodes=2, macs=None)},
    )
    empty = {
        "findings": (),
        "plan": (),
        "device": None,
        "rewrites": (),
        "refusals": (),
        "nodes": (),
        "unknown_limits": (),
    }
    return make_report(summary=summary, quantization=None, accuracy=None, timings=None, **empty)
