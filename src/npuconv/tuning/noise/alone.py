"""How much noise each of many roundings puts into the outputs, measured one by one.

With all of them at once, each with a random sign, fewer runs would do; but then errors can be
told apart only as far as they are orthogonal in the outputs, and where a few regions of an
image decide these, they are not. What lies before a rounding is exact, so it is run once for
all of a stage; what lies behind is the plain float model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv import executor
from npuconv.calibration.workers import in_order
from npuconv.tuning.noise.gated import GATES, Rounding, gated, inputs_made
from npuconv.tuning.noise.stages import Stages, State, cuts

if TYPE_CHECKING:
    from npuconv.samples import Feed

Doubles = NDArray[np.float64]

_LEAST = 2  # feeds: of one, the largest shares are those of what is odd about it
_EACH = 8  # unknowns of a stage: its sessions take as long to make as some runs
_MOST = 8  # stages


def noise_powers(
    model: onnx.ModelProto,
    roundings: Sequence[Rounding],
    feeds: Sequence[Feed],
    together: Sequence[int] | None = None,
    enough: int = 0,
) -> tuple[Doubles, float]:
    """The noise that each rounding alone would put into all outputs together.

    Args:
        model: the legal float model.
        roundings: what to measure.
        feeds: complete inputs, a few.
        together: number of the unknown, from 0, that each rounding is part of; by default
            each is one of its own. What lies in different stages is measured apart and added.
        enough: values of outputs after which no more than two feeds are looked at; 0: all are.

    Returns:
        float64 [unknowns], sums of squares over outputs and samples; and the signal's.

    Raises:
        RuntimeRefusedError: onnxruntime does not take the model, or a node fails.
    """
    powers, signal = _measured(model, roundings, feeds, together, enough)
    return powers.sum(axis=1), signal


def noise_by_feed(
    model: onnx.ModelProto, roundings: Sequence[Rounding], feeds: Sequence[Feed]
) -> Doubles:
    """The same of every rounding and each of the feeds, float64 [roundings, feeds].

    Raises:
        RuntimeRefusedError: onnxruntime does not take the model, or a node fails.
    """
    return _measured(model, roundings, feeds, None, 0)[0]


def _measured(
    model: onnx.ModelProto,
    roundings: Sequence[Rounding],
    feeds: Sequence[Feed],
    together: Sequence[int] | None,
    enough: int,
) -> tuple[Doubles, float]:
    if not roundings:
        return np.zeros((0, len(feeds))), 0.0
    parts = list(range(len(roundings))) if together is None else list(together)
    try:
        return _Line(model, roundings, parts, _MOST).measure(feeds, enough)
    except executor.RuntimeRefusedError:  # some types cannot be told of a part by itself
        return _Line(model, roundings, parts, 1).measure(feeds, enough)


class _Line:
    """Goes through the model stage by stage, with the exact tensors of every feed."""

    def __init__(
        self, model: onnx.ModelProto, roundings: Sequence[Rounding], parts: Sequence[int], most: int
    ) -> None:
        nodes, self._roundings = inputs_made(model, roundings)
        self._stages, self._parts = Stages(model, nodes), parts
        self._places = _places(self._stages.nodes, self._roundings)
        self._count, self._signal, self._seen = max(parts) + 1, 0.0, 0
        count = max(1, min(most, self._count // _EACH))
        self._ends = [0, *cuts(self._places, count), len(self._stages.nodes)]

    def measure(self, feeds: Iterable[Feed], enough: int) -> tuple[Doubles, float]:
        """See ``noise_powers``; of each feed by itself."""
        states: Iterable[State] = self._few(feeds, enough)
        found: list[Doubles] = []
        for start, stop in pairwise(self._ends):
            states = self._passed(start, stop, states, found)
        return np.stack(found, axis=1), self._signal

    def _few(self, feeds: Iterable[Feed], enough: int) -> Iterable[State]:
        for count, feed in enumerate(feeds, 1):
            yield feed
            if 0 < enough <= self._seen and count >= _LEAST:
                return

    def _passed(
        self, start: int, stop: int, states: Iterable[State], found: list[Doubles]
    ) -> list[State]:
        """Add what is rounded in a stage to what is found of each; the exact tensors behind it."""
        own = [k for k, place in enumerate(self._places) if start <= place < stop]
        stage = _Stage(self._stages, start, stop, [self._roundings[k] for k in own])
        parts, passed = [self._parts[k] for k in own], []
        for number, state in enumerate(states):
            after, ends = stage.exact(state)
            if start == 0:
                self._signal += float(np.square(ends).sum())
                self._seen += ends.size
                found.append(np.zeros(self._count))
            _add(found[number], parts, partial(stage.noise, state, ends))
            passed.append(after)
        return passed


def _add(total: Doubles, parts: Sequence[int], noise: Callable[[NDArray[np.bool_]], float]) -> None:
    unknowns = list(dict.fromkeys(parts))
    rows = (np.equal(parts, unknown) for unknown in unknowns)
    total[unknowns] += np.fromiter(in_order(noise, rows), np.float64, len(unknowns))


class _Stage:
    """Some nodes with gates, and the rest of the model behind them.

    Args:
        stages: the whole model.
        start: the first node.
        stop: the node behind the last.
        roundings: of these nodes.
    """

    def __init__(
        self, stages: Stages, start: int, stop: int, roundings: Sequence[Rounding]
    ) -> None:
        self._stages, self._start, self._stop = stages, start, stop
        self._roundings, self._needed = roundings, stages.needed(stop)
        self._gated: executor.Session | None = None
        self._rest: executor.Session | None = None

    def exact(self, state: State) -> tuple[State, Doubles]:
        """What is needed behind the stage, and all outputs, where nothing is rounded."""
        after = self._after(state, np.zeros(len(self._roundings)))
        return {n: v for n, v in after.items() if n in self._needed}, self._outputs(after)

    def noise(self, state: State, exact: Doubles, row: NDArray[np.bool_]) -> float:
        """Of all outputs, if only what the row says is rounded."""
        found = self._outputs(self._after(state, row))
        return float(np.square(found - exact).sum()) if found.size == exact.size else 0.0

    def _after(self, state: State, gates: NDArray[Any]) -> State:
        if self._gated is None:
            part = self._stages.part(self._start, self._stop, state)
            self._gated = executor.Session(gated(part, self._roundings), threads=1)
        return {**state, **self._gated.run({**state, GATES: gates.astype(np.float32)})}

    def _outputs(self, after: State) -> Doubles:
        """All that are numbers, one behind the other; what is not finite counts as 0."""
        if self._stop < len(self._stages.nodes):
            if self._rest is None:
                part = self._stages.part(self._stop, len(self._stages.nodes), after)
                self._rest = executor.Session(part, threads=1)
            after = {**after, **self._rest.run(after)}
        values = (after[name] for name in self._stages.outputs)
        arrays = (v for v in values if isinstance(v, np.ndarray) and v.dtype.kind in "fiub")
        flat = [a.reshape(-1).astype(np.float64) for a in arrays]
        joined = np.concatenate(flat) if flat else np.zeros(0)
        return np.nan_to_num(joined, nan=0.0, posinf=0.0, neginf=0.0)


def _places(nodes: Sequence[onnx.NodeProto], roundings: Sequence[Rounding]) -> list[int]:
    """The node of each: the layer of weights, and what makes a tensor."""
    layers = {node.name: place for place, node in enumerate(nodes)}
    makers = {name: place for place, node in enumerate(nodes) for name in node.output}
    gates = [rounding.gate for rounding in roundings]
    return [layers[g.layer] if g.kind == "weights" else makers[g.tensor] for g in gates]
