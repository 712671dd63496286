"""Lint, canonicalize, legalize, lint again: what stays is remaining, what went is rewritten."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from npuconv import executor
from npuconv.config import Options
from npuconv.diagnostics import Finding, Severity, Status, sort_key
from npuconv.errors import ModelError
from npuconv.legalize import kept, planned, selection
from npuconv.legalize import manager as _manager
from npuconv.legalize.context import PassContext
from npuconv.legalize.described import describe, tensor_spec
from npuconv.legalize.findings import SWEEP, Tracker, explained
from npuconv.legalize.registry import Pass, Phase
from npuconv.model import core, load, query, save, shapes, validate
from npuconv.partition import Plan, make_plan
from npuconv.rules import engine
from npuconv.rules.context import NodeFacts, RuleContext
from npuconv.rules.target_limits import Need, needs
from npuconv.target import Target

if TYPE_CHECKING:
    import onnx

    from npuconv.baseline import Key
    from npuconv.model.core import Model
    from npuconv.schemas.report import Device, NodeInfo, Planned, TensorSpec


@dataclass
class Legalized:
    """A model as legal as it gets, and everything there is to say about the way there."""

    model: Model
    target: Target
    options: Options
    ctx: PassContext
    source: SourceInfo
    findings: list[Finding] = field(default_factory=list)
    every: list[Finding] = field(default_factory=list)  # also those the options leave out
    listed: dict[Key, int] = field(default_factory=dict)  # what a baseline accepts of it
    blocked: set[str] = field(default_factory=set)  # names of nodes kept off the device
    kept: dict[str, str] = field(default_factory=dict)  # labels kept float, and by what
    plan: Plan = field(default_factory=Plan)
    needs: list[Need] = field(default_factory=list)
    before: planned.Source = field(default_factory=planned.Source)
    planned: tuple[Planned, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    device: Device | None = None
    timings: list[tuple[str, float]] = field(default_factory=list)
    fact_cache: dict[Hashable, NodeFacts] = field(default_factory=dict)  # of the rules

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note the seconds of a stage."""
        start = time.perf_counter()
        yield
        self.timings.append((stage, time.perf_counter() - start))


@dataclass(frozen=True)
class SourceInfo:
    """The model as it came, before anything is changed."""

    ir_version: int
    opset: dict[str, int]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def legalize(source: str | Path | onnx.ModelProto, options: Options) -> Legalized:
    """Legalize a model: all of check, and the first part of convert.

    Raises:
        ModelError: not a valid model.
        TargetError: not a valid target description.
        UsageError: an input shape that does not fit, or a code that no rule has.
        InternalError: a bug in a rule or pass.
    """
    work, contradiction = _open(source, options)
    rules = _rules(work)
    before = sorted(engine.lint(rules) + engine.lint(rules, at="source"), key=sort_key)
    work.before = planned.look(work.model)
    if contradiction and not any(f.severity == Severity.ERROR for f in before):
        _refuse_unless_it_runs(work.model, contradiction)
    # Nothing can be said of what a rewrite does to a node that means nothing; and what is wrong
    # with others, rewrites may mend.
    if malformed := engine.malformed(before):
        tracker = Tracker(malformed)
        work.before.settle(work.model, work.target, malformed)
        _conclude(work, tracker, malformed, rules)
        return work
    tracker = Tracker(before)
    _rewrite(work, tracker)
    rules = _rules(work)
    _conclude(work, tracker, engine.lint(rules), rules)
    return work


def _open(source: str | Path | onnx.ModelProto, options: Options) -> tuple[Legalized, str]:
    """The model as it came with all its shapes, and what is contradictory about these."""
    start = time.perf_counter()
    selection.check_codes(options)
    target = Target.load(options.target)
    model = load.load(source)
    info = _source_info(model)
    name = selection.name_of(source, model.name)
    options = selection.for_model(options, name)
    shapes.fix_inputs(model, options.input_shape)
    contradiction = shapes.infer(model)
    validate.check_tensor_sizes(model)
    work = Legalized(model, target, options, _context(target, options), info)
    work.kept = kept.find(model, options.keep_float, target)
    work.ctx.kept = frozenset(work.kept)
    work.listed = selection.listed_in(options, name, target.name)
    work.timings.append(("load", time.perf_counter() - start))
    return work, contradiction


def _conclude(work: Legalized, tracker: Tracker, after: list[Finding], rules: RuleContext) -> None:
    """Place every node, select the findings that are left, and describe both for the report."""
    model, target = work.model, work.target
    work.blocked = _blocked(model, after)
    work.plan = make_plan(model, target, work.blocked, kept=kept.names(model, work.kept))
    work.needs = needs(rules)
    work.every = explained(tracker.merge(after, work.ctx.rewrites), work.ctx.refusals)
    work.findings = selection.wanted(work.every, work.options, work.listed)
    if not any(map(selection.is_blocking, work.findings)):
        rules.plan = work.plan
        work.every = sorted(work.every + engine.lint(rules, at="planned"), key=sort_key)
        work.findings = selection.wanted(work.every, work.options, work.listed)
    work.planned = planned.rows(work)
    describe(work)


def _refuse_unless_it_runs(model: Model, contradiction: str) -> None:
    """Shapes that contradict each other are the model's fault, if a runtime says so too."""
    try:
        # Without its optimizer, which would compute constants of any size.
        executor.Session(save.to_proto(model), optimize=False)
    except executor.RuntimeRefusedError:
        raise ModelError(f"{model.name}: cannot be run: {contradiction}") from None


def _context(target: Target, options: Options) -> PassContext:
    return PassContext(target, options, verify=options.verify)


def _rules(work: Legalized) -> RuleContext:
    return RuleContext(
        work.model, work.target, work.options, work.fact_cache, kept_float=work.ctx.kept
    )


def _source_info(model: Model) -> SourceInfo:
    domains = {o.domain: int(o.version) for o in model.graph.import_domains or ()}
    return SourceInfo(
        model.header.ir_version,
        {"": model.opset, **{d: v for d, v in sorted(domains.items()) if d}},
        tuple(tensor_spec(t) for t in model.graph.inputs),
        tuple(tensor_spec(t) for t in model.graph.outputs),
    )


def _rewrite(work: Legalized, tracker: Tracker) -> None:
    """Run the float phases; the tracker notes which finding went with which pass."""

    def after_pass(item: Pass, seconds: float) -> None:
        work.timings.append((item.name, seconds))
        tracker.step(item.name, _rules(work))

    if core.sweep(work.model):  # here, or the first pass that fires would get the credit
        tracker.step(SWEEP, _rules(work))
    for phase in (Phase.CANONICALIZE, Phase.LEGALIZE):
        _manager.run_phase(work.model, phase, work.ctx, after_pass)
        if phase == Phase.CANONICALIZE:
            work.before.settle(work.model, work.target, tracker.open_errors())
    if core.sweep(work.model):
        tracker.step(SWEEP, _rules(work))


def _blocked(model: Model, findings: list[Finding]) -> set[str]:
    labels = {
        label
        for f in findings
        if f.severity == Severity.ERROR and f.status == Status.REMAINING
        for label in f.origin
    }
    return {n.name for n in model.nodes(*query.CONVOLUTIONS) if model.label(n) in labels}
