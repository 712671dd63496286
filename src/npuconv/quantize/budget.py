"""Budget of extra multiplications: layers and channels that run several times for accuracy.

``allocation`` chooses them by estimated errors; the choice is then checked in a simulation of all
roundings on evaluation samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import onnx

from npuconv.data import Feed, Samples
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.tools.conv_forms import with_channels
from npuconv.model import load, query, shapes
from npuconv.model.conv import Window, window
from npuconv.partition.channel_paths import channel_paths, is_depthwise, parameters
from npuconv.partition.costs import macs
from npuconv.quantize import sensitivity
from npuconv.quantize.allocation import Allocator, ChannelSet, NoiseTerm
from npuconv.quantize.fake_quant import (
    FakeQuantComparison,
    QuantPoint,
    SquaredErrors,
    quant_points,
    with_logit_outputs,
)
from npuconv.quantize.hessian import Hessian
from npuconv.quantize.oversampling import Oversampled, Repeats, oversample
from npuconv.quantize.settings import BUDGET
from npuconv.quantize.state import QuantState
from npuconv.timings import Step


@dataclass(frozen=True)
class BudgetResult:
    """Result of spending a budget of extra multiplications."""

    oversampled: Oversampled  # the graph and its state; unchanged where nothing is repeated
    repeats: Repeats  # layers and channels that are repeated
    layer_macs: Mapping[str, int]  # multiplications that the copies of a layer add, by node
    channel_macs: Mapping[str, int]  # multiplications that the copies of channels add, by tensor
    sets: Mapping[str, ChannelSet]  # channels that could be repeated, by tensor
    macs: int  # multiplications of the device without repeats
    before: SquaredErrors  # error of the outputs on the evaluation samples without repeats
    after: SquaredErrors  # error with the repeated layers and channels
    is_before_saturation: bool  # whether outputs are taken before a Softmax or the like

    @property
    def extra_macs(self) -> int:
        """Multiplications that were added."""
        return sum(self.layer_macs.values()) + sum(self.channel_macs.values())


def spend_budget(
    graph: LegalModel,
    state: QuantState,
    hessians: Mapping[str, Hessian],
    used: Samples,
    evaluation: Sequence[Feed],
    step: Step = lambda _done, _total: None,
) -> BudgetResult:
    """Repeat layers for ``max_extra_macs`` percent of multiplications, or until ``min_sqnr``.

    Sensitivity is measured on the samples ``used``, the choice is checked on ``evaluation``.
    ``step`` is called after each probe of the sensitivity and after each check; a check counts
    like all probes.

    Raises:
        CalibrationError: the model does not run on the samples.
    """
    goal, percent = graph.options.min_sqnr, graph.options.max_extra_macs
    tries = 1 if goal is None else BUDGET.tries  # largest number of simulated candidates
    all_steps = BUDGET.probes * (1 + tries)
    proto = graph.proto()
    sizes = layer_macs(graph, proto, used)
    limit = sum(sizes.values()) * (BUDGET.unbounded_percent if percent is None else percent) / 100
    points, unsaturated = quant_points(graph, state), with_logit_outputs(proto)
    simulator = FakeQuantComparison(unsaturated if goal is None else proto, evaluation)
    before = simulator.measure(points)
    terms = list[NoiseTerm]()
    if not graph.biasless:  # the biases of copies offset them by different parts of a step
        errors = sensitivity.measure(
            unsaturated, points, state, used, BUDGET.probes, lambda done, _: step(done, all_steps)
        )
        terms = [] if errors is None else _terms(graph, points, errors)
    repeatable = {name: size for name, size in sizes.items() if name in hessians}
    sets = channel_sets(graph, points, repeatable) if terms else []
    new_allocator = partial(Allocator, terms, repeatable, sets, _size_check(graph), graph.has_host)
    repeats, oversampled, after = Repeats(), Oversampled(graph, state), before
    noise, allowed = sum(before.noise), 0.0
    if goal is not None:  # share of the error that the goal allows
        allowed = sum(before.signal) / 10 ** (goal / 10) / noise if noise else 1.0
    estimated_share = allowed  # share of the estimated error at which allocation ends
    for number in range(1, 1 + tries):
        if not terms or estimated_share >= 1:
            break
        allocator = new_allocator()
        candidate = allocator.allocate(limit, allocator.left * estimated_share)
        if not candidate or candidate == repeats:
            break
        simulated = oversample(graph, state, hessians, candidate, used)
        model = simulated.graph.proto()
        compared = model if simulator.is_of_outputs(model) else with_logit_outputs(model)
        error = simulator.measure(quant_points(simulated.graph, simulated.state), compared)
        step(BUDGET.probes * (1 + number), all_steps)
        if error.ratio(after) < 1 and sum(error.noise) < sum(after.noise):
            repeats, oversampled, after = candidate, simulated, error
        simulated_share = sum(error.noise) / max(noise, 1e-30)
        if goal is None or simulated_share <= allowed:
            break
        estimated_share *= BUDGET.caution * allowed / simulated_share  # it was optimistic
    return BudgetResult(
        oversampled, repeats, *_extra_macs(repeatable, sets, repeats), {s.tensor: s for s in sets},
        sum(sizes.values()), before, after, not simulator.is_of_outputs(proto),
    )  # fmt: skip


def _terms(
    graph: LegalModel,
    points: Sequence[QuantPoint],
    errors: sensitivity.Sensitivity,
) -> list[NoiseTerm]:
    """Return the error of every rounding, with the layers that reduce it."""
    tensors = {t.name: t for node in graph.model.nodes() for t in (*node.inputs, *node.outputs)}
    terms = []
    for point, power in zip(points, errors.channels, strict=True):
        if point.kind == "weights":
            terms.append(NoiseTerm(power, point.layer))
            continue
        readers = dict[str, None]()  # convolutions, also behind passthrough operators
        waiting = [tensors[point.tensor]]
        while waiting:
            for node in query.consumers(waiting.pop()):
                if graph.plan.is_convolution(node):
                    readers[node.name] = None
                elif graph.plan.is_passthrough(node):
                    waiting.extend(node.outputs)
        is_output = point.kind == "output"
        maker = point.layer if is_output else ""
        terms.append(NoiseTerm(power, maker, tuple(readers), is_output))
    return terms


def channel_sets(
    graph: LegalModel, points: Sequence[QuantPoint], layers: Iterable[str]
) -> list[ChannelSet]:
    """Return the channels that may be computed several times."""
    point_index = {p.tensor: k for k, p in enumerate(points) if p.kind != "weights"}
    model, is_int8, repeatable = graph.model.graph, graph.options.io == "int8", set(layers)
    fixed = {t.name for t in (*model.inputs, *model.outputs)} if is_int8 else set()
    sets = []
    for path in channel_paths(graph.model, graph.plan):
        rows, columns = (tuple(c.name for c in convs) for convs in (path.row_layers, path.readers))
        numbers = tuple(point_index[name] for name in path.tensors if name in point_index)
        is_fixed = fixed & {path.tensor.name, *(tensor.name for tensor in path.outputs)}
        inside = path.producer is not None and not path.outputs
        allowed = (inside or graph.has_host) and not is_fixed
        if numbers and allowed and repeatable.issuperset(rows + columns):
            convs, axis = (path.row_layers, 0) if path.row_layers else (path.readers, 1)
            count = int(parameters(convs[0])[0].shape[axis])
            sets.append(ChannelSet(path.tensor.name, count, rows, columns, numbers))
    return sets


def _size_check(graph: LegalModel) -> Callable[[str, int, int], bool]:
    """Return the check whether the target takes a layer with so many more rows and columns."""
    windows = {
        conv.name: (conv, window(conv), is_depthwise(conv)) for conv in graph.plan.convolutions
    }
    verdicts: dict[tuple[str, int, int], bool] = {}

    def fits(layer: str, rows: int, columns: int) -> bool:
        """Return whether the target takes the layer; checked once for each size."""
        key = (layer, rows, columns)
        if key not in verdicts:
            conv, win, depthwise = windows[layer]
            larger = None if win is None else _larger(win, rows, columns, depthwise=depthwise)
            verdicts[key] = larger is not None and not graph.device.change_objections(conv, larger)
        return verdicts[key]

    return fits


def _larger(win: Window, rows: int, columns: int, *, depthwise: bool) -> Window | None:
    """Return a convolution with more channels; None if the shape of its weights is unknown."""
    if win.weight is None:
        return None
    outputs, inputs = win.weight[0] + rows, win.weight[1] + columns
    return replace(
        win,
        weight=(outputs, inputs, *win.weight[2:]),
        group=outputs if depthwise else win.group,
        input=with_channels(win.input, outputs if depthwise else inputs),
        output=with_channels(win.output, outputs),
    )


def layer_macs(graph: LegalModel, proto: onnx.ModelProto, samples: Samples) -> dict[str, int]:
    """Return the multiplications of every device layer; the first sample fixes open sizes."""
    counts = {conv.name: macs(conv) for conv in graph.plan.convolutions}
    if None in counts.values():
        model = load.load(proto)
        feed = next(iter(samples[:1]))
        shapes.fix_inputs(model, {name: array.shape for name, array in feed.items()})
        shapes.infer(model)
        sized = {node.name: macs(node) for node in model.nodes("Conv")}
        counts = {name: sized.get(name) for name in counts}
    return {name: count for name, count in counts.items() if count}


def _extra_macs(
    sizes: Mapping[str, int], sets: Sequence[ChannelSet], repeats: Repeats
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the extra MACs of repeated channels, then of repeated layers with these channels."""
    costs = {name: Fraction(size) for name, size in sizes.items()}
    channels = {}
    for group in (group for group in sets if group.tensor in repeats.channels):
        before = sum(costs.values())
        for name in group.layers:
            costs[name] *= Fraction(len(repeats.channels[group.tensor]), group.count)
        channels[group.tensor] = int(sum(costs.values()) - before)
    layers = {name: int((times - 1) * costs[name]) for name, times in repeats.layers.items()}
    return layers, channels
