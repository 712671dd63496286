"""Legalization of a model for a target: lint, canonicalize, legalize, lint again, partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from npuconv import executor
from npuconv.arithmetic.encoding import HIGHEST, LOWEST
from npuconv.config import Options
from npuconv.diagnostics import Finding, Severity, Status, sort_key
from npuconv.errors import ModelError
from npuconv.legalize import keep_float, manager, selection
from npuconv.legalize.context import PassContext, RefusalRecord, RewriteRecord
from npuconv.legalize.registry import Pass, Phase
from npuconv.legalize.rewrites.fit_convolution import fit_convolution, split_layers, splittable
from npuconv.legalize.rule_codes import check_codes
from npuconv.legalize.selection import Findings
from npuconv.legalize.source import SourceModel, SourceScales
from npuconv.model import core, load, query, save, shapes, validate
from npuconv.model.core import Model
from npuconv.partition import Plan, make_plan, saturation
from npuconv.partition.channels import uniform
from npuconv.rules import engine
from npuconv.rules.context import NodeFacts, RuleContext
from npuconv.rules.target_limits import Need, needs
from npuconv.target import Target
from npuconv.timings import Timings

if TYPE_CHECKING:
    from npuconv.legalize.fitting.builder import Builder, Mode

CALIBRATED_FORMS = ("qoperator", "qdq", "tflite")
LIMIT_UNKNOWN, UNDOCUMENTED = "OPS005", "OPS001"


@dataclass(frozen=True)
class LegalModel:
    """A legalized model, the placement of its nodes, and the findings of all rules."""

    model: Model  # the graph; steps that change it return a new plan with it
    target: Target
    options: Options  # of the run, with those for this model
    source: SourceModel  # the model as it came
    ctx: PassContext  # rewrites and refusals of the passes, and statistics of the training
    findings: Findings  # of all rules so far
    # Source nodes that stay float: label -> pattern of the user.
    kept: Mapping[str, str] = field(default_factory=dict)
    blocked: frozenset[str] = frozenset()  # names of convolutions that the device refuses
    plan: Plan = field(default_factory=Plan)  # where each node runs
    # Names of those that the device computes beside convolutions, as the first plan chose them:
    # later rewrites change what crosses, but not this choice.
    operators: frozenset[str] | None = None
    # The graph before layers were split that have the integers of the whole; None: it is ``model``.
    unsplit: Model | None = None
    summed: frozenset[str] = frozenset()  # names of convolutions whose int8 results are added
    needs: tuple[Need, ...] = ()  # values that the model needs of undocumented limits
    # What rules have measured of nodes, for the next lint.
    facts: dict[Hashable, NodeFacts] = field(default_factory=dict)

    def rules(self, **evidence: Any) -> RuleContext:
        """Return a context for rules."""
        kept = frozenset(self.kept)
        return RuleContext(
            self.model, self.target, self.options, self.facts, kept_float=kept, **evidence
        )

    def make_plan(self, model: Model | None = None) -> Plan:
        """Partition the graph as it is now, or that of another model."""
        model = model or self.model
        kept = keep_float.names(model, self.kept)
        plan = make_plan(
            model,
            self.target,
            self.blocked,
            kept=kept,
            operators=self.operators,
            form=self.options.format,
        )
        if activations := saturation.candidates(model, plan):
            planned = replace(self, model=model, plan=plan)
            fixed = {*planned.uniform_tensors, *planned.symmetric_tensors}
            centred = {*planned.centred_tensors, *planned.padded_tensors, *planned.partial_sums}
            saturation.absorb(activations, plan, self.target, fixed, centred)
        return plan

    @cached_property
    def uniform_tensors(self) -> list[str]:
        """Tensors that have one scale for all channels, and zero point 0."""
        names = uniform(self.plan)
        # one scale says what they stand for, and TFLite has one for a tensor
        if self.options.io == "int8" or self.options.format == "tflite":
            ends = (*self.model.graph.inputs, *self.model.graph.outputs)
            names += [tensor.name for tensor in ends]
        return names

    @cached_property
    def centred_tensors(self) -> list[str]:
        """Tensors whose zero point is 0: tensors of one scale, inputs and outputs of operators.

        And those around a convolution without a bias, which is where zero points go.

        Not the inputs of a TFLite model: there the file says the zero point of a tensor. And
        not tensors of operators where the device takes every zero point.
        """
        allows = self.target.activations.allows_zero_point
        takes_all = allows(LOWEST) and allows(HIGHEST)
        centred = [] if takes_all else [t.name for t in self.plan.operator_tensors]
        bare = [conv for conv in self.plan.device if conv.name in self.biasless]
        centred += [t.name for conv in bare for t in (conv.inputs[0], conv.outputs[0])]
        if self.options.io == "int8" or self.options.format != "tflite":
            return [*self.uniform_tensors, *centred]
        inputs = {tensor.name for tensor in self.model.graph.inputs} - set(uniform(self.plan))
        return [*(name for name in self.uniform_tensors if name not in inputs), *centred]

    @property
    def padded_tensors(self) -> set[str]:
        """Tensors that a convolution pads with stored zeros."""
        convs = (c for c in self.plan.device if any(query.attribute(c, "pads", ()) or ()))
        return {conv.inputs[0].name for conv in convs}

    @cached_property
    def biasless(self) -> frozenset[str]:
        """Names of convolutions to which the device can add no bias, or only a small one."""
        return frozenset(c.name for c in self.plan.device if self.ctx.is_biasless(c))

    @property
    def symmetric_tensors(self) -> set[str]:
        """Tensors that keep zero point 0 of a quantized source, whatever reads them."""
        source = self.ctx.source_scales if self.options.keep_scales else SourceScales()
        symmetric = {name for name, encoding in source.tensors.items() if not encoding.zeros.any()}
        producers = {label for label, name in source.made.items() if name in symmetric}
        nodes = self.model.nodes() if producers else []
        outputs = (n.outputs for n in nodes if not producers.isdisjoint(self.model.origin(n)))
        return symmetric | {tensor.name for tensors in outputs for tensor in tensors}

    @property
    def partial_sums(self) -> set[str]:
        """Tensors of convolutions in parts, whose sum is activated later."""
        return {c.outputs[0].name for c in self.plan.device if c.name in self.summed}

    def with_whole_layers(self) -> LegalModel:
        """Return the model as it is calibrated: layers that are split exactly are whole."""
        if self.unsplit is None:
            return self
        whole = replace(self, model=self.unsplit, unsplit=None)
        return replace(whole, plan=whole.make_plan())

    def with_findings(self, found: Iterable[Finding]) -> LegalModel:
        """Return the model with more findings."""
        return replace(self, findings=self.findings.add(found))

    def with_plan(self, plan: Plan, *, more_channels: bool = False) -> LegalModel:
        """Return the model with another plan.

        With ``more_channels`` it now needs other values of undocumented limits.

        Raises:
            InternalError: a bug in a rule.
        """
        if not more_channels:
            return replace(self, plan=plan)
        # The cache of facts is of the graph as it was.
        rules = replace(self, facts={}).rules()
        unknown = engine.lint(rules, only=[LIMIT_UNKNOWN])
        now = tuple(needs(rules))
        return replace(
            self, plan=plan, needs=now, findings=self.findings.renew(LIMIT_UNKNOWN, unknown)
        )


def legalize(
    source: str | Path | onnx.ModelProto, options: Options, timings: Timings | None = None
) -> LegalModel:
    """Legalize a model: the first part of check and of convert.

    Raises:
        ModelError: not a valid model.
        TargetError: not a valid target description.
        UsageError: an input shape that does not fit, or a code that no rule has.
        InternalError: a bug in a rule or pass.
    """
    timings = timings or Timings()
    with timings.measured("load"):
        legal, contradiction = _open(source, options)
    rules = legal.rules()
    # Nothing can be said of what a rewrite does to a node that means nothing; and what is wrong
    # with others, rewrites may mend.
    if malformed := engine.lint_malformed(rules):
        legal.source.record_costs(legal.model, legal.target, malformed)
        return _conclude(legal, Tracker(malformed), malformed, rules)
    before = sorted(engine.lint(rules) + engine.lint(rules, at="source"), key=sort_key)
    if contradiction and not any(f.severity == Severity.ERROR for f in before):
        _refuse_unless_it_runs(legal.model, contradiction)
    tracker = Tracker(before)
    legal = _split(_rewrite(legal, tracker, timings), tracker, timings)
    rules = legal.rules()
    return _conclude(legal, tracker, engine.lint(rules), rules)


def _open(source: str | Path | onnx.ModelProto, options: Options) -> tuple[LegalModel, str]:
    """Return the source model with inferred shapes, and the contradiction in these, or ''."""
    check_codes(options)
    target = Target.load(options.target).assuming(options.assume)
    model = load.load(source)
    info = SourceModel.of(model)
    name = selection.name_of(source, model.name)
    options = selection.for_model(options, name)
    shapes.fix_inputs(model, options.input_shape)
    contradiction = shapes.infer(model)
    validate.check_tensor_sizes(model)
    validate.check_types(model)
    info.record_nodes(model)
    kept = keep_float.find(model, options.keep_float, target)
    ctx = PassContext(target, options, verify=options.verify, kept=frozenset(kept))
    accepted = selection.listed_in(options, name, target.name)
    findings = Findings(options, accepted)
    return LegalModel(model, target, options, info, ctx, findings, kept), contradiction


def _conclude(
    legal: LegalModel, tracker: Tracker, after: list[Finding], rules: RuleContext
) -> LegalModel:
    """Partition the graph, and add up the findings."""
    legal = replace(legal, needs=tuple(needs(rules)))
    if legal.unsplit is not None and _has_integer_forms(legal):
        # The device adds in int32 and reads a bias as channels: no nodes are around these parts.
        model = legal.unsplit.copy()
        split_layers(model, legal.ctx.planner, splittable(model, legal.ctx))
        core.sweep(model)
        legal = replace(legal, model=model)
        rules = legal.rules()
        beside = [f for f in engine.lint(rules) if f.op_type not in query.CONVOLUTIONS]
        after = sorted([f for f in after if f.op_type in query.CONVOLUTIONS] + beside, key=sort_key)
    model, graphs = legal.model, [m for m in (legal.model, legal.unsplit) if m is not None]
    legal = replace(legal, blocked=frozenset().union(*(_blocked(m, after) for m in graphs)))
    plan = legal.make_plan()
    legal = replace(legal, plan=plan, operators=frozenset(n.name for n in plan.operators))
    device = {
        (node.op, model.label(node))
        for node in plan.passthrough
        if plan.placement[id(node)] == "device"
    }
    after = [f for f in after if f.code != UNDOCUMENTED or (f.op_type, f.node) not in device]
    merged = explained(tracker.merge(after, legal.ctx.rewrites), legal.ctx.refusals)
    findings = legal.findings.add(merged)
    if not any(map(selection.is_blocking, findings.selected)):
        rules.plan = legal.plan
        findings = findings.add(engine.lint(rules, at="planned"))
    return replace(legal, findings=findings)


def _refuse_unless_it_runs(model: Model, contradiction: str) -> None:
    """Refuse a model whose shapes contradict each other, if a runtime refuses it too."""
    try:
        # Without its optimizer, which would compute constants of any size.
        executor.Session(save.to_proto(model), threads=1, optimize=False)
    except executor.RuntimeRefusedError:
        raise ModelError(f"{model.name}: cannot be run: {contradiction}") from None


def _rewrite(legal: LegalModel, tracker: Tracker, timings: Timings) -> LegalModel:
    """Run the float phases; the tracker notes which finding went with which pass."""

    def after_pass(item: Pass, seconds: float) -> None:
        timings.add(item.name, seconds)
        tracker.step(item.name, legal.rules())

    if core.sweep(legal.model):  # here, or the first pass that fires would get the credit
        tracker.step(SWEEP, legal.rules())
    manager.run_phase(legal.model, Phase.CANONICALIZE, legal.ctx, after_pass)
    legal.source.record_costs(legal.model, legal.target, tracker.open_errors())
    manager.run_phase(legal.model, Phase.LEGALIZE, legal.ctx, after_pass)
    if core.sweep(legal.model):
        tracker.step(SWEEP, legal.rules())
    return legal


def _split(legal: LegalModel, tracker: Tracker, timings: Timings) -> LegalModel:
    """Write convolutions beyond a limit as several; keep the graph with whole layers for int8."""
    model, ctx = legal.model, legal.ctx

    def after_pass(item: Pass, seconds: float) -> None:
        timings.add(item.name, seconds)
        tracker.step(item.name, legal.rules())

    def write(mode: Mode) -> list[Builder]:
        start = time.perf_counter()
        builders: list[Builder] = manager.apply(model, fit_convolution, ctx, mode)
        if builders:
            after_pass(fit_convolution, time.perf_counter() - start)
            manager.run_phase(model, Phase.LEGALIZE, ctx, after_pass)
        return builders

    if legal.options.format not in CALIBRATED_FORMS:
        write("float")
        return legal
    convs = [conv for builder in write("rounding") for conv in builder.convs]
    unsplit = model.copy() if splittable(model, ctx) else None
    write("exact")
    summed = frozenset(conv.node for conv in convs if conv.summed)
    return replace(legal, unsplit=unsplit, summed=summed)


def _has_integer_forms(legal: LegalModel) -> bool:
    """Return whether a split layer has sums in int32, or a bias as input channels."""
    plans = (legal.ctx.split_plan(n) for n in legal.unsplit.nodes("Conv")) if legal.unsplit else ()
    return any(plan.biasless or plan.accumulates for plan in plans if plan is not None)


def _blocked(model: Model, findings: list[Finding]) -> frozenset[str]:
    """Return the names of convolutions with an error."""
    labels = {
        label
        for f in findings
        if f.severity == Severity.ERROR and f.status == Status.REMAINING
        for label in f.origin
    }
    convolutions = model.nodes(*query.CONVOLUTIONS)
    return frozenset(n.name for n in convolutions if model.label(n) in labels)


_REWRITERS = (  # passes that make one operator of another
    "rewrite-", "split-grouped-", "expand-", "lift-", "remove-fake-", "fit-",
)  # fmt: skip
SWEEP = "sweep"  # unused nodes go without a pass having to say so
# What became of nodes that passes leave no record of, one by one.
_UNSAID = {SWEEP: "nothing reads it any more", "fold-constants": "a constant"}

Key = tuple[str, tuple[str, ...]]


class Tracker:
    """Watches the findings of the source graph while passes change it.

    After each pass that fired the rules are asked again, only those that still have
    something open, and only of the nodes it is about. Notes are about a node being there,
    so for them it is enough to look whether it still is.
    """

    def __init__(self, before: list[Finding]) -> None:
        self._before = [f for f in before if f.status != Status.UNKNOWN]
        self._open = [f for f in self._before if f.severity != Severity.NOTE]
        self._notes = [f for f in self._before if f.severity == Severity.NOTE]
        self._gone: dict[Key, str] = {}

    def step(self, pass_name: str, ctx: RuleContext) -> None:
        """Credit findings that disappeared to this pass."""
        if self._open:
            marks = engine.marks_left(ctx, self._open)
            self._open = self._keep(self._open, pass_name, lambda f: _is_marked(f, marks))
        if self._notes:
            labels = {ctx.model.label(node) for node in ctx.model.nodes()}
            self._notes = self._keep(self._notes, pass_name, lambda f: f.node in labels)

    def open_errors(self) -> list[Finding]:
        """The errors that no pass has removed so far."""
        return [f for f in self._open if f.severity == Severity.ERROR]

    def _keep(
        self, findings: list[Finding], pass_name: str, stays: Callable[[Finding], bool]
    ) -> list[Finding]:
        self._gone |= {f.key: pass_name for f in findings if not stays(f)}
        return [finding for finding in findings if stays(finding)]

    def merge(self, after: list[Finding], rewrites: Iterable[RewriteRecord]) -> list[Finding]:
        """The findings that stay, and those that went, with the pass and its result.

        A note on a node that is still there and no longer applies was never a fault.
        """
        records, marks, findings = list(rewrites), engine.marks(after), list(after)
        last: dict[tuple[str, str], int] = {}  # record by pass and source node, or any ('')
        for number, record in enumerate(records):
            last |= {(record.pass_name, label): number for label in (*record.origin, "")}
        for finding in self._before:
            pass_name = self._gone.get(finding.key)
            if pass_name is None or _is_marked(finding, marks):
                continue
            number = max(last.get((pass_name, label), -1) for label in finding.origin or ("",))
            into = records[number].after if number >= 0 else _UNSAID.get(pass_name, "")
            findings.append(
                finding.with_status(Status.REWRITTEN, rewritten_by=pass_name, rewritten_into=into)
            )
        return findings


def _is_marked(finding: Finding, marks: Container[engine.Mark]) -> bool:
    """Return whether a finding of that code remains for one of its source nodes."""
    return any((finding.code, label) in marks for label in finding.origin or ("",))


def explained(findings: Iterable[Finding], refusals: Iterable[RefusalRecord]) -> list[Finding]:
    """Add to errors that remain the reason why no pass rewrote the node."""
    reasons = {r.node: r.reason for r in refusals if r.pass_name.startswith(_REWRITERS)}
    result = []
    for finding in findings:
        remains = finding.severity == Severity.ERROR and finding.status == Status.REMAINING
        reason = reasons.get(finding.node, "")
        if remains and reason and reason not in finding.message:
            finding = replace(finding, message=f"{finding.message}; not rewritten: {reason}")
        result.append(finding)
    return result
