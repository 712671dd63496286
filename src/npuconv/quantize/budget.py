"""Extra multiplications for accuracy: which layers to run, and channels to make, several times.

One greedy sweep: the purchase that takes away most estimated error for each multiplication
comes first, until the limit or the goal is reached. A purchase is a layer once more, a layer
with all that read it on the device (the error of the tensor between them only goes if both
repeat), or one channel once more. What was bought is then checked once, in a simulation of all
roundings on evaluation samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.legalize.context import PassContext
from npuconv.model import load, query, shapes
from npuconv.model.conv import Window, window
from npuconv.partition import macs
from npuconv.partition.channel_paths import ChannelPath, channel_paths, is_depthwise, parameters
from npuconv.quantize import sensitivity
from npuconv.quantize.fake_quant import quant_points
from npuconv.quantize.output_error import Error, OutputError, logits
from npuconv.quantize.oversampling import Oversampled, Purchase, oversample
from npuconv.quantize.settings import BUDGET

if TYPE_CHECKING:
    import onnx

    from npuconv.model.types import Tensor
    from npuconv.quantize.fake_quant import QuantPoint
    from npuconv.quantize.hessian import Hessian
    from npuconv.quantize.state import DeviceGraph, QuantState
    from npuconv.samples import Feed, Samples

Doubles = NDArray[np.float64]
Step = tuple[str, ...] | int  # layers that run once more, or a channel set: one channel more
# What is left of the error of an output if k copies round it, as a power of k: their inputs
# differ, so their roundings are neither alike nor independent. Dithered inputs: k * k.
_OUTPUT, _INPUT = -1.5, -2.0


@dataclass(frozen=True)
class Term:
    """Error of one rounding, and who could make it less.

    Attributes:
        channels: in the outputs of the model, by channel of what is rounded.
        maker: the layer whose weights or output are rounded; "" where the host makes it.
        readers: the layers on the device that read it; () for weights.
        is_output: rounded by its maker, and by the host anew where that repeats.
    """

    channels: Doubles
    maker: str
    readers: tuple[str, ...] = ()
    is_output: bool = False

    def share_left(self, counts: Mapping[str, int]) -> float:
        """Return what is left of it if layers run that often."""
        if not self.maker:
            return self._read(counts)
        own = counts.get(self.maker, 1)
        if not self.is_output:
            return float(own**_INPUT)
        return 1.0 if own == 1 else float(own**_OUTPUT + self._read(counts))

    def _read(self, counts: Mapping[str, int]) -> float:
        if not self.readers:
            return 0.0
        return sum(counts.get(r, 1) ** _INPUT for r in self.readers) / len(self.readers)


@dataclass(frozen=True)
class ChannelSet:
    """Channels each of which may be made several times.

    Attributes:
        tensor: name of the first tensor that has them.
        count: C.
        rows: layers that make one more with each; with it grow their multiplications.
        columns: layers that read one more with each.
        terms: numbers of the terms whose channels they are.
    """

    tensor: str
    count: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    terms: tuple[int, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.rows, *self.columns)


@dataclass
class Allocator:
    """Greedy allocation of extra multiplications.

    Attributes:
        terms: all errors.
        macs: multiplications of each layer that may run several times.
        sets: channels that may be made several times, of such layers.
        fits: whether a layer may have so many more rows and columns.
        repeats: whether layers may run several times: somebody has to take the mean.
    """

    terms: Sequence[Term]
    macs: Mapping[str, int]
    sets: Sequence[ChannelSet] = ()
    fits: Callable[[str, int, int], bool] = lambda *_: True
    repeats: bool = True
    spent: float = 0.0
    _counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start with nothing bought."""
        self._times = [np.ones(one.count, np.int64) for one in self.sets]
        self._channels = [term.channels.copy() for term in self.terms]
        self._costs = {name: float(size) for name, size in self.macs.items()}
        self._rows, self._columns = Counter[str](), Counter[str]()
        self._steps = self._all_steps()
        self._touching: dict[int, list[Step]] = {}
        for step, numbers in self._steps.items():
            for number in numbers:
                self._touching.setdefault(number, []).append(step)
        self._gains = {step: self._gain(step) for step in self._steps}
        self.left = sum(float(t.channels.sum()) for t in self.terms)

    def _all_steps(self) -> dict[Step, list[int]]:
        """Return every purchase, and the numbers of the terms that it makes less."""
        of: dict[str, list[int]] = {}
        for number, term in enumerate(self.terms):
            for name in {term.maker, *term.readers}:
                of.setdefault(name, []).append(number)
        joint = {(t.maker, *t.readers) for t in self.terms if t.is_output and t.readers}
        both = sorted(tuple(dict.fromkeys(step)) for step in joint)
        singles = [(name,) for name in self.macs]
        layers = [s for s in (*singles, *both) if all(name in self.macs for name in s)]
        found: dict[Step, list[int]] = {
            step: sorted({number for name in step for number in of.get(name, ())})
            for step in (layers if self.repeats else ())
        }
        return found | {place: list(one.terms) for place, one in enumerate(self.sets)}

    def buy(self, limit: float, enough: float = 0.0) -> Purchase:
        """Take purchase after purchase that removes most error for each multiplication.

        Args:
            limit: multiplications, in all.
            enough: error that is little enough.
        """
        while self.left > enough:
            rates = (
                (self._gains[s][0] / self._price(s) / self._reserve(s), s) for s in self._steps
            )
            best = max(
                (pair for pair in rates if pair[0] > 0 and self._may(pair[1], limit)),
                key=lambda pair: pair[0],
                default=None,
            )
            if best is None:
                break
            self._take(best[1])
        index = {
            one.tensor: (*range(one.count), *np.repeat(np.arange(one.count), times - 1).tolist())
            for one, times in zip(self.sets, self._times, strict=True)
            if (times > 1).any()
        }
        return Purchase(dict(self._counts), index)

    @staticmethod
    def _reserve(step: Step) -> float:
        """A layer as a whole also makes less what a channel does not."""
        return 1.0 if isinstance(step, tuple) else BUDGET.channel_reserve

    def _gain(self, step: Step) -> tuple[float, int]:
        """Return the error that goes, and the channel with which it goes."""
        if isinstance(step, tuple):
            after = self._counts | {name: self._counts.get(name, 1) + 1 for name in step}
            parts = ((self.terms[k], self._channels[k].sum()) for k in self._steps[step])
            return sum(
                float(own) * (t.share_left(self._counts) - t.share_left(after)) for t, own in parts
            ), 0
        times = self._times[step].astype(np.float64)
        less = np.where(times < BUDGET.most_copies, 1 - (times / (times + 1)) ** 2, 0.0)
        there = sum(
            self._channels[k] * self.terms[k].share_left(self._counts) for k in self._steps[step]
        )
        gains = less * there
        best = int(np.argmax(gains))
        return float(gains[best]), best

    def _price(self, step: Step) -> float:
        if isinstance(step, tuple):
            return sum(self._costs[name] / self._counts.get(name, 1) for name in step) or 1e-9
        there = int(self._times[step].sum())
        return sum(self._costs[name] for name in self.sets[step].layers) / there or 1e-9

    def _may(self, step: Step, limit: float) -> bool:
        if self.spent + self._price(step) > limit:
            return False
        if isinstance(step, tuple):
            return all(self._counts.get(name, 1) < BUDGET.most_copies for name in step)
        rows, columns = Counter(self.sets[step].rows), Counter(self.sets[step].columns)
        return all(
            self.fits(n, self._rows[n] + rows[n], self._columns[n] + columns[n])
            for n in {**rows, **columns}
        )

    def _take(self, step: Step) -> None:
        (gain, channel), price = self._gains[step], self._price(step)
        self.left, self.spent = self.left - gain, self.spent + price
        if isinstance(step, tuple):
            for name in step:
                times = self._counts.get(name, 1)
                self._counts[name] = times + 1
                self._costs[name] *= (times + 1) / times
        else:
            self._make_again(step, channel)
        for other in {o: None for number in self._steps[step] for o in self._touching[number]}:
            self._gains[other] = self._gain(other)

    def _make_again(self, place: int, channel: int) -> None:
        one, times = self.sets[place], self._times[place]
        more = (int(times.sum()) + 1) / int(times.sum())
        share = float((times[channel] / (times[channel] + 1)) ** 2)
        times[channel] += 1
        for number in one.terms:
            self._channels[number][channel] *= share
        for name in one.layers:
            self._costs[name] *= more
        self._rows.update(one.rows)
        self._columns.update(one.columns)


