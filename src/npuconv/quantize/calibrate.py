"""Calibration: statistics of tensors and Hessians of convolutions from one float pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count

import onnx

from npuconv import executor
from npuconv.arithmetic.statistics import Accumulator, Observation, Statistics, observe
from npuconv.data import Feed, Samples
from npuconv.data.calibration_data import CalibrationData
from npuconv.data.model_inputs import first_convolution
from npuconv.data.normalization_mismatch import find_mismatch
from npuconv.data.workers import in_order
from npuconv.errors import CalibrationError
from npuconv.findings import Finding
from npuconv.legalize.legal import LegalModel
from npuconv.model import query
from npuconv.ops.tape import Tape
from npuconv.partition.operators import masked_softmaxes
from npuconv.quantize import settings
from npuconv.quantize.fake_quant import stored_output
from npuconv.quantize.hessian import Hessian, HessianReader, windows_of
from npuconv.quantize.imported_scales import METHODS
from npuconv.quantize.state import QuantState
from npuconv.records import dataclass, replace
from npuconv.rules import engine
from npuconv.rules.context import CalibrationEvidence
from npuconv.timings import Step

_SOFTMAX_OF_ONE_AXIS = 13  # first opset whose Softmax normalizes along one axis
_MADE_UP = "these inputs were made up, which not every model takes; give some with --calibration"


@dataclass(frozen=True)
class Calibration:
    """Statistics and Hessians measured on the samples."""

    statistics: dict[str, Statistics]  # outputs of every group, and of some convolutions, by tensor
    hessians: dict[str, Hessian]  # Hessian of every convolution with constant weights, by node

    def fits(self, graph: LegalModel) -> bool:
        """Return whether each tensor of the graph was observed along its channel axis."""
        axes = {name: stats.axis for name, stats in self.statistics.items()}
        return watched(graph).items() <= axes.items()


def calibrate(graph: LegalModel, samples: Samples, step: Step) -> Calibration:
    """Run the samples through the float model.

    ``step`` is called with the number of runs that are done, and the number of all runs.

    Raises:
        CalibrationError: samples that cannot be used.
    """
    proto = _with_floors(graph)
    layers = [w for conv in graph.plan.convolutions if (w := windows_of(conv)) is not None]
    reader, runs = HessianReader(layers, len(samples)), count(1)

    def after_run() -> None:
        step(next(runs), len(samples))

    try:
        stats = collect(
            proto, watched(graph), samples, progress=after_run,
            further=reader.tensors, read=reader.read,
        )  # fmt: skip
    except CalibrationError as error:
        raise _named(graph, samples, error) from None
    return Calibration(stats, reader.hessians)


def calibrate_on(
    graph: LegalModel, data: CalibrationData, step: Step
) -> tuple[CalibrationData, Calibration]:
    """Calibrate; if the model does not take some built-in samples, calibrate on the others.

    Raises:
        CalibrationError: samples of the user that cannot be used, or the first built-in sample,
            which ends check as well.
    """
    try:
        return data, calibrate(graph, data.used, step)
    except CalibrationError:
        if not data.samples.builtin:
            raise
        samples = without_refused(graph, data.samples)
        if samples is data.samples or samples.indices[0] != data.samples.indices[0]:
            raise
    data = replace(data, samples=samples)
    return data, calibrate(graph, data.used, step)


def _named(graph: LegalModel, samples: Samples, error: CalibrationError) -> CalibrationError:
    hint = _MADE_UP if samples.builtin else error.hint
    return CalibrationError(f"{graph.model.name}: {error.message}", hint=hint)


def try_sample(graph: LegalModel, samples: Samples) -> None:
    """Run the first sample, and fail as calibration would.

    Raises:
        CalibrationError: the model does not run on it, or makes values that are not finite.
    """
    names, proto = dict.fromkeys(_watched_names(graph)), _with_floors(graph)
    try:  # one run takes less time than optimizing the model
        collect(proto, names, samples[:1], optimize=False)
    except CalibrationError as error:
        raise _named(graph, samples, error) from None


def without_refused(graph: LegalModel, samples: Samples) -> Samples:
    """Return the samples that ``try_sample`` takes, with a note on how many it does not.

    Raises:
        CalibrationError: it takes none of them.
    """
    accepted, refused = [], None
    for place, number in enumerate(samples.indices):
        try:
            try_sample(graph, samples[place : place + 1])
        except CalibrationError as error:
            refused = refused or error
        else:
            accepted.append(number)
    if refused is None:
        return samples
    if not accepted:
        raise refused
    count = len(samples) - len(accepted)
    note = f"{count} of {len(samples)} built-in samples are left out, which the model does not take"
    return replace(samples, indices=tuple(accepted), notes=(*samples.notes, note))


def watched(graph: LegalModel) -> Mapping[str, int | None]:
    """Return the tensors to observe, with their channel axis: outputs of groups and layers."""
    return {name: graph.channels.axis(name) for name in _watched_names(graph)}


def _watched_names(graph: LegalModel) -> Collection[str]:
    """Return the tensors to observe, without their channel axes.

    Tensors before a Relu or Clip are observed where training has left statistics of them, and
    for the first layer. All of them would take as long as the model itself.
    """
    plan, first = graph.plan, first_convolution(graph.model)
    names = dict.fromkeys(name for group in plan.groups for name in group.outputs)
    for conv in plan.convolutions:
        output = conv.outputs[0].name
        compared = conv is first or output in graph.model.in_training
        if compared or stored_output(graph.model, plan, conv) not in names:
            names[output] = None
    return names


def _with_floors(graph: LegalModel) -> onnx.ModelProto:
    """Return the model with the inputs of Softmax cut off far below the largest of each row.

    Outputs do not change. Without the floor a mask of -1e9 would take all steps of the scores,
    and a mask of -inf could not be calibrated.
    """
    observed = {name for group in graph.plan.groups for name in group.outputs}
    softmaxes = {node.inputs[0].name: node for node in masked_softmaxes(graph.model)}
    softmaxes = {name: node for name, node in softmaxes.items() if name in observed}
    if not softmaxes or graph.model.opset < _SOFTMAX_OF_ONE_AXIS:
        return graph.proto
    bounded = onnx.ModelProto()
    bounded.CopyFrom(graph.proto)
    del bounded.graph.node[:]
    tape = Tape(bounded.graph, {}, graph.model.opset)
    for node in graph.proto.graph.node:
        copy = bounded.graph.node.add()
        copy.CopyFrom(node)
        for place, name in enumerate(node.output):
            if name in softmaxes:
                raw = copy.output[place] = f"{name}/unbounded"
                axis = int(query.attribute(softmaxes[name], "axis", -1))
                top = tape.reduce("ReduceMax", raw, [axis], keepdims=True)
                floor = tape.add("Sub", top, tape.constant(settings.RANGE_SOFTMAX_REACH))
                bounded.graph.node.append(onnx.helper.make_node("Max", [raw, floor], [name]))
    return bounded


def calibration_findings(
    graph: LegalModel, data: CalibrationData, calibration: Calibration, state: QuantState
) -> list[Finding]:
    """Return the findings of the rules that look at calibration.

    Raises:
        InternalError: a bug in a rule.
    """
    mismatch = None
    if data.is_normalized:
        mismatch = find_mismatch(graph.model, data.used, calibration.statistics)
    imported = [g for g in graph.plan.groups if state.methods.get(g.name) in METHODS]
    evidence = CalibrationEvidence(
        plan=graph.plan,
        statistics=calibration.statistics,
        encodings=state.encodings,
        imported_ranges=frozenset(end for group in imported for end in group.outputs),
        samples=len(data.used),
        rounded=state.weights,
        mismatch=mismatch,
    )
    return engine.lint(graph.rule_context(evidence=evidence), stage="calibrated")


def collect(
    model: onnx.ModelProto,
    tensors: Mapping[str, int | None],
    feeds: Samples | Sequence[Feed],
    *,
    progress: Callable[[], None] = lambda: None,
    optimize: bool = True,
    further: Collection[str] = (),
    read: Callable[[int, Feed], Callable[[], None]] = lambda _number, _arrays: lambda: None,
) -> dict[str, Statistics]:
    """Run the samples once through the float model and observe tensors.

    The samples are read while the model runs, and dropped after it: memory does not grow with
    them. The result is the same to the bit for the same samples, with any number of workers.

    Args:
        model: the legalized float model; not changed.
        tensors: name -> channel axis, None: all channels together. Model inputs included.
        feeds: complete inputs, one dict per sample.
        progress: called after each sample.
        optimize: whether onnxruntime optimizes the model, which takes longer than a single run.
        further: names of tensors that only ``read`` needs.
        read: called on a worker with the number of a sample and its arrays; the function that it
            returns is called in the order of the samples.

    Raises:
        CalibrationError: onnxruntime refuses the model or a sample, a tensor holds values
            that are not finite, or there are no samples.
    """
    if not tensors and not further:
        return {}
    inputs = {i.name for i in model.graph.input}
    names = [name for name in dict.fromkeys((*tensors, *further)) if name not in inputs]

    def observe_sample(item: tuple[int, Feed]) -> tuple[dict[str, Observation], Callable[[], None]]:
        number, feed = item
        arrays = {**feed, **session.run(feed, draw=number)}
        observations = {
            name: observe(arrays[name], axis, number, len(feeds)) for name, axis in tensors.items()
        }
        return observations, read(number, arrays)

    totals: dict[str, Accumulator] = {}
    try:
        observed = executor.with_outputs(model, names)
        session = executor.Session(observed, threads=1, optimize=optimize)
        for number, (sample, add) in enumerate(in_order(observe_sample, enumerate(feeds))):
            for name, observation in sample.items():
                if not observation.is_finite:
                    raise CalibrationError(
                        f"sample {number}: the float model itself makes values that are not "
                        f"finite (tensor {name!r})",
                        hint="check the weights, and the normalization of the samples; "
                        "--keep-float leaves nodes that need such values to the host",
                    )
                if name not in totals:
                    totals[name] = Accumulator(len(observation.lows))
                if len(totals[name].lows) != len(observation.lows):
                    raise CalibrationError(
                        f"tensor {name!r} has not as many channels in every sample",
                        hint="give samples of one shape, or fix it with --input-shape",
                    )
                totals[name].add(observation)
            add()
            progress()
    except executor.RuntimeRefusedError as error:
        text = f"the float model does not run on the samples: {error}"
        raise CalibrationError(text) from None
    if tensors and not totals:
        raise CalibrationError("there are no samples to calibrate on")
    return {name: total.statistics(tensors[name]) for name, total in totals.items()}
