"""The report of a check or a conversion, built from values, once, at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from npuconv import emit
from npuconv.config import Options
from npuconv.findings import Finding, Severity, Status
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.selection import failing, fails, stale
from npuconv.report.builder.placed import GraphRows, choice
from npuconv.report.groups import kind
from npuconv.report.words import total
from npuconv.rules.checks.crossings_dominate import crossings_dominate
from npuconv.rules.checks.host_dominates import host_dominates
from npuconv.rules.checks.limit_unknown import limit_unknown
from npuconv.rules.engine import all_rules
from npuconv.schemas import quality
from npuconv.schemas import report as schema
from npuconv.schemas.report import NodeInfo
from npuconv.timings import Timings
from npuconv.version import __version__

_PLACES: tuple[schema.Placement, ...] = ("device", "host", "undocumented")


@dataclass(frozen=True)
class Outcome:
    """Results of a conversion; a check sets only the first and the last."""

    calibration: quality.Assumed | None = None  # the inputs that are assumed where no data is given
    quantization: quality.Quantization | None = None  # how the model was quantized
    accuracy: quality.Accuracy | None = None  # how far it is from the float model
    not_judged: tuple[str, ...] = ()  # what only a conversion can tell


NOTHING = Outcome()


def build_report(
    legal: LegalModel,
    rows: GraphRows,
    verdict: Verdict,
    *,
    failed: bool,
    warnings: tuple[str, ...] = (),
    outcome: Outcome = NOTHING,
    timings: Timings | None = None,
) -> schema.Report:
    """Build the report of a check or a conversion.

    ``failed`` is whether the run fails: an accepted error fails a conversion, but no check.
    ``timings`` are seconds of each stage; without them the report says none.
    """
    found = legal.findings
    warnings += stale(found.accepted, found.every)
    target = legal.target
    removed = {node.name for node in legal.source.nodes} - {node.name for node in rows.nodes}
    return schema.Report(
        tool=schema.Tool(version=__version__),
        model=_model(legal),
        target=schema.TargetInfo(name=target.name, version=target.version, sha256=target.sha256),
        summary=_summary(legal, rows, verdict, failed, warnings, outcome.not_judged),
        findings=tuple(
            schema.FindingInfo.model_validate(one, from_attributes=True) for one in found.selected
        ),
        rules=_rules(found.selected),
        plan=rows.rewritten,
        rewrites=_rewrites(legal),
        refusals=_refusals(legal),
        nodes=rows.nodes,
        source_nodes=legal.source.nodes if removed or rows.rewritten else (),
        device=rows.device,
        calibration=outcome.calibration,
        quantization=outcome.quantization,
        accuracy=outcome.accuracy,
        unknown_limits=_unknown_limits(legal),
        timings=_timings(timings) if timings else None,
    )


def _model(legal: LegalModel) -> schema.ModelInfo:
    model, source = legal.model, legal.source
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
    legal: LegalModel,
    rows: GraphRows,
    verdict: Verdict,
    failed: bool,
    warnings: tuple[str, ...],
    not_judged: tuple[str, ...],
) -> schema.Summary:
    found, crossing = legal.findings.selected, rows.device
    left = [f for f in found if f.status != Status.REWRITTEN]
    kinds = Counter({"warning": len(warnings)}) + Counter(kind(f) for f in left if not f.accepted)
    statuses = Counter(f.status for f in found)
    return schema.Summary(
        verdict=verdict,
        headline=headline(legal.options, rows.nodes, verdict, left, warnings),
        activations="int8" if emit.get(legal.options.format).calibrates else "float",
        warnings=warnings,
        not_judged=not_judged,
        exit_code=int(failed),
        by_severity={s: kinds[s.value] for s in Severity},
        by_status={s: statuses.get(s, 0) for s in Status},
        accepted=sum(f.accepted for f in left),
        placement={place: _count(rows.nodes, place) for place in _PLACES},
        transitions=crossing.to_device.tensors + crossing.to_host.tensors,
    )


def _count(nodes: tuple[schema.NodeInfo, ...], place: schema.Placement) -> schema.Count:
    there = [n for n in nodes if n.placement == place]
    return schema.Count(nodes=len(there), macs=total(n.macs for n in there))


def _rules(findings: list[Finding]) -> tuple[schema.RuleInfo, ...]:
    named = {f.code for f in findings}
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


def _rewrites(legal: LegalModel) -> tuple[schema.Rewrite, ...]:
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
            alternatives=choice(legal, r).alternatives,
        )
        for r in legal.log.rewrites
    )


def _refusals(legal: LegalModel) -> tuple[schema.Refusal, ...]:
    return tuple(
        schema.Refusal(pass_name=r.pass_name, node=r.node, reason=r.reason)
        for r in legal.log.refusals
    )


def _unknown_limits(legal: LegalModel) -> tuple[schema.UnknownLimit, ...]:
    rows = [
        schema.UnknownLimit(
            limit=need.name,
            values=tuple(str(v).lower() if isinstance(v, bool) else str(v) for v in need.values),
            nodes=need.nodes,
            example=need.label,
            source=need.limit.cite(),
        )
        for need in legal.needs
    ]
    return (*rows, *_assumptions(legal))


def _assumptions(legal: LegalModel) -> list[schema.UnknownLimit]:
    """Return the assumptions of the target file, each as an unknown limit."""
    devices = len(legal.plan.device)
    return [
        schema.UnknownLimit(
            limit=path, values=(), nodes=devices, example="", source=path, assumption=text
        )
        for path, text in legal.target.assumptions()
    ]


def _timings(timings: Timings) -> tuple[schema.Timing, ...]:
    found = timings.seconds.items()
    return tuple(schema.Timing(stage=stage, seconds=round(s, 4)) for stage, s in found)


Verdict = Literal["convertible", "converted", "refused"]


def headline(
    options: Options,
    nodes: Iterable[NodeInfo],
    verdict: Verdict,
    left: list[Finding],
    warnings: tuple[str, ...],
) -> str:
    """The verdict in one sentence."""
    if verdict == "refused":
        return _objection(options, left)
    count = sum(1 for n in nodes if n.placement == "device" and n.op == "Conv")
    text = f"{count} convolution{'s' * (count != 1)} on the device"
    unknown = sum(map(_is_limit, left))
    text += f", {unknown} undocumented limit{'s' * (unknown != 1)}" if unknown else ""
    costly = {crossings_dominate.code: "between its layers", host_dominates.code: "on it"}
    text += "".join(f", {f.value} {costly[f.code]}" for f in left if f.code in costly)
    return f"{text}; {warnings[0].partition(': ')[0]}" if warnings else text


def _is_limit(finding: Finding) -> bool:
    """Return whether the finding is an undocumented limit, not a node that depends on one."""
    return finding.status == Status.UNKNOWN and finding.code == limit_unknown.code


def _objection(options: Options, left: list[Finding]) -> str:
    """Return the reason against a conversion; accepted errors only if there is no other."""
    errors = [f for f in left if f.severity == Severity.ERROR]
    new = [f for f in errors if not f.accepted]
    if not errors or (not new and fails(left, options)):
        return _failing(options, left)
    shown = new or errors
    kinds = Counter(f.name for f in shown)
    named = ", ".join(f"{name} x {n}" for name, n in kinds.most_common(3))
    more = f" and {len(kinds) - 3} more kinds" if len(kinds) > 3 else ""
    what = f"{'' if new else 'accepted '}error{'s' * (len(shown) != 1)}"
    note = "" if new else "; it still cannot be converted"
    return f"{len(shown)} {what}: {named}{more}{note}"


def _failing(options: Options, left: list[Finding]) -> str:
    """Return the reason where no error counts, but findings that ``--fail-on`` refuses."""
    level = options.fail_on
    counted = [f for f in left if not f.accepted and failing(f, level)]
    unknown = sum(map(_is_limit, counted))
    numbers = {"undocumented limit": unknown, "warning": len(counted) - unknown}
    counts = [f"{number} {kind}{'s' * (number != 1)}" for kind, number in numbers.items() if number]
    return f"{' and '.join(counts)}, and --fail-on {level}"