@dataclass(frozen=True)
class Spent:
    """Result of spending a budget of extra multiplications.

    Attributes:
        oversampled: the graph and its state; unchanged where nothing is repeated.
        purchase: layers and channels that are repeated.
        layer_macs: by node, the multiplications that running it again adds.
        channel_macs: by tensor, those that its copies add.
        sets: the channels that could be repeated, by tensor.
        macs: multiplications of the device before.
        before: error of the outputs on the evaluation samples.
        after: the same with the repeated layers and channels.
        is_before_saturation: whether outputs are taken before a Softmax or the like.
    """

    oversampled: Oversampled
    purchase: Purchase
    layer_macs: Mapping[str, int]
    channel_macs: Mapping[str, int]
    sets: Mapping[str, ChannelSet]
    macs: int
    before: Error
    after: Error
    is_before_saturation: bool

    @property
    def extra_macs(self) -> int:
        """Multiplications that were added."""
        return sum(self.layer_macs.values()) + sum(self.channel_macs.values())


def spend_budget(
    graph: DeviceGraph,
    state: QuantState,
    hessians: Mapping[str, Hessian],
    used: Samples,
    evaluation: Sequence[Feed],
) -> Spent:
    """Buy accuracy with ``max_extra_macs`` percent of multiplications, or until ``min_sqnr``.

    Args:
        graph: a legal float model; changed in place if something is bought.
        state: how it is quantized.
        hessians: of its convolutions, by node name.
        used: calibration samples, on which sensitivity is measured.
        evaluation: samples that a purchase is checked on.

    Raises:
        CalibrationError: the model does not run on the samples.
    """
    goal, percent = graph.options.min_sqnr, graph.options.max_extra_macs
    proto = graph.proto()
    sizes = layer_macs(graph, proto, used)
    limit = sum(sizes.values()) * (BUDGET.unbounded_percent if percent is None else percent) / 100
    points = quant_points(graph, state)
    ends = logits(proto)
    judged = ends if goal is None else proto
    error = OutputError(judged, evaluation)
    before = error.of(points)
    terms = _terms(graph, points, state, ends, used)
    free = {name: count for name, count in sizes.items() if name in hessians}

    def offer() -> Allocator:
        sets = channel_sets(graph, points, free) if terms else []
        return Allocator(terms, free, sets, _limits(graph), graph.has_host)

    shop, allowed = offer(), _allowed(before, goal)
    purchase, after, tried = Purchase(), before, None
    share = allowed
    for _ in range(BUDGET.tries if goal is not None else 1):
        if share >= 1 or not terms:
            break
        shop = offer()
        wanted = shop.buy(limit, shop.left * share)
        if not wanted or wanted == purchase:
            break
        found, one = _tried(graph, state, hessians, wanted, used, error)
        if one.ratio(after) < 1 and sum(one.noise) < sum(after.noise):
            purchase, after, tried = wanted, one, found
        left = sum(one.noise) / max(sum(before.noise), 1e-30)
        if goal is None or left <= allowed:
            break
        share *= BUDGET.caution * allowed / left
    made = Oversampled(graph, state)
    if tried is not None:
        made = oversample(graph, state, hessians, purchase, used, known=tried.state)
    layers, channels = _bill(shop, purchase)
    outputs = [o.name for o in judged.graph.output], [o.name for o in proto.graph.output]
    return Spent(
        made, purchase, layers, channels, {one.tensor: one for one in shop.sets},
        sum(sizes.values()), before, after, outputs[0] != outputs[1],
    )  # fmt: skip


