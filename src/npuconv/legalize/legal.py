"""Legalization of a model for a target: lint, canonicalize, legalize, lint again, partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from npuconv import executor
from npuconv.config import Options
from npuconv.errors import ModelError
from npuconv.findings import Finding, Severity, sort_key
from npuconv.legalize import keep_float, manager, selection
from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Pass, Phase
from npuconv.legalize.rewrites.fit_convolution import fit_convolution
from npuconv.legalize.rule_codes import check_codes
from npuconv.legalize.selection import Findings
from npuconv.legalize.source_model import SourceModel
from npuconv.legalize.source_scales import uniform_tensors
from npuconv.legalize.split.planner import split_layers
from npuconv.legalize.tools import opset
from npuconv.legalize.tracker import SWEEP, Tracker, explained
from npuconv.model import Model, core, load, query, save, shapes, validate
from npuconv.model.source import locate
from npuconv.model.source_scales import SourceScales
from npuconv.partition import saturation
from npuconv.partition.channels import Channels, trace, uniform
from npuconv.partition.crossings import price
from npuconv.partition.placement import Plan, make_plan
from npuconv.records import dataclass, field, replace
from npuconv.rules import engine
from npuconv.rules.checks.operator_undocumented import operator_undocumented
from npuconv.rules.context import RuleContext
from npuconv.rules.target_limits import Need, needs
from npuconv.target import Target
from npuconv.timings import Timings

if TYPE_CHECKING:
    from npuconv.legalize.split.builder import Builder, Mode


@dataclass(frozen=True)
class LegalModel:
    """A legalized model, the placement of its nodes, and the findings of all rules."""

    model: Model  # the graph; methods that change it return a new legal model
    device: TargetDevice  # target, options for this model, and nodes that stay float
    source: SourceModel  # the model before any change
    log: Log  # rewrites and refusals of the passes
    findings: Findings  # findings of all rules so far
    # The graph before the exact splits of layers; None if there is no such layer.
    unsplit: Model | None = None
    # Names of convolutions in the place of a split layer, whose int8 results are added.
    summed: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()  # names of convolutions that the device refuses
    plan: Plan = field(default_factory=Plan)  # where each node runs
    # Names of the operators beside convolutions that the first plan places on the device: later
    # rewrites change the crossings, but not this choice.
    operators: frozenset[str] | None = None
    needs: tuple[Need, ...] = ()  # values that the model needs of undocumented limits

    @property
    def target(self) -> Target:
        """Target of the run."""
        return self.device.target

    @property
    def options(self) -> Options:
        """Options of the run, with those for this model."""
        return self.device.options

    def rule_context(self, **evidence: Any) -> RuleContext:
        """Return the input of rules, with further evidence by the names of its fields."""
        keep_float = frozenset(self.device.keep_float)
        return RuleContext(self.model, self.target, self.options, kept_float=keep_float, **evidence)

    def make_plan(self) -> Plan:
        """Partition the present graph.

        Activations that int8 saturation replaces depend on the scales, and these on the plan: if
        there are such, a second plan that expects them on the device is taken if it costs less.
        """
        plan, absorbed = self._plan()
        if absorbed:
            second, _ = self._plan(absorbed)
            plan = min(plan, second, key=lambda p: price(self.model, p, self.target))
        return plan

    def _plan(self, absorbed: Collection[str] = ()) -> tuple[Plan, set[str]]:
        """Return a plan, and the names of the activations that int8 saturation replaces."""
        model = self.model
        on_host = keep_float.names(model, self.device.keep_float)
        plan = make_plan(
            model,
            self.target,
            self.blocked,
            keep_float=on_host,
            operators=self.operators,
            form=self.options.format,
            absorbed=absorbed,
        )
        activations = saturation.candidates(model, plan)
        if not activations:
            return plan, set()
        planned = replace(self, plan=plan)
        fixed = {*planned.unsaturated_tensors, *planned.symmetric_tensors}
        centred = {*planned.centred_tensors, *planned.partial_sums}
        if not self.target.pads_with_zero_point:
            centred |= planned.padded_tensors
        return plan, saturation.absorb(activations, plan, self.target, fixed, centred)

    @cached_property
    def uniform_tensors(self) -> list[str]:
        """Tensors that have one scale and one zero point for all channels."""
        # int8 inputs and outputs have one scale each, as every tensor of TFLite has
        is_int8 = self.options.io == "int8" or self.options.format == "tflite"
        return [*self.unsaturated_tensors, *(self._interface if is_int8 else ())]

    @cached_property
    def unsaturated_tensors(self) -> list[str]:
        """Tensors of one scale, because int8 saturation cannot replace the bounds of a Clip."""
        return uniform(self.plan)

    @property
    def _interface(self) -> list[str]:
        """Names of the inputs and outputs of the model."""
        return [t.name for t in (*self.model.graph.inputs, *self.model.graph.outputs)]

    @property
    def stores_zeros(self) -> bool:
        """Whether the file has the zero points that the device computes with, not 0 for all."""
        return self.options.format == "tflite" or self.target.takes_zero_points

    @cached_property
    def centred_tensors(self) -> list[str]:
        """Tensors whose zero point is 0: inputs and outputs of convolutions without a bias.

        If they are int8, also inputs and outputs of the model, of which only the scale is known.
        If the device does not take every zero point, also tensors of one scale, and inputs and
        outputs of operators.
        """
        bare = [conv for conv in self.plan.convolutions if conv.name in self.biasless]
        centred = [t.name for conv in bare for t in (conv.inputs[0], conv.outputs[0])]
        if self.options.io == "int8":
            centred += self._interface
        if not self.target.takes_zero_points:
            centred += self.unsaturated_tensors
            centred += [t.name for t in self.plan.operator_tensors]
        return centred

    @cached_property
    def channels(self) -> Channels:
        """Channels that share a scale, in tensors that are not uniform."""
        names = [name for group in self.plan.groups for name in group.tensors]
        layers = {conv.name: self.model.origin(conv) for conv in self.plan.convolutions}
        if self.is_per_tensor:
            return trace(self.plan, names, layers)
        imported = uniform_tensors(self.model, self.plan)
        return trace(self.plan, [*self.uniform_tensors, *imported], layers)

    @property
    def padded_tensors(self) -> set[str]:
        """Tensors that a convolution pads."""
        convs = (c for c in self.plan.convolutions if any(query.attribute(c, "pads", ()) or ()))
        return {conv.inputs[0].name for conv in convs}

    @cached_property
    def biasless(self) -> frozenset[str]:
        """Names of convolutions to which the device can add no bias, or only a small one."""
        return frozenset(c.name for c in self.plan.convolutions if self.device.is_biasless(c))

    @property
    def symmetric_tensors(self) -> set[str]:
        """Tensors that keep zero point 0 of a quantized source with all of their consumers."""
        source = self.model.source_scales
        symmetric = {name for name, encoding in source.tensors.items() if not encoding.zeros.any()}
        producers = {
            label for label, name in source.tensor_by_producer.items() if name in symmetric
        }
        nodes = self.model.nodes() if producers else []
        outputs = (n.outputs for n in nodes if not producers.isdisjoint(self.model.origin(n)))
        return symmetric | {tensor.name for tensors in outputs for tensor in tensors}

    @property
    def partial_sums(self) -> set[str]:
        """Tensors of convolutions in parts, whose sum is activated later."""
        return {c.outputs[0].name for c in self.plan.convolutions if c.name in self.summed}

    @property
    def has_host(self) -> bool:
        """Return whether the target has a host that computes in float."""
        return self.target.unlisted_operators != "error"

    @property
    def is_per_tensor(self) -> bool:
        """Return whether the device has one weight scale per layer, and none per channel."""
        return self.target.weights.granularity == "tensor"

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The model as ONNX, shared by its readers: change a copy."""
        return save.to_proto(self.model)

    def with_findings(self, findings: Iterable[Finding]) -> LegalModel:
        """Return the model with more findings."""
        return replace(self, findings=self.findings.add(findings))

    def replanned(self) -> LegalModel:
        """Return the model with a plan of its present graph."""
        return replace(self, plan=self.make_plan())

    def with_whole_layers(self) -> LegalModel:
        """Return the model for calibration: layers with an exact split are not split."""
        if self.unsplit is None:
            return self
        return replace(self, model=self.unsplit, unsplit=None).replanned()

    def copied(self) -> LegalModel:
        """Return the model with a graph and a log of its own, which passes may change."""
        return replace(self, model=self.model.copy(), log=self.log.copied()).replanned()

    def rewritten(self, item: Pass, **inputs: Any) -> tuple[LegalModel, Any]:
        """Run a pass on a copy.

        ``inputs`` are arguments of the pass besides the device and the plan.

        Returns:
            The copy with a new plan, and the result of the pass.
        """
        copy = self.copied()
        result = manager.apply(copy.model, item, copy.device, copy.log, plan=copy.plan, **inputs)
        return copy.replanned() if result else copy, result


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
    model, device, log = legal.model, legal.device, legal.log
    rules = legal.rule_context()
    malformed = engine.lint_malformed(rules)
    if malformed:  # rewrites of malformed nodes show nothing
        tracker, after, opset_obstacle = Tracker(malformed), malformed, ""
        source_model = legal.source.with_costs(model, device.target, malformed)
    else:
        before = sorted(engine.lint(rules) + engine.lint(rules, stage="source"), key=sort_key)
        if contradiction and not any(f.severity == Severity.ERROR for f in before):
            _refuse_unless_it_runs(model, contradiction)
        tracker = Tracker(before)

        def credit(item: Pass, seconds: float) -> None:
            timings.add(item.name, seconds)
            tracker.credit(item.name, legal.rule_context())

        if core.sweep(model):  # else the first pass that fires gets the credit
            tracker.credit(SWEEP, legal.rule_context())
        manager.run_phase(model, Phase.CANONICALIZE, device, log, credit)
        if not device.options.keep_scales:
            model.source_scales = SourceScales()
        source_model = legal.source.with_costs(model, device.target, tracker.open_errors())
        manager.run_phase(model, Phase.LEGALIZE, device, log, credit)
        if core.sweep(model):
            tracker.credit(SWEEP, legal.rule_context())
        legal = _split(legal, credit)
        opset_obstacle = opset.obstacle(model, device.options.opset)
        rules = legal.rule_context(opset_obstacle=opset_obstacle)
        after = engine.lint(rules)
    legal = replace(legal, needs=tuple(needs(rules)))
    if legal.unsplit is not None and any(
        plan.biasless or plan.accumulates for _, plan in device.split_plans(legal.unsplit)
    ):
        # The device adds in int32, or reads a bias as channels, so the written graph lacks the
        # nodes around the parts, and their findings. Limits of convolutions hold for the parts.
        model = legal.unsplit.copy()
        split_layers(model, device.split_plans(model))
        core.sweep(model)
        legal = replace(legal, model=model)
        rules = legal.rule_context(opset_obstacle=opset_obstacle)
        around_convolutions = [f for f in engine.lint(rules) if f.op_type not in query.CONVOLUTIONS]
        convolutions = [f for f in after if f.op_type in query.CONVOLUTIONS]
        after = sorted(convolutions + around_convolutions, key=sort_key)
    blocking = {label for f in after if selection.is_blocking(f) for label in f.origin}
    legal = replace(
        legal,
        source=source_model,
        blocked=frozenset(
            node.name
            for graph in (model, legal.unsplit or model)
            for node in graph.nodes(*query.CONVOLUTIONS)
            if graph.label(node) in blocking
        ),
    ).replanned()
    plan = legal.plan
    legal = replace(legal, operators=frozenset(node.name for node in plan.operators))
    on_device = {
        (operator_undocumented.code, node.op, model.label(node))
        for node in plan.passthrough
        if plan.placement[id(node)] == "device"
    }
    after = [f for f in after if (f.code, f.op_type, f.node) not in on_device]
    merged = explained(tracker.merge(after, log.rewrites), log.refusals)
    findings = legal.findings.add(merged)
    if not any(map(selection.is_blocking, findings.selected)):
        findings = findings.add(engine.lint(replace(rules, plan=plan), stage="planned"))
    return replace(legal, findings=findings)


