"""Budget of extra multiplications: layers that run several times for accuracy.

The candidate that removes most estimated error for each multiplication comes first, until the
limit is reached. A candidate is a layer once more, or a layer with all that read it on
the device (the error of the tensor between them only goes if both repeat). Errors of layers add
up or cancel, which estimates do not show: so the choices for parts of the budget are simulated
with all roundings on evaluation samples, and the best is taken, or the first that reaches the goal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from npuconv.data import Feed, Samples
from npuconv.legalize.legal import LegalModel
from npuconv.model import load, query, shapes
from npuconv.partition.costs import macs
from npuconv.quantize import sensitivity, settings
from npuconv.quantize.fake_quant import (
    FakeQuantComparison,
    QuantPoint,
    SquaredErrors,
    quant_points,
    with_logit_outputs,
)
from npuconv.quantize.hessian import Hessian
from npuconv.quantize.oversampling import Oversampled, Repeats, oversample
from npuconv.quantize.state import QuantState
from npuconv.records import dataclass
from npuconv.timings import Step

# Remaining error of an output if k copies round it, as a power of k: their inputs differ, so
# their roundings are neither equal nor independent. Dithered inputs: k * k.
_OUTPUT, _INPUT = -1.5, -2.0


@dataclass(frozen=True)
class BudgetResult:
    """Result of spending a budget of extra multiplications."""

    oversampled: Oversampled  # the graph and its state; unchanged where nothing is repeated
    repeats: Repeats  # number of runs of repeated layers, by node
    layer_macs: Mapping[str, int]  # multiplications that the copies of a layer add, by node
    macs: int  # multiplications of the device without repeats
    before: SquaredErrors  # error of the outputs on the evaluation samples without repeats
    after: SquaredErrors  # error with the repeated layers
    is_before_saturation: bool  # whether outputs are taken before a Softmax or the like

    @property
    def extra_macs(self) -> int:
        """Multiplications that were added."""
        return sum(self.layer_macs.values())


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
    all_steps = settings.BUDGET_PROBES * (1 + settings.BUDGET_CHECKS)
    proto = graph.proto
    sizes = layer_macs(graph, proto, used)
    percent = settings.BUDGET_UNBOUNDED_PERCENT if percent is None else percent
    limit = sum(sizes.values()) * percent / 100
    points, unsaturated = quant_points(graph, state), with_logit_outputs(proto)
    simulator = FakeQuantComparison(unsaturated if goal is None else proto, evaluation)
    before = simulator.measure(points)
    terms = list[NoiseTerm]()
    if not graph.biasless:  # the biases of copies offset them by different parts of a step
        errors = sensitivity.measure(
            unsaturated, points, used, settings.BUDGET_PROBES, lambda done, _: step(done, all_steps)
        )
        terms = [] if errors is None else _terms(graph, points, errors)
    repeatable = {name: size for name, size in sizes.items() if name in hessians}
    repeats: Repeats = {}
    checked: Repeats = {}
    oversampled, after = Oversampled(graph, state), before
    for number in range(1, 1 + settings.BUDGET_CHECKS):
        if goal is not None and after.sqnr_db is not None and after.sqnr_db >= goal:
            break
        counts = allocate(terms, repeatable, limit * number / settings.BUDGET_CHECKS)
        if counts and counts != checked:
            checked = counts
            candidate = oversample(graph, state, hessians, counts)
            model = candidate.graph.proto
            compared = model if simulator.is_of_outputs(model) else with_logit_outputs(model)
            error = simulator.measure(quant_points(candidate.graph, candidate.state), compared)
            if error.ratio(after) < 1 and sum(error.noise) < sum(after.noise):
                repeats, oversampled, after = counts, candidate, error
        step(settings.BUDGET_PROBES * (1 + number), all_steps)
    layer_costs = {name: (times - 1) * repeatable[name] for name, times in repeats.items()}
    return BudgetResult(
        oversampled, repeats, layer_costs, sum(sizes.values()), before, after,
        not simulator.is_of_outputs(proto),
    )  # fmt: skip


def _terms(
    graph: LegalModel, points: Sequence[QuantPoint], errors: sensitivity.Sensitivity
) -> list[NoiseTerm]:
    """Return the error of every rounding, with the layers that reduce it."""
    tensors = {t.name: t for node in graph.model.nodes() for t in (*node.inputs, *node.outputs)}
    terms = []
    for point, power in zip(points, errors.powers.tolist(), strict=True):
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


@dataclass(frozen=True)
class NoiseTerm:
    """Error of one rounding, and the layers that reduce it by repeating."""

    power: float  # error of the outputs
    maker: str  # layer whose weights or output are rounded; "" where the host makes the tensor
    readers: tuple[str, ...] = ()  # layers on the device that read the tensor; () for weights
    # Whether its maker rounds it, and the host again where the maker repeats.
    is_output: bool = False

    def share_left(self, counts: Mapping[str, int]) -> float:
        """Return the remaining share of the error if layers run that often."""
        if not self.maker:
            return self._read(counts)
        copies = counts.get(self.maker, 1)
        if not self.is_output:
            return float(copies**_INPUT)
        return 1.0 if copies == 1 else float(copies**_OUTPUT + self._read(counts))

    def _read(self, counts: Mapping[str, int]) -> float:
        if not self.readers:
            return 0.0
        return sum(counts.get(r, 1) ** _INPUT for r in self.readers) / len(self.readers)


def allocate(terms: Sequence[NoiseTerm], macs: Mapping[str, int], limit: float) -> Repeats:
    """Take the best candidate for each multiplication until the limit is reached.

    Args:
        terms: errors of all roundings.
        macs: multiplications of each layer that may run several times.
        limit: largest number of extra multiplications.
    """
    joint = {(t.maker, *t.readers) for t in terms if t.is_output and t.readers}
    candidates = [*((name,) for name in macs), *sorted({tuple(dict.fromkeys(c)) for c in joint})]
    terms_of = {
        candidate: [t for t in terms if not {t.maker, *t.readers}.isdisjoint(candidate)]
        for candidate in candidates
        if macs.keys() >= set(candidate)
    }
    counts, spent = dict[str, int](), 0
    while True:
        best, best_rate = None, 0.0
        for candidate, touched in terms_of.items():
            cost = sum(macs[name] for name in candidate)
            after = counts | {name: counts.get(name, 1) + 1 for name in candidate}
            is_allowed = all(after[name] <= settings.BUDGET_MOST_COPIES for name in candidate)
            if is_allowed and spent + cost <= limit:
                gain = sum(t.power * (t.share_left(counts) - t.share_left(after)) for t in touched)
                if gain / max(cost, 1e-9) > best_rate:
                    best, best_rate = (after, spent + cost), gain / max(cost, 1e-9)
        if best is None:
            return counts
        counts, spent = best