def _allowed(before: Error, goal: float | None) -> float:
    """Return the share of the error that a goal in dB leaves; 0 without one."""
    if goal is None:
        return 0.0
    noise = sum(before.noise)
    return sum(before.signal) / 10 ** (goal / 10) / noise if noise else 1.0


def _tried(
    graph: DeviceGraph,
    state: QuantState,
    hessians: Mapping[str, Hessian],
    wanted: Purchase,
    used: Samples,
    error: OutputError,
) -> tuple[Oversampled, Error]:
    """Simulate a purchase on a copy of the model."""
    model = load.load(graph.proto())
    ctx = PassContext(graph.target, graph.options, verify=False)
    found = oversample(graph.replanned(model, ctx), state, hessians, wanted, used)
    made = found.graph.proto()
    judged = made if error.is_of_outputs(made) else logits(made)
    return found, error.of(quant_points(found.graph, found.state), judged)


def _terms(
    graph: DeviceGraph,
    points: Sequence[QuantPoint],
    state: QuantState,
    ends: onnx.ModelProto,
    used: Samples,
) -> list[Term]:
    """Return the error of every rounding with those who could make it less; none if unknown."""
    found = sensitivity.measure(ends, points, state, used, BUDGET.probes)
    if found is None:
        return []
    tensors = {t.name: t for node in graph.model.nodes() for t in (*node.inputs, *node.outputs)}
    terms = []
    for point, power in zip(points, found.channels, strict=True):
        if point.kind == "weights":
            terms.append(Term(power, point.layer))
            continue
        readers = _device_readers(graph, tensors[point.tensor])
        is_output = point.kind == "output"
        terms.append(Term(power, point.layer if is_output else "", readers, is_output))
    return terms


