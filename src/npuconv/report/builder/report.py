"""The report of a check or a conversion, built from values, once, at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, get_args

from npuconv.config import Options
from npuconv.findings import Finding, Severity, Status
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.selection import failing, fails, stale
from npuconv.partition import crossings
from npuconv.records import dataclass
from npuconv.report.builder.placement_rows import device_row, node_rows, node_source
from npuconv.report.groups import kind
from npuconv.report.words import count, total
from npuconv.rules.checks.crossings_dominate import crossings_dominate
from npuconv.rules.checks.host_dominates import host_dominates
from npuconv.rules.checks.limit_unknown import limit_unknown
from npuconv.rules.engine import all_rules
from npuconv.schemas import quality
from npuconv.schemas import report as schema
from npuconv.schemas.report import NodeInfo
from npuconv.timings import Timings
from npuconv.version import __version__


@dataclass(frozen=True)
class RunResults:
    """Results of a run on samples."""

    calibration: quality.Assumed | None = None  # inputs that are assumed without calibration data
    quantization: quality.QuantizationInfo | None = None  # how the model was quantized
    accuracy: quality.Accuracy | None = None  # how far it is from the float model
    not_judged: tuple[str, ...] = ()  # options of a check that only a conversion can judge
    warnings: tuple[str, ...] = ()  # sentences that a reader must know before trusting the result


NO_RESULTS = RunResults()


def build_report(
    legal: LegalModel,
    rewritten: tuple[schema.RewriteRow, ...],
    results: RunResults = NO_RESULTS,
    *,
    is_check: bool = False,
    timings: Timings | None = None,
) -> schema.Report:
    """Build the report of a check or a conversion.

    Args:
        legal: the graph, with all findings.
        rewritten: rows of the source nodes that become something else.
        results: results of the run on samples.
        is_check: True for a check; an accepted error fails a conversion, but no check.
        timings: seconds of each stage; without them the report has no timings.
    """
    model, source, target = legal.model, legal.source, legal.target
    subgraphs = crossings.subgraphs(model, legal.plan)
    is_refused, nodes = legal.findings.refuse, node_rows(legal, subgraphs)
    verdict: Verdict = "convertible" if is_check else "converted"
    verdict = "refused" if is_refused else verdict
    device = device_row(legal, nodes, subgraphs)
    findings = legal.findings.selected
    remaining = [finding for finding in findings if finding.status != Status.REWRITTEN]
    warnings = (*results.warnings, *stale(legal.findings.accepted, legal.findings.all_findings))
    kinds = Counter(kind(finding) for finding in remaining if not finding.accepted)
    kinds["warning"] += len(warnings)
    statuses, codes = Counter(finding.status for finding in findings), {f.code for f in findings}
    removed = {node.name for node in source.nodes} - {node.name for node in nodes}
    placement = {}
    for place in get_args(schema.Placement):
        placed = [node for node in nodes if node.placement == place]
        placement[place] = schema.Count(nodes=len(placed), macs=total(n.macs for n in placed))
    limits = [
        schema.UnknownLimit(
            limit=need.name,
            values=tuple(str(v).lower() if isinstance(v, bool) else str(v) for v in need.values),
            nodes=need.nodes,
            example=need.label,
            source=need.limit.cite(),
        )
        for need in legal.needs
    ]
    assumptions = [
        schema.UnknownLimit(
            limit=path, values=(), nodes=len(legal.plan.convolutions), example="", source=path,
            assumption=text,
        )
        for path, text in target.assumptions()
    ]  # fmt: skip
    return schema.Report(
        tool=schema.Tool(version=__version__),
        model=schema.ModelInfo.from_attributes(
            source,
            path=model.name,
            sha256=model.sha256,
            producer=f"{model.header.producer_name} {model.header.producer_version}".strip(),
        ),
        target=schema.TargetInfo.from_attributes(target),
        summary=schema.Summary(
            verdict=verdict,
            headline=headline(legal.options, nodes, verdict, remaining, warnings),
            activations="int8" if legal.options.calibrates else "float",
            warnings=warnings,
            not_judged=results.not_judged,
            exit_code=int(fails(findings, legal.options) if is_check else is_refused),
            by_severity={severity: kinds[severity.value] for severity in Severity},
            by_status={status: statuses[status] for status in Status},
            accepted=sum(finding.accepted for finding in remaining),
            placement=placement,
            transitions=device.to_device.tensors + device.to_host.tensors,
        ),
        findings=tuple(
            schema.FindingInfo.from_attributes(
                finding, node_source=node_source(model, finding.node, located=True)
            )
            for finding in findings
        ),
        rules=tuple(
            schema.RuleInfo.from_attributes(
                rule,
                checks=rule.section("What it checks"),
                why=rule.section("Why it matters"),
                fix=rule.advice,
            )
            for rule in all_rules()
            if rule.code in codes
        ),
        plan=rewritten,
        rewrites=tuple(map(schema.Rewrite.from_attributes, legal.log.rewrites)),
        refusals=tuple(legal.log.refusals),
        nodes=nodes,
        source_nodes=source.nodes if removed or rewritten else (),
        device=device,
        calibration=results.calibration,
        quantization=results.quantization,
        accuracy=results.accuracy,
        unknown_limits=(*limits, *assumptions),
        timings=None if not timings else tuple(
            schema.Timing(stage=stage, seconds=round(seconds, 4))
            for stage, seconds in timings.seconds.items()
        ),
    )  # fmt: skip


Verdict = Literal["convertible", "converted", "refused"]


def headline(
    options: Options,
    nodes: Iterable[NodeInfo],
    verdict: Verdict,
    remaining: list[Finding],
    warnings: tuple[str, ...],
) -> str:
    """Return the verdict in one sentence."""
    if verdict == "refused":
        return _objection(options, remaining)
    convolutions = sum(node.placement == "device" and node.op == "Conv" for node in nodes)
    text = f"{count(convolutions, 'convolution')} on the device"
    unknown = sum(map(_is_limit, remaining))
    text += f", {count(unknown, 'undocumented limit')}" if unknown else ""
    costly = {crossings_dominate.code: "between its layers", host_dominates.code: "on it"}
    text += "".join(f", {f.value} {costly[f.code]}" for f in remaining if f.code in costly)
    return f"{text}; {warnings[0].partition(': ')[0]}" if warnings else text


def _is_limit(finding: Finding) -> bool:
    """Return whether the finding is an undocumented limit, not a node that depends on one."""
    return finding.status == Status.UNKNOWN and finding.code == limit_unknown.code


def _objection(options: Options, remaining: list[Finding]) -> str:
    """Return the reason against a conversion; accepted errors only if there is no other.

    Without errors that count it is the findings that ``--fail-on`` refuses.
    """
    errors = [finding for finding in remaining if finding.severity == Severity.ERROR]
    new = [finding for finding in errors if not finding.accepted]
    if not errors or (not new and fails(remaining, options)):
        level = options.fail_on
        counted = [f for f in remaining if not f.accepted and failing(f, level)]
        unknown = sum(map(_is_limit, counted))
        numbers = {"undocumented limit": unknown, "warning": len(counted) - unknown}
        counts = [count(number, noun) for noun, number in numbers.items() if number]
        return f"{' and '.join(counts)}, and --fail-on {level}"
    kinds = Counter(finding.name for finding in new or errors)
    named = ", ".join(f"{name} x {number}" for name, number in kinds.most_common(3))
    more = f" and {len(kinds) - 3} more kinds" if len(kinds) > 3 else ""
    noun = "error" if new else "accepted error"
    note = "" if new else "; it still cannot be converted"
    return f"{count(len(new or errors), noun)}: {named}{more}{note}"
