"""Runs samples through the tapped model."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx

from npuconv import executor
from npuconv.arithmetic.statistics import Floats
from npuconv.calibration import taps
from npuconv.calibration.layout import BLIND, Layout, Picks, make_layout, pick
from npuconv.errors import CalibrationError
from npuconv.samples.feeds import Feed

LARGEST_BATCH = 8
SETTLED_BY = 6  # runs that it takes to find out how many samples a run may take
BATCHED_VALUES = 2**20  # beyond, a batch saves nothing: the tensors leave the cache
_HUGE = 1e30  # values whose sum may be beyond float32
_SHAPES_KEPT = 32


@dataclass(frozen=True)
class Glance:
    """Result of one run: per sample, and per channel of all tensors, one after the other.

    Attributes:
        picks: which values were taken, and of what.
        lows: float32 [samples, sum of C]; so are highs and means.
        highs: maxima.
        means: means.
        values: float32, flat; ``picks`` cuts it.
    """

    picks: Picks
    lows: Floats
    highs: Floats
    means: Floats
    values: Floats


class Runner:
    """The tapped model, and what is known of it; nothing is loaded before the first run.

    Args:
        model: the float model; not changed.
        tensors: name -> channel axis.
        total: number of samples, None where it is not known.

    Attributes:
        batch: samples a run takes; 0 until the first of them has shown it.
    """

    def __init__(
        self, model: onnx.ModelProto, tensors: Mapping[str, int | None], total: int | None
    ) -> None:
        self.tensors = dict(tensors)
        worth = total is None or total > SETTLED_BY
        self.batch = 0 if worth and _open_batch(model) else 1
        self._model, self._total = model, total
        self._lock = threading.Lock()
        self._layouts: dict[tuple[object, ...], Layout] = {}

    def run(self, feeds: Sequence[Feed], number: int) -> Glance:
        """Run samples of equal shapes together.

        Args:
            feeds: the samples.
            number: of the first of them.

        Raises:
            CalibrationError: a tensor holds values that are not finite.
            RuntimeRefusedError: onnxruntime does not take the model, or a node fails.
        """
        samples = len(feeds)
        glance = self._glance(_stacked(feeds), samples, number, self._total or number + samples)
        broken = _first_broken(glance)
        if broken is None:
            return glance
        if samples > 1:  # which of them is it?
            for offset, feed in enumerate(feeds):
                self.run([feed], number + offset)
        raise CalibrationError(
            f"sample {number}: the float model itself makes values that are not finite "
            f"(tensor {list(self.tensors)[broken]!r})",
            hint="check the weights, and the normalization of the samples",
        )

    def settle(self, feed: Feed) -> None:
        """Find out from a sample how many can be run together, unless that is known."""
        if self.batch:
            return
        self.batch = 1
        with contextlib.suppress(executor.RuntimeRefusedError):
            self.batch = self._batch_for(feed)

    def _batch_for(self, feed: Feed) -> int:
        """Two are run together and one by one: the sample, and itself backwards."""
        one = self._glance(feed, 1, 0, 2)
        fits = BATCHED_VALUES // max(one.picks.layout.size, 1)
        if fits < 2:
            return 1
        backwards = {name: x.ravel()[::-1].reshape(x.shape) for name, x in feed.items()}
        other = self._glance(backwards, 1, 1, 2)
        both = self._glance(_stacked([feed, backwards]), 2, 0, 2)
        largest = min(LARGEST_BATCH, 1 << (fits.bit_length() - 1))
        return largest if _agree(both, one, other) else 1

    def _glance(self, feed: Feed, samples: int, number: int, total: int) -> Glance:
        key = (samples, *((name, x.shape) for name, x in feed.items()))
        with self._lock:  # several samples run at once: one of them finds out for all
            known = self._layouts.get(key)
            layout = known or self._remember(key, self._discover(feed, samples))
        picks = pick(layout, number, total)
        try:
            found = self._session.run({**feed, taps.PLAN: picks.plan}, taps.KINDS)
        except executor.RuntimeRefusedError:
            with self._lock:
                self._layouts.pop(key, None)
            if known is None:
                raise
            return self._glance(feed, samples, number, total)  # shapes that depend on the data
        return Glance(picks, *(found[kind] for kind in taps.KINDS))

    @cached_property
    def _session(self) -> executor.Session:
        """Made when it is needed: not where all is in the cache."""
        tapped = taps.insert_taps(self._model, list(self.tensors))
        return executor.Session(tapped, threads=1, eager=True)

    def _discover(self, feed: Feed, samples: int) -> Layout:
        """Shapes depend on the inputs in ways that only a run tells."""
        plan = np.asarray(BLIND * len(self.tensors), np.int64)
        names = [taps.shape_output(index) for index in range(len(self.tensors))]
        found = self._session.run({**feed, taps.PLAN: plan}, names)
        shapes = [found[name].tolist() for name in names]
        axes = [
            axis if axis is None else axis % max(len(shape), 1)
            for axis, shape in zip(self.tensors.values(), shapes, strict=True)
        ]
        layout = make_layout(shapes, axes, samples)
        if layout is None:
            raise executor.RuntimeRefusedError("a batch cannot be cut into samples")
        return layout

    def _remember(self, key: tuple[object, ...], layout: Layout) -> Layout:
        self._layouts[key] = layout
        while len(self._layouts) > _SHAPES_KEPT:
            self._layouts.pop(next(iter(self._layouts)))
        return layout


def _open_batch(model: onnx.ModelProto) -> bool:
    """Do all inputs leave their first axis open?"""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in constants]
    shapes = [i.type.tensor_type.shape.dim for i in inputs]
    return bool(inputs) and all(dims and not dims[0].HasField("dim_value") for dims in shapes)


def _stacked(feeds: Sequence[Feed]) -> Feed:
    if len(feeds) == 1:
        return feeds[0]
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


def _first_broken(glance: Glance) -> int | None:
    """Index of the first tensor with a value that is not finite.

    A mean shows every such value, where a minimum may pass over NaN; but the sum of huge
    values overflows by itself. A tensor without values has none that is not.
    """
    layout = glance.picks.layout
    reach = np.maximum(np.abs(glance.lows), np.abs(glance.highs))
    fine = np.isfinite(reach) & (np.isfinite(glance.means) | (reach > _HUGE))
    fine |= np.repeat(layout.counts == 0, layout.channels)
    if fine.all():
        return None
    ends = np.cumsum(layout.channels)
    return int(np.searchsorted(ends, int(np.argmin(fine.all(axis=0))), side="right"))


def _agree(both: Glance, one: Glance, other: Glance) -> bool:
    """Does a run of two give what two runs give, to the last bit?

    Else the integers of a model would depend on whether its batch is open.
    """
    if any(_first_broken(glance) is not None for glance in (both, one, other)):
        return False
    if not np.array_equal(both.picks.layout.counts, one.picks.layout.counts):
        return False
    pairs = [
        (both.lows, np.concatenate([one.lows, other.lows])),
        (both.highs, np.concatenate([one.highs, other.highs])),
        (both.means, np.concatenate([one.means, other.means])),
    ]
    cuts = (both.picks.cut(both.values), one.picks.cut(one.values), other.picks.cut(other.values))
    for together, *apart in zip(*cuts, strict=True):
        pairs.append((together.values, np.concatenate([kept.values for kept in apart], axis=1)))
    return all(np.array_equal(a, b) for a, b in pairs)