def _device_readers(graph: DeviceGraph, tensor: Tensor) -> tuple[str, ...]:
    """Return the device convolutions that read a tensor, also behind what passes int8 on."""
    found: dict[str, None] = {}
    waiting = [tensor]
    while waiting:
        for node in query.consumers(waiting.pop()):
            if graph.plan.on_device(node):
                found[node.name] = None
            elif graph.plan.is_passthrough(node):
                waiting.extend(node.outputs)
    return tuple(found)


def channel_sets(
    graph: DeviceGraph, points: Sequence[QuantPoint], layers: Iterable[str]
) -> list[ChannelSet]:
    """Return the channels that may be made several times.

    Args:
        graph: a legal float model.
        points: all of its roundings.
        layers: names of those that may be changed.
    """
    at = {p.tensor: k for k, p in enumerate(points) if p.kind != "weights"}
    model, is_int8, free = graph.model.graph, graph.options.io == "int8", set(layers)
    shut = {t.name for t in (*model.inputs, *model.outputs)} if is_int8 else set()
    found = []
    for own in channel_paths(graph.model, graph.plan):
        rows, columns = (tuple(c.name for c in convs) for convs in (own.row_layers, own.readers))
        numbers = tuple(at[name] for name in own.tensors if name in at)
        fixed = shut & {own.tensor.name, *(end.name for end in own.outputs)}
        inside = own.producer is not None and not own.outputs
        if numbers and not fixed and (inside or graph.has_host) and free.issuperset(rows + columns):
            found.append(ChannelSet(own.tensor.name, _count(own), rows, columns, numbers))
    return found


def _count(own: ChannelPath) -> int:
    if own.row_layers:
        return len(parameters(own.row_layers[0])[0])
    return int(parameters(own.readers[0])[0].shape[1])


def _limits(graph: DeviceGraph) -> Callable[[str, int, int], bool]:
    """Return whether the target takes a layer with so many more rows and columns."""
    own = {conv.name: (window(conv), is_depthwise(conv)) for conv in graph.plan.device}
    known: dict[tuple[str, int, int], bool] = {}

    def fits(layer: str, rows: int, columns: int) -> bool:
        """Return whether the target takes it; asked once for each size."""
        key = (layer, rows, columns)
        if key not in known:
            win, apart = own[layer]
            larger = None if win is None else _larger(win, rows, columns, apart=apart)
            known[key] = larger is not None and not graph.ctx.objections(larger)
        return known[key]

    return fits


def _larger(own: Window, rows: int, columns: int, *, apart: bool) -> Window | None:
    """Return a convolution with more channels."""
    if own.weight is None:
        return None
    made, read = own.weight[0] + rows, own.weight[1] + columns
    return replace(
        own,
        weight=(made, read, *own.weight[2:]),
        group=made if apart else own.group,
        input=_with_channels(own.input, made if apart else read),
        output=_with_channels(own.output, made),
    )


def _with_channels(
    dims: tuple[int | str | None, ...] | None, count: int
) -> tuple[int | str | None, ...] | None:
    return None if dims is None else (dims[0], count, *dims[2:])


def layer_macs(graph: DeviceGraph, proto: onnx.ModelProto, samples: Samples) -> dict[str, int]:
    """Return the multiplications of every device layer; open sizes as the samples have them."""
    known = {conv.name: macs(conv) for conv in graph.plan.device}
    if None in known.values():
        model = load.load(proto)
        feed = next(iter(samples[:1]))
        shapes.fix_inputs(model, {name: array.shape for name, array in feed.items()})
        shapes.infer(model)
        sized = {node.name: macs(node) for node in model.nodes("Conv")}
        known = {name: sized.get(name) for name in known}
    return {name: count for name, count in known.items() if count}


def _bill(shop: Allocator, purchase: Purchase) -> tuple[dict[str, int], dict[str, int]]:
    """Return what layers and channels add: first channels, then layers with all of these."""
    costs = {name: Fraction(size) for name, size in shop.macs.items()}
    channels = {}
    for one in (one for one in shop.sets if one.tensor in purchase.channels):
        before = sum(costs.values())
        for name in one.layers:
            costs[name] *= Fraction(len(purchase.channels[one.tensor]), one.count)
        channels[one.tensor] = int(sum(costs.values()) - before)
    layers = {name: int((times - 1) * costs[name]) for name, times in purchase.layers.items()}
    return layers, channels
