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
from npuconv.quantize.fake_quant import Error, FakeQuantError, QuantPoint, logits, quant_points
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
    layer_macs: Mapping[str, int]  # by node, the multiplications that running it again adds
    channel_macs: Mapping[str, int]  # by tensor, those that its copies add
    sets: Mapping[str, ChannelSet]  # the channels that could be repeated, by tensor
    macs: int  # multiplications of the device before
    before: Error  # error of the outputs on the evaluation samples
    after: Error  # the same with the repeated layers and channels
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
    ``step`` is called after each probe of the sensitivity and after each check, which counts as
    many.

    Raises:
        CalibrationError: the model does not run on the samples.
    """
    goal, percent = graph.options.min_sqnr, graph.options.max_extra_macs
    tries = 1 if goal is None else BUDGET.tries  # candidates that are simulated, at most
    parts = BUDGET.probes * (1 + tries)
    proto = graph.proto()
    sizes = layer_macs(graph, proto, used)
    limit = sum(sizes.values()) * (BUDGET.unbounded_percent if percent is None else percent) / 100
    points, unsaturated = quant_points(graph, state), logits(proto)
    error = FakeQuantError(unsaturated if goal is None else proto, evaluation)
    before = error.measure(points)
    terms = list[NoiseTerm]()
    if not graph.biasless:  # copies differ by a part of a step, which their biases add
        powers = sensitivity.measure(
            unsaturated, points, state, used, BUDGET.probes, lambda done, _: step(done, parts)
        )
        terms = [] if powers is None else _terms(graph, points, powers)
    free = {k: n for k, n in sizes.items() if k in hessians}
    sets = channel_sets(graph, points, free) if terms else []
    allocator = partial(Allocator, terms, free, sets, _limits(graph), graph.has_host)
    repeats, oversampled, after = Repeats(), Oversampled(graph, state), before
    noise, allowed = sum(before.noise), 0.0
    if goal is not None:  # the share of the error that the goal leaves
        allowed = sum(before.signal) / 10 ** (goal / 10) / noise if noise else 1.0
    share = allowed
    for number in range(1, 1 + tries):
        if not terms or share >= 1:
            break
        allocation = allocator()
        candidate = allocation.allocate(limit, allocation.left * share)
        if not candidate or candidate == repeats:
            break
        simulated = oversample(graph, state, hessians, candidate, used)
        model = simulated.graph.proto()
        compared = model if error.is_of_outputs(model) else logits(model)
        simulated_error = error.measure(quant_points(simulated.graph, simulated.state), compared)
        step(BUDGET.probes * (1 + number), parts)
        if simulated_error.ratio(after) < 1 and sum(simulated_error.noise) < sum(after.noise):
            repeats, oversampled, after = candidate, simulated, simulated_error
        noise_left = sum(simulated_error.noise) / max(noise, 1e-30)
        if goal is None or noise_left <= allowed:
            break
        share *= BUDGET.caution * allowed / noise_left  # the estimate was optimistic
    return BudgetResult(
        oversampled, repeats, *_extra_macs(free, sets, repeats), {s.tensor: s for s in sets},
        sum(sizes.values()), before, after, not error.is_of_outputs(proto),
    )  # fmt: skip


def _terms(
    graph: LegalModel,
    points: Sequence[QuantPoint],
    powers: sensitivity.Sensitivity,
) -> list[NoiseTerm]:
    """Return the error of every rounding, with the layers that reduce it."""
    tensors = {t.name: t for node in graph.model.nodes() for t in (*node.inputs, *node.outputs)}
    terms = []
    for point, power in zip(points, powers.channels, strict=True):
        if point.kind == "weights":
            terms.append(NoiseTerm(power, point.layer))
            continue
        readers = dict[str, None]()  # on the device, also behind passthrough operators
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
    model, is_int8, free = graph.model.graph, graph.options.io == "int8", set(layers)
    fixed = {t.name for t in (*model.inputs, *model.outputs)} if is_int8 else set()
    sets = []
    for path in channel_paths(graph.model, graph.plan):
        rows, columns = (tuple(c.name for c in convs) for convs in (path.row_layers, path.readers))
        numbers = tuple(point_index[name] for name in path.tensors if name in point_index)
        is_fixed = fixed & {path.tensor.name, *(tensor.name for tensor in path.outputs)}
        inside = path.producer is not None and not path.outputs
        allowed = (inside or graph.has_host) and not is_fixed and free.issuperset(rows + columns)
        if numbers and allowed:
            convs, axis = (path.row_layers, 0) if path.row_layers else (path.readers, 1)
            count = int(parameters(convs[0])[0].shape[axis])
            sets.append(ChannelSet(path.tensor.name, count, rows, columns, numbers))
    return sets


def _limits(graph: LegalModel) -> Callable[[str, int, int], bool]:
    """Return the check whether the target takes a layer with so many more rows and columns."""
    windows = {
        conv.name: (conv, window(conv), is_depthwise(conv)) for conv in graph.plan.convolutions
    }
    verdicts: dict[tuple[str, int, int], bool] = {}

    def fits(layer: str, rows: int, columns: int) -> bool:
        """Return whether the target takes the layer; checked once for each size."""
        key = (layer, rows, columns)
        if key not in verdicts:
            conv, win, apart = windows[layer]
            larger = None if win is None else _larger(win, rows, columns, apart=apart)
            verdicts[key] = larger is not None and not graph.device.change_objections(conv, larger)
        return verdicts[key]

    return fits


def _larger(win: Window, rows: int, columns: int, *, apart: bool) -> Window | None:
    """Return a convolution with more channels."""
    if win.weight is None:
        return None
    outputs, inputs = win.weight[0] + rows, win.weight[1] + columns
    return replace(
        win,
        weight=(outputs, inputs, *win.weight[2:]),
        group=outputs if apart else win.group,
        input=with_channels(win.input, outputs if apart else inputs),
        output=with_channels(win.output, outputs),
    )


def layer_macs(graph: LegalModel, proto: onnx.ModelProto, samples: Samples) -> dict[str, int]:
    """Return the multiplications of every device layer; open sizes as the samples have them."""
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
