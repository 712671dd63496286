"""Lint, canonicalize, legalize, lint again: what stays is remaining, what went is rewritten."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from npuconv import executor
from npuconv.config import Options
from npuconv.diagnostics import Finding, Severity, Status, sort_key
from npuconv.errors import ModelError
from npuconv.model import edit, load, query, save, shapes
from npuconv.passes import Pass, Phase, _manager
from npuconv.passes._context import PassContext, RewriteRecord
from npuconv.pipeline.assemble import describe, tensor_spec
from npuconv.plan import Plan, make_plan
from npuconv.rules import _engine
from npuconv.rules._context import RuleContext
from npuconv.rules._unknown import Need, needs
from npuconv.target import Target

if TYPE_CHECKING:
    import onnx

    from npuconv.model.core import Model
    from npuconv.report.schema import NodeInfo, TensorSpec


_SWEEP = "sweep"  # what takes out nodes that nothing reads; no pass


@dataclass
class Legalized:
    """A model as legal as it gets, and everything there is to say about the way there."""

    model: Model
    target: Target
    options: Options
    ctx: PassContext
    source: SourceInfo
    findings: list[Finding] = field(default_factory=list)
    blocked: set[str] = field(default_factory=set)  # names of nodes kept off the device
    plan: Plan = field(default_factory=Plan)
    needs: list[Need] = field(default_factory=list)
    nodes: tuple[NodeInfo, ...] = ()
    transitions: int = 0
    timings: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class SourceInfo:
    """The model as it came, before anything is changed."""

    ir_version: int
    opset: dict[str, int]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def legalize(source: str | Path | onnx.ModelProto, options: Options) -> Legalized:
    """Everything check does, and convert does first.

    Raises:
        ModelError: not a valid model.
        TargetError: not a valid target description.
        UsageError: an input shape that does not fit.
        InternalError: a bug in a rule or pass.
    """
    start = time.perf_counter()
    target = Target.load(options.target)
    model = load.load(source)
    info = _source_info(model)
    shapes.fix_inputs(model, options.input_shape)
    contradiction = shapes.infer(model)
    work = Legalized(model, target, options, _context(target, options), info)
    work.timings.append(("load", time.perf_counter() - start))
    before = _engine.lint(_rules(work))
    if contradiction and not any(f.severity == Severity.ERROR for f in before):
        _refuse_unless_it_runs(model, contradiction)
    # Nothing can be said of what a rewrite does to a node that means nothing.
    malformed = _engine.is_malformed(before)
    gone = {} if malformed else _rewrite(work, before)
    after = before if malformed else _engine.lint(_rules(work))
    work.blocked = _blocked(model, after)
    work.plan = make_plan(model, target, work.blocked)
    work.needs = needs(model, _rules(work))
    work.findings = _merge(work, before, after, gone)
    describe(work)
    return work


def _refuse_unless_it_runs(model: Model, contradiction: str) -> None:
    """Shapes that contradict each other are the model's fault, if a runtime says so too."""
    try:
        executor.Session(save.to_proto(model))
    except executor.RuntimeRefusedError:
        raise ModelError(f"{model.name}: cannot be run: {contradiction}") from None


def _context(target: Target, options: Options) -> PassContext:
    return PassContext(target, options, verify=options.verify)


def _rules(work: Legalized) -> RuleContext:
    return RuleContext(work.model, work.target, work.options)


def _source_info(model: Model) -> SourceInfo:
    domains = {o.domain: int(o.version) for o in model.graph.import_domains or ()}
    return SourceInfo(
        model.header.ir_version,
        {"": model.opset, **{d: v for d, v in sorted(domains.items()) if d}},
        tuple(tensor_spec(t) for t in model.graph.inputs),
        tuple(tensor_spec(t) for t in model.graph.outputs),
    )