def _split(legal: LegalModel, credit: Callable[[Pass, float], None]) -> LegalModel:
    """Split convolutions beyond a limit; keep the graph before exact splits for calibration."""
    model, device, log = legal.model, legal.device, legal.log

    def write(mode: Mode) -> list[Builder]:
        start = time.perf_counter()
        builders: list[Builder] = manager.apply(model, fit_convolution, device, log, mode=mode)
        if builders:
            credit(fit_convolution, time.perf_counter() - start)
            manager.run_phase(model, Phase.LEGALIZE, device, log, credit)
        return builders

    if not legal.options.calibrates:
        write("float")
        return legal
    convs = [conv for builder in write("rounding") for conv in builder.convs]
    unsplit = model.copy() if device.split_plans(model) else None
    if unsplit is not None:
        write("exact")
    summed = frozenset(conv.node for conv in convs if conv.summed)
    return replace(legal, unsplit=unsplit, summed=summed)


def _open(source: str | Path | onnx.ModelProto, options: Options) -> tuple[LegalModel, str]:
    """Return the source model with inferred shapes, and the contradiction in these, or ''."""
    check_codes(options)
    target = Target.load(options.target).assuming(options.assume)
    model = load.load(source)
    info = SourceModel.from_model(model)
    name = Path(source).as_posix() if isinstance(source, str | Path) else model.name
    options = selection.for_model(options, name)
    if options.source_root is not None:
        model = replace(model, sources=locate(model.sources, options.source_root))
    shapes.fix_inputs(model, options.input_shape)
    contradiction = shapes.infer(model)
    validate.check_tensors(model)
    info = info.with_nodes(model)
    device = TargetDevice(target, options, keep_float.find(model, options.keep_float, target))
    findings = Findings(options, selection.listed_in(options, name, target.name))
    return LegalModel(model, device, info, Log(options.verify), findings), contradiction


def _refuse_unless_it_runs(model: Model, contradiction: str) -> None:
    """Refuse a model whose shapes contradict each other, if a runtime refuses it too."""
    try:
        # Without its optimizer, which would compute constants of any size.
        executor.Session(save.to_proto(model), threads=1, optimize=False)
    except executor.RuntimeRefusedError:
        raise ModelError(f"{model.name}: cannot be run: {contradiction}") from None
