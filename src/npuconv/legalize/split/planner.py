"""The cheapest sequence of rewrites after which a convolution or pool keeps every known limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter, itemgetter

from npuconv.legalize.split import limits
from npuconv.legalize.split.builder import Builder, Mode, Piece, SumTerm, is_whole
from npuconv.legalize.split.crossings import added_crossings
from npuconv.legalize.split.layer import Layer
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import (
    MOST_CONVOLUTIONS,
    LayerSplit,
    Proposal,
    Rounding,
    splits_of,
)
from npuconv.model import Model, Node, Tensor, edit
from npuconv.partition.costs import Cost
from npuconv.records import dataclass, field, replace
from npuconv.target import Target

_FORMS = frozenset({"split", "dense"})  # ways that a user can prefer
# Costs in multiply-accumulates, besides those of the target: of the start of a convolution, and of
# an element that is sliced, padded or concatenated.
_CONVOLUTION, _MOVED_ELEMENT = 1000.0, 1.0
# Penalties as shares of the MACs of the layer: of partial sums and for every part after the first,
# as each is rounded to int8, up to 1 dB; and of an Add for the bias, which costs 2 to 7 dB
# (``benchmarks/targets.py splits --only "no bias"``).
_SUM_SHARE, _SUM_PART, _ADDED_BIAS = 1.0, 0.05, 3.0
_MOST_PLACED = 256  # most convolutions of a plan whose crossings are counted
_CHANNELS_PADDED: dict[str, bool | int | str] = {
    "pad_mode": "constant",
    "pad_outside_hw": 1,
    "pad_max": 0,
}


@dataclass(frozen=True)
class SplitPlan:
    """A layer that fits, or its split with a plan for each part."""

    layer: Layer
    cost: Cost
    total: float  # cost by which plans are compared
    penalty: float = 0.0  # cost of partial sums, in MACs
    split: LayerSplit | None = None
    proposal: Proposal | None = None
    parts: tuple[SplitPlan, ...] = ()
    summed_elements: int = 0  # elements of sums that int8 rounds, without the sums of the parts
    is_accumulated: bool = False  # whether the proposal is a sum that the device adds in int32

    @property
    def path(self) -> tuple[SplitPlan, ...]:
        """The plans from the layer down to the part that is split most often."""
        if self.proposal is None:
            return ()
        return (self, *max((part.path for part in self.parts), key=len, default=()))

    @property
    def splits(self) -> tuple[LayerSplit, ...]:
        """Ways in which this part is split, in order."""
        return tuple(plan.split for plan in self.path if plan.split is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of these ways in reports."""
        return tuple(split.report_name for split in self.splits)

    @property
    def texts(self) -> tuple[str, ...]:
        """Descriptions of these forms."""
        return tuple(plan.proposal.text for plan in self.path if plan.proposal is not None)

    @property
    def sums(self) -> int:
        """Elements of partial sums."""
        counts = [part.count for part in self.proposal.parts] if self.proposal else []
        pairs = zip(counts, self.parts, strict=True)
        return self.summed_elements + sum(count * part.sums for count, part in pairs)

    @cached_property
    def rounds(self) -> bool:
        """Return whether int8 rounds values that it does not round in the unsplit layer."""
        if self.split is None:
            return False
        rounding = self.split.rounding
        # Constant channels are exact in int8 unless the input is split, too.
        is_cut = rounding is Rounding.BIAS_CHANNELS and self.parts[0].split is not None
        rounds = self.summed_elements > 0 or rounding is Rounding.RESULTS or is_cut
        return rounds or any(part.rounds for part in self.parts)

    def walk(self) -> Iterator[SplitPlan]:
        """Yield the plan and the plans of its parts, each kind once."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def _has(self, rounding: Rounding) -> bool:
        ways = (plan.split for plan in self.walk() if plan.split is not None)
        return any(split.rounding is rounding for split in ways)

    @property
    def adds_bias(self) -> bool:
        """Return whether an Add is written for a bias."""
        return self._has(Rounding.BIAS)

    @property
    def biasless(self) -> bool:
        """Return whether constant input channels replace a bias."""
        return self._has(Rounding.BIAS_CHANNELS)

    @property
    def accumulates(self) -> bool:
        """Return whether the device adds partial sums of the plan in int32."""
        return any(plan.is_accumulated for plan in self.walk())

    @property
    def leaves(self) -> Iterator[Layer]:
        """The layers that the device runs, each kind once."""
        return (plan.layer for plan in self.walk() if plan.split is None)

    def build(self, builder: Builder, piece: Piece) -> Tensor:
        """Write the plan into the graph; return the output tensor."""
        if self.proposal is None or (builder.mode == "rounding" and not self.rounds):
            return builder.layer(piece)
        if builder.mode == "int8" and self.is_accumulated:
            return builder.layer(piece, terms=tuple(self.terms()))
        by_layer = {part.layer: part for part in self.parts}
        return self.proposal.write(
            builder, piece, lambda inner: by_layer[inner.layer].build(builder, inner)
        )

    def terms(self) -> Iterator[SumTerm]:
        """Yield the convolutions of a sum; a term that is a sum yields its own terms."""
        assert self.proposal is not None
        assert self.proposal.terms is not None
        layer, by_layer = self.layer, {part.layer: part for part in self.parts}
        for number, term in enumerate(self.proposal.terms(layer)):
            inner = by_layer[replace(term.layer, bias=layer.bias and number == 0)]
            extents = zip(term.bounds, (layer.source[b[0]] for b in term.bounds), strict=True)
            bounds = tuple(bound for bound, extent in extents if not is_whole(bound, extent))
            if inner.proposal is None or inner.proposal.terms is None:
                yield SumTerm(bounds, term.index, term.layer.strides, term.layer.dilations)
                continue
            for part in inner.terms():
                # The part's slices of the term's slices, as slices of the layer's weights.
                indices = zip(layer.weight, term.index, part.index, strict=True)
                cells = [range(extent)[outer][inner] for extent, outer, inner in indices]
                index = tuple(slice(r.start, r.stop, r.step) for r in cells)
                yield replace(part, bounds=(*bounds, *part.bounds), index=index)


@dataclass
class Search:
    """Result of a search: the alternatives, or the nearest form if nothing fits."""

    alternatives: list[SplitPlan] = field(default_factory=list)
    nearest: Layer | None = None
    visited: int = 0  # number of layers searched
    too_many: int = 0  # fewest convolutions of a plan over the limit; 0 if there is no such plan


@dataclass
class Planner:
    """Plans for one target; the same layer is planned once."""

    target: Target
    layout: str = "nchw"
    most_weights: int = 2**24  # largest number of weights of a dense form of groups
    most_layers: int = 4000  # largest number of different layers in the search for a layer
    exact_sums: bool = False  # whether the device adds partial sums in int32
    joins_constants: bool = True  # whether the output format can hold constant input channels
    form: str = ""  # format of the written model
    prefer: tuple[str, ...] = ()  # forms that are taken at any price
    is_native: bool = False  # whether limits are those of the hardware, without the vendor's tool
    _searches: dict[Layer, tuple[SplitPlan | None, Search]] = field(
        default_factory=dict, init=False
    )
    _exact: dict[Layer, SplitPlan | None] = field(default_factory=dict, init=False)
    _demands: dict[str, Demand | None] = field(default_factory=dict, init=False)

    @property
    def demand(self) -> Demand | None:
        """Demands of the target on Conv; None where it does not list it."""
        return self.demand_on("Conv")

    @cached_property
    def _native_planner(self) -> Planner:
        return replace(self, is_native=True)

    def demand_on(self, op: str) -> Demand | None:
        """Demands of the target on an operator; None where it does not list it."""
        if op not in self._demands:
            lookup, operator = self.target.operator, self.target.operator(op)
            operator = operator.native if operator and self.is_native else operator
            has_host = self.target.unlisted_operators != "error"
            self._demands[op] = None if operator is None else Demand(
                operator,
                self.layout,
                adds=has_host or self.exact_sums or lookup("Add") is not None,
                joins_constants=self.joins_constants and lookup("Concat") is not None,
                joins_slices=self._takes("Slice", step_max=1) and self._takes("Concat", axis=1),
                pads_channels=self.joins_constants and self._takes("Pad", **_CHANNELS_PADDED),
                most_weights=self.most_weights,
            )  # fmt: skip
        return self._demands[op]

    def _takes(self, op: str, **facts: bool | int | str) -> bool:
        """Return whether the target lists an operator, and no known limit on these facts."""
        operator = self.target.operator(op)
        return operator is not None and not operator.objections(facts)

    def plan(self, layer: Layer) -> tuple[SplitPlan | None, Search]:
        """Return the cheapest plan, or None, and the search that found it."""
        if layer not in self._searches:
            self._searches[layer] = self._search(layer)
        return self._searches[layer]

    def exact_plan(self, layer: Layer) -> SplitPlan | None:
        """Return the cheapest plan that gives the integers of the layer, or None."""
        if layer not in self._exact:
            plan = self.plan(layer)[0]
            if plan is not None and plan.rounds:
                plan = self._search(layer, exact=True)[0]
            self._exact[layer] = plan
        return self._exact[layer]

    def _search(self, layer: Layer, *, exact: bool = False) -> tuple[SplitPlan | None, Search]:
        search, demand = Search(), self.demand_on(layer.op)
        if demand is None:
            return None, search
        splits, best = splits_of(layer.op), None
        if self.exact_sums and layer.op == "Conv":
            descent = _Descent(self, demand, search, _sums_last(splits), exact, accumulates=True)
            best = descent.best(layer)
        best = best or _Descent(self, demand, search, splits, exact).best(layer)
        is_split = best is not None and best.proposal is not None
        if is_split and layer.op == "Conv" and not self.is_native:
            search.alternatives = self._placed(search.alternatives)
            best = search.alternatives[0]
        return best, search

    def _placed(self, plans: Sequence[SplitPlan]) -> list[SplitPlan]:
        """Return plans with the crossings of their nodes, preferred and cheap plans first.

        The search estimates crossings. They are counted for the plans that could be the cheapest.
        """
        placed, least = list[SplitPlan](), math.inf
        uncrossed = [(self._with_crossings(plan, 0, 0).total, plan) for plan in plans]
        for total, plan in sorted(uncrossed, key=itemgetter(0)):
            if total < least and plan.cost.convolutions <= _MOST_PLACED:
                counts = added_crossings(plan.layer, plan.build, self.target, self.form)
                plan = self._with_crossings(plan, *counts)
                least = min(least, plan.total)
            placed.append(plan)
        return sorted(placed, key=lambda p: (not self._is_preferred(p), p.total))

    def _with_crossings(self, plan: SplitPlan, crossings: int, crossing_bytes: int) -> SplitPlan:
        cost = replace(plan.cost, crossings=crossings, crossing_bytes=crossing_bytes)
        return replace(plan, cost=cost, total=self.total(cost, plan.penalty))

    def _is_preferred(self, plan: SplitPlan) -> bool:
        forms = _FORMS.intersection(plan.names)
        return bool(forms) and forms.issubset(self.prefer)

    def leaf(self, layer: Layer) -> SplitPlan:
        """The plan of a layer that fits without a rewrite.

        If the vendor's tool splits the layer, the split gives the price.
        """
        cost, penalty = Cost(layer.macs(), layer.parameters(), 1), 0.0
        if not self.is_native and (plan := self._native_planner.plan(layer)[0]):
            # The parts of the tool stay on the device.
            cost, penalty = replace(plan.cost, crossings=0), plan.penalty
        return SplitPlan(layer, cost, self.total(cost, penalty), penalty)

    def crossings(self, layer: Layer, proposal: Proposal, sums: int) -> int:
        """Return an estimate of the tensors that cross for the parts.

        Each side on which the host cuts or joins costs a crossing for every part, and another for
        the whole layer, which the host hands over in parts if it has it.
        """
        count, rank = proposal.count, len(layer.source)
        if count == 1:
            return 0
        add = "Sum" if count > 2 else "Add"
        joins = self._takes(add, rank=rank) if sums else self._takes("Concat", rank=rank, axis=1)
        crossings = 0 if joins else count + 1
        if layer.from_host:
            pieces = [part.count for part in proposal.parts if part.layer.source != layer.source]
            return crossings + max(sum(pieces) - 1, 0)
        return crossings + (0 if self._takes("Slice", rank=rank) else count + 1)

    def total(self, cost: Cost, penalty: float) -> float:
        """Return the cost by which plans are compared."""
        costs = self.target.costs
        overhead = _CONVOLUTION * cost.convolutions + _MOVED_ELEMENT * cost.moved_bytes
        return cost.total(costs) + (costs.mac or 1.0) * (overhead + penalty)


def _sums_last(splits: Sequence[LayerSplit]) -> tuple[LayerSplit, ...]:
    """Return the order for a device that adds in int32: its sums are of convolutions alone.

    All but the first of these may want a bias of zeros.
    """
    sums = [split for split in splits if split.rounding is Rounding.SUMS]
    biases = [split for split in splits if split.topics == (limits.BIAS,)]
    return (*(split for split in splits if split not in sums), *sums, *biases)


@dataclass
class _Descent:
    """Depth-first search through the ways to split, in their order."""

    planner: Planner
    demand: Demand
    search: Search
    splits: tuple[LayerSplit, ...]
    exact: bool = False  # whether int8 must round nothing more than the layer does
    accumulates: bool = False  # whether the device adds partial sums in int32
    plans: dict[tuple[Layer, int], SplitPlan | None] = field(default_factory=dict)

    def best(self, layer: Layer, start: int = 0) -> SplitPlan | None:
        """Return the cheapest plan with the ways from number ``start`` on."""
        key = (layer, start)
        if key not in self.plans:
            self.plans[key] = None  # no plan of a layer may need a plan of the same layer
            self.plans[key] = self._best(layer, start)
        return self.plans[key]

    def _best(self, layer: Layer, start: int) -> SplitPlan | None:
        if layer.empty:
            return None
        if self.demand.fits(layer):
            return self.planner.leaf(layer)
        self.search.visited += 1
        is_root, most = start == 0, self.planner.most_layers
        if self.search.visited > 4 * most:
            return None
        plans: list[SplitPlan] = []
        for number, split, proposal in self._proposals(layer, start):
            is_final = is_root and all(self.demand.fits(part.layer) for part in proposal.parts)
            if not self._is_bounded(proposal.count, is_final=is_final):
                continue
            plan = self._follow(layer, split, proposal, number if split.repeats else number + 1)
            if plan is not None and self._is_bounded(plan.cost.convolutions, is_final=is_root):
                plans.append(plan)
            if plans and self.search.visited > most:
                break
        if not plans:  # the nearest layer has the fewest faults, or the fewest MACs
            layers = filter(None, (self.search.nearest, layer))
            self.search.nearest = min(
                layers, key=lambda x: (len(self.demand.broken_facts(x)), x.macs())
            )
            return None
        plans.sort(key=attrgetter("total"))
        if is_root:
            self.search.alternatives = plans
        return plans[0]

    def _proposals(self, layer: Layer, start: int) -> Iterator[tuple[int, LayerSplit, Proposal]]:
        for number, split in enumerate(self.splits[start:], start):
            for proposal in split.propose(layer, self.demand):
                yield number, split, proposal

    def _follow(
        self, layer: Layer, split: LayerSplit, proposal: Proposal, start: int
    ) -> SplitPlan | None:
        """Return the cheapest plan that begins with this form of the layer."""
        sums, parts = split.sums(layer, proposal), []
        is_accumulated = self.accumulates and sums > 0 and split.rounding is Rounding.SUMS
        crossings = 0 if is_accumulated else self.planner.crossings(layer, proposal, sums)
        cost, penalty = Cost(0, 0, moved_bytes=proposal.moved, crossings=crossings), 0.0
        if sums and not self.demand.adds:
            return None
        for part in proposal.parts:
            inner = self.best(part.layer, start)
            if inner is None:
                return None
            parts.append(inner)
            cost = cost.plus(inner.cost, part.count, part.weights)
            penalty += part.count * inner.penalty
        if sums and not is_accumulated:
            share = _SUM_SHARE + _SUM_PART * (proposal.count - 1)
            share = _ADDED_BIAS if split.rounding is Rounding.BIAS else share
            penalty += layer.macs() * share
        plan = SplitPlan(
            layer,
            cost,
            self.planner.total(cost, penalty),
            penalty,
            split,
            proposal,
            tuple(parts),
            summed_elements=0 if is_accumulated else sums,
            is_accumulated=is_accumulated,
        )
        return None if self.exact and plan.rounds else plan

    def _is_bounded(self, convolutions: int, *, is_final: bool) -> bool:
        """Return whether so many convolutions are allowed; note the number for the root layer."""
        if convolutions <= MOST_CONVOLUTIONS:
            return True
        if is_final:
            before = self.search.too_many
            self.search.too_many = min(before or convolutions, convolutions)
        return False


def write(
    model: Model, node: Node, plan: SplitPlan, mode: Mode = "float"
) -> tuple[Tensor, Builder]:
    """Write a plan for a node of the graph; return the result and the builder."""
    source, pools = node.inputs[0], plan.layer.op != "Conv"
    weight = source if pools else node.inputs[1]
    builder = Builder(model, node, plan.layer, mode)
    bias = node.inputs[2] if plan.layer.bias else None
    return plan.build(builder, Piece(plan.layer, source, weight, bias)), builder


def split_layers(model: Model, plans: Iterable[tuple[Node, SplitPlan]]) -> list[Builder]:
    """Replace layers by their exact splits."""
    builders = []
    for node, plan in plans:
        result, builder = write(model, node, plan, "int8")
        builders.append(builder)
        edit.hand_over(result, node.outputs[0])
        edit.disconnect(node)
    return builders