def _rewrite(work: Legalized, before: list[Finding]) -> dict[tuple[str, tuple[str, ...]], str]:
    """Run the float phases; which finding went with which pass."""
    gone: dict[tuple[str, tuple[str, ...]], str] = {}
    open_ = [f for f in before if f.severity != Severity.NOTE and f.status != Status.UNKNOWN]

    def after_pass(item: Pass, seconds: float) -> None:
        work.timings.append((item.name, seconds))
        if open_:
            open_[:] = _still_there(work, open_, item.name, gone)

    if edit.sweep(work.model):  # here, or the first pass that fires would get the credit
        open_[:] = _still_there(work, open_, _SWEEP, gone)
    for phase in (Phase.CANONICALIZE, Phase.LEGALIZE):
        _manager.run_phase(work.model, phase, work.ctx, after_pass)
    edit.sweep(work.model)
    return gone


def _still_there(
    work: Legalized,
    open_: list[Finding],
    pass_name: str,
    gone: dict[tuple[str, tuple[str, ...]], str],
) -> list[Finding]:
    now = _engine.lint(_rules(work), only={f.code for f in open_})
    remaining = _Index(now)
    for finding in open_:
        if not remaining.has(finding):
            gone[finding.key] = pass_name
    return [f for f in open_ if f.key not in gone]


class _Index:
    """Findings by code and by every source node they stand for."""

    def __init__(self, findings: list[Finding]) -> None:
        self._keys = {(f.code, label) for f in findings for label in f.origin or ("",)}

    def has(self, finding: Finding) -> bool:
        """Whether a finding of that code still stands for one of its source nodes."""
        return any((finding.code, label) in self._keys for label in finding.origin or ("",))


def _blocked(model: Model, findings: list[Finding]) -> set[str]:
    labels = {
        label
        for f in findings
        if f.severity == Severity.ERROR and f.status == Status.REMAINING
        for label in f.origin
    }
    return {n.name for n in model.nodes(*query.CONVOLUTIONS) if model.label(n) in labels}


def _merge(
    work: Legalized,
    before: list[Finding],
    after: list[Finding],
    gone: dict[tuple[str, tuple[str, ...]], str],
) -> list[Finding]:
    """What stays, and what went and by which pass; as the user's options want it."""
    index = _Index(after)
    passes = _passes_by_origin(work.ctx.rewrites)
    rewritten = [
        _rewritten(f, gone.get(f.key, ""), passes)
        for f in before
        if f.status != Status.UNKNOWN and not index.has(f)
    ]
    chosen = (f for f in [*after, *rewritten] if _selected(f.code, work.options))
    weighed = (_weigh(f, work.options) for f in chosen)
    return sorted((f for f in weighed if f is not None), key=sort_key)


def _passes_by_origin(records: list[RewriteRecord]) -> dict[str, list[RewriteRecord]]:
    found: dict[str, list[RewriteRecord]] = {}
    for record in records:
        for label in record.origin:
            found.setdefault(label, []).append(record)
    return found


def _rewritten(finding: Finding, pass_name: str, passes: dict[str, list[RewriteRecord]]) -> Finding:
    records = [r for label in finding.origin for r in passes.get(label, ())]
    exact = [r for r in records if r.pass_name == pass_name] or ([] if pass_name else records)
    name = pass_name or (exact[-1].pass_name if exact else _SWEEP)
    into = exact[-1].after if exact else ("nothing reads it any more" if name == _SWEEP else "")
    return finding.with_status(Status.REWRITTEN, rewritten_by=name, rewritten_into=into)


def _selected(code: str, options: Options) -> bool:
    wanted = not options.select or any(code.startswith(p) for p in options.select)
    return wanted and not any(code.startswith(p) for p in options.ignore)


def _weigh(finding: Finding, options: Options) -> Finding | None:
    if finding.status != Status.UNKNOWN or options.unknown == "warn":
        return finding
    if options.unknown == "pass":
        return None
    from dataclasses import replace

    return replace(finding, severity=Severity.ERROR)


def fails(findings: list[Finding], options: Options) -> bool:
    """Whether findings at or above ``fail_on`` are left."""
    level: dict[str, Callable[[Finding], bool]] = {
        "error": lambda f: f.severity == Severity.ERROR,
        "warning": lambda f: f.severity in (Severity.ERROR, Severity.WARNING),
        "unknown": lambda f: f.severity == Severity.ERROR or f.status == Status.UNKNOWN,
        "never": lambda _f: False,
    }
    left = [f for f in findings if f.status != Status.REWRITTEN]
    return any(level[options.fail_on](f) for f in left)
