"""All of a conversion as a Report. Numbers are rounded here, once, for people and for bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.diagnostics import Finding, Severity, Status
from npuconv.legalize import planned
from npuconv.legalize.selection import stale
from npuconv.report.builder.headline import Verdict, headline
from npuconv.rules.engine import all_rules
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from npuconv.legalize.legal import Legalized

_PLACES: tuple[schema.Placement, ...] = ("device", "host", "undocumented")


@dataclass(frozen=True)
class Outcome:
    """Results of a conversion; a check sets only the first and the last.

    Attributes:
        calibration: the inputs that are assumed where no data is given.
        quantization: how the model was quantized.
        accuracy: how far it is from the float model.
        not_judged: what only a conversion can tell.
    """

    calibration: schema.Assumed | None = None
    quantization: schema.Quantization | None = None
    accuracy: schema.Accuracy | None = None
    not_judged: tuple[str, ...] = ()


NOTHING = Outcome()


def assemble(
    work: Legalized,
    *,
    verdict: Verdict,
    failed: bool,
    warnings: tuple[str, ...] = (),
    outcome: Outcome = NOTHING,
    timings: bool = False,
) -> schema.Report:
    """The report of a check or a conversion.

    Args:
        work: the legalized model with its findings.
        verdict: whether something stands against a conversion, and whether there was one.
        failed: whether findings at or above ``fail_on`` are left.
        warnings: what a reader must know before trusting the result.
        outcome: what a conversion has come to.
        timings: whether to say how long each stage took.
    """
    warnings += stale(work.listed, work.every)
    return schema.Report(
        tool=schema.Tool(version=_version()),
        model=_model(work),
        target=schema.TargetInfo(
            name=work.target.name, version=work.target.version, sha256=work.target.sha256
        ),
        summary=_summary(work, verdict, failed, warnings, outcome.not_judged),
        findings=tuple(_finding(f) for f in work.findings),
        rules=_rules(work),
        plan=work.planned,
        rewrites=_rewrites(work),
        refusals=_refusals(work),
        nodes=work.nodes,
        device=work.device,
        calibration=outcome.calibration,
        quantization=outcome.quantization,
        accuracy=outcome.accuracy,
        unknown_limits=_unknown_limits(work),
        timings=_timings(work) if timings else None,
    )


def _version() -> str:
    from npuconv.version import __version__

    return __version__


def _model(work: Legalized) -> schema.ModelInfo:
    model, source = work.model, work.source
    producer = f"{model.header.producer_name} {model.header.producer_version}".strip()
    return schema.ModelInfo(
        path=model.name,
        sha256=model.sha256,
        ir_version=source.ir_version,
        opset=source.opset,
        producer=producer,
        inputs=source.inputs,
        outputs=source.outputs,
    )


def _summary(
    work: Legalized,
    verdict: Verdict,
    failed: bool,
    warnings: tuple[str, ...],
    not_judged: tuple[str, ...],
) -> schema.Summary:
    left = [f for f in work.findings if f.status != Status.REWRITTEN]
    severities = Counter(f.severity for f in left)
    statuses = Counter(f.status for f in work.findings)
    return schema.Summary(
        verdict=verdict,
        headline=headline(work, verdict, left, warnings),
        warnings=warnings,
        not_judged=not_judged,
        exit_code=int(failed),
        by_severity={s: severities.get(s, 0) for s in Severity},
        by_status={s: statuses.get(s, 0) for s in Status},
        accepted=sum(f.accepted for f in left),
        placement={place: _count(work.nodes, place) for place in _PLACES},
        transitions=_transitions(work),
    )


def _transitions(work: Legalized) -> int:
    found = work.device
    return found.to_device.tensors + found.to_host.tensors if found else 0


def _count(nodes: tuple[schema.NodeInfo, ...], place: schema.Placement) -> schema.Count:
    there = [n for n in nodes if n.placement == place]
    macs = [n.macs for n in there]
    known = [m for m in macs if m is not None]
    return schema.Count(nodes=len(there), macs=sum(known) if len(known) == len(macs) else None)


def _finding(finding: Finding) -> schema.FindingInfo:
    return schema.FindingInfo(
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        status=finding.status,
        node=finding.node,
        op_type=finding.op_type,
        message=finding.message,
        value=finding.value,
        limit=finding.limit,
        source=finding.source,
        fix=finding.fix,
        accepted=finding.accepted,
        rewritten_by=finding.rewritten_by,
        rewritten_into=finding.rewritten_into,
    )


def _rules(work: Legalized) -> tuple[schema.RuleInfo, ...]:
    """Return the descriptions of the rules that have findings."""
    named = {f.code for f in work.findings}
    return tuple(
        schema.RuleInfo(
            code=rule.code,
            name=rule.name,
            severity=rule.severity,
            summary=rule.summary,
            checks=rule.section("What it checks"),
            why=rule.section("Why it matters"),
            fix=rule.advice,
        )
        for rule in all_rules()
        if rule.code in named
    )


def _rewrites(work: Legalized) -> tuple[schema.Rewrite, ...]:
    return tuple(
        schema.Rewrite(
            pass_name=r.pass_name,
            node=r.node,
            before=r.before,
            after=r.after,
            max_abs_difference=r.difference,
            reference=r.reference,
            note=r.note,
            macs_before=r.cost_before.macs,
            macs_after=r.cost_after.macs,
            weight_bytes_before=r.cost_before.weight_bytes,
            weight_bytes_after=r.cost_after.weight_bytes,
            alternatives=planned.choice(work, r).alternatives,
        )
        for r in work.ctx.rewrites
    )


def _refusals(work: Legalized) -> tuple[schema.Refusal, ...]:
    return tuple(
        schema.Refusal(pass_name=r.pass_name, node=r.node, reason=r.reason)
        for r in work.ctx.refusals
    )


def _unknown_limits(work: Legalized) -> tuple[schema.UnknownLimit, ...]:
    rows = [
        schema.UnknownLimit(
            limit=need.name,
            values=tuple(str(v).lower() if isinstance(v, bool) else str(v) for v in need.values),
            nodes=need.nodes,
            example=work.model.label(need.example),
            source=need.limit.cite(),
        )
        for need in work.needs
    ]
    return (*rows, *_assumptions(work))


def _assumptions(work: Legalized) -> list[schema.UnknownLimit]:
    """Return the assumptions of the target file, each as an unknown limit."""
    devices = len(work.plan.device)
    return [
        schema.UnknownLimit(
            limit=path, values=(), nodes=devices, example="", source=path, assumption=text
        )
        for path, text in work.target.assumptions()
    ]


def _timings(work: Legalized) -> tuple[schema.Timing, ...]:
    totals: dict[str, float] = {}
    for stage, seconds in work.timings:
        totals[stage] = totals.get(stage, 0.0) + seconds
    return tuple(schema.Timing(stage=s, seconds=round(t, 4)) for s, t in totals.items())
