"""One float pass over the samples: statistics of tensors, channel by channel.

Samples are run in batches where that gives the same numbers, and joined in parts of 16: the result
depends on the samples alone, not on the number of workers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import onnx

from npuconv import executor
from npuconv.arithmetic.statistics import Floats, Integers, Kept, Statistics, join, thin
from npuconv.data import taps
from npuconv.data.samples import Feed
from npuconv.data.taps import UNKNOWN_SHAPE, TapLayout, TapSelection, make_layout, select
from npuconv.data.workers import OrderedWorkers, read_ahead
from npuconv.errors import CalibrationError

PART = 16  # samples of a part; a multiple of every size of a batch
MAX_BATCH = 8  # samples of a run
BATCH_TRIAL_RUNS = 6  # runs that the choice of the batch costs
MAX_BATCH_VALUES = 2**20  # of the tensors of a run; more do not fit into the processor's cache
MAX_LAYOUTS = 32  # layouts in memory, one for each shape of samples
_SUM_MAY_OVERFLOW = 1e30  # values whose sum may be beyond float32
_LARGEST_FLOAT = np.finfo(np.float32).max


def collect(
    model: onnx.ModelProto,
    tensors: Mapping[str, int | None],
    feeds: Iterable[Feed],
    *,
    progress: Callable[[], None] = lambda: None,
    runner: Runner | None = None,
) -> dict[str, Statistics]:
    """Run the samples once through the float model and observe tensors.

    The samples are read while the model runs, and dropped after it: memory does not grow with
    them. The result is the same to the bit for the same samples.

    Args:
        model: the legalized float model; not changed.
        tensors: name -> channel axis, None: all channels together. Model inputs included.
        feeds: complete inputs, one dict per sample. With a length, each sample gives at
            once only the values that are kept in the end.
        progress: called after each sample.
        runner: of the same model and tensors, so that it is not loaded again.

    Raises:
        CalibrationError: onnxruntime refuses the model or a sample, a tensor holds values
            that are not finite, or there are no samples.
    """
    if not tensors:
        return {}
    total = len(feeds) if isinstance(feeds, Sized) else None
    runner = runner or Runner(model, tensors, total)
    statistics: dict[str, Statistics] = {}
    first = 0
    with contextlib.closing(read_ahead(feeds)) as samples:
        try:
            while part := _run_part(runner, islice(samples, PART), first, progress):
                first += next(iter(part.values())).samples
                for name in list(part):  # one by one, so that not all of them are there twice
                    before, after = statistics.pop(name, None), part.pop(name)
                    if before is not None and before.channels != after.channels:
                        raise _channels_differ(name)
                    statistics[name] = after if before is None else join([before, after])
        except executor.RuntimeRefusedError as error:
            text = f"the float model does not run on the samples: {error}"
            raise CalibrationError(text) from None
    if not statistics:
        raise CalibrationError("there are no samples to calibrate on")
    return statistics


@dataclass(frozen=True)
class RunResult:
    """Result of one run: per sample, and per channel of all tensors, one after the other."""

    selection: TapSelection  # which values were taken, and of which tensors
    lows: Floats  # float32 [samples, sum of C]; so are highs and means
    highs: Floats
    means: Floats
    values: Floats  # float32, flat; ``selection`` cuts it


class Runner:
    """The tapped model and the layouts of its tensors; loaded with the first run.

    Args:
        model: the float model; not changed.
        tensors: name -> channel axis.
        total: number of samples, None where it is not known.

    Attributes:
        batch: samples a run takes; 0 until it was measured on the first.
    """

    def __init__(
        self, model: onnx.ModelProto, tensors: Mapping[str, int | None], total: int | None
    ) -> None:
        self.tensors = dict(tensors)
        saves_time = total is None or total > BATCH_TRIAL_RUNS
        self.batch = 0 if saves_time and _has_open_batch(model) else 1
        self._model, self._total = model, total
        self._lock = threading.Lock()
        self._layouts: dict[tuple[object, ...], TapLayout] = {}

    def run(self, feeds: Sequence[Feed], number: int) -> RunResult:
        """Run samples of equal shapes together.

        Raises:
            CalibrationError: a tensor holds values that are not finite.
            RuntimeRefusedError: onnxruntime does not take the model, or a node fails.
        """
        samples = len(feeds)
        result = self._run(_stack(feeds), samples, number, self._total or number + samples)
        broken = _first_broken(result)
        if broken is None:
            return result
        if samples > 1:  # which of them is it?
            for offset, feed in enumerate(feeds):
                self.run([feed], number + offset)
        raise not_finite(number, list(self.tensors)[broken])

    def choose_batch(self, feed: Feed) -> None:
        """Measure on a sample how many can be run together, unless that is known."""
        if not self.batch:
            self.batch = 1
            with contextlib.suppress(executor.RuntimeRefusedError):
                # This sample and its reverse, separately and together.
                first = self._run(feed, 1, 0, 2)
                fits = MAX_BATCH_VALUES // max(first.selection.layout.size, 1)
                if fits < 2:
                    return
                backwards = {name: x.ravel()[::-1].reshape(x.shape) for name, x in feed.items()}
                second = self._run(backwards, 1, 1, 2)
                joint = self._run(_stack([feed, backwards]), 2, 0, 2)
                if _agree(joint, first, second):
                    self.batch = min(MAX_BATCH, 1 << (fits.bit_length() - 1))

    def _run(self, feed: Feed, samples: int, number: int, total: int) -> RunResult:
        key = (samples, *((name, x.shape) for name, x in feed.items()))
        with self._lock:  # several samples run at once: one of them measures for all
            remembered = self._layouts.get(key)
            layout = remembered or self._discover(feed, samples)
            self._layouts[key] = layout
            while len(self._layouts) > MAX_LAYOUTS:
                self._layouts.pop(next(iter(self._layouts)))
        selection = select(layout, number, total)
        try:
            arrays = self._session.run({**feed, taps.PLAN: selection.plan}, taps.KINDS, number)
        except executor.RuntimeRefusedError:
            with self._lock:
                self._layouts.pop(key, None)
            if remembered is None:
                raise
            return self._run(feed, samples, number, total)  # shapes that depend on the data
        return RunResult(selection, *(arrays[kind] for kind in taps.KINDS))

    @cached_property
    def _session(self) -> executor.Session:
        """The loaded model."""
        tapped = taps.insert_taps(self._model, list(self.tensors))
        return executor.Session(tapped, threads=1, eager=True)

    def _discover(self, feed: Feed, samples: int) -> TapLayout:
        """Return the layout of the tensors for inputs of these shapes, from a run."""
        plan = np.asarray(UNKNOWN_SHAPE * len(self.tensors), np.int64)
        names = [taps.shape_output(index) for index in range(len(self.tensors))]
        arrays = self._session.run({**feed, taps.PLAN: plan}, names)
        shapes = [arrays[name].tolist() for name in names]
        axes = [
            axis if axis is None else axis % max(len(shape), 1)
            for axis, shape in zip(self.tensors.values(), shapes, strict=True)
        ]
        layout = make_layout(shapes, axes, samples)
        if layout is None:
            raise executor.RuntimeRefusedError("a batch cannot be cut into samples")
        return layout


def _has_open_batch(model: onnx.ModelProto) -> bool:
    """Return whether all inputs leave their first axis open."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in constants]
    shapes = [i.type.tensor_type.shape.dim for i in inputs]
    return bool(inputs) and all(dims and not dims[0].HasField("dim_value") for dims in shapes)


def _stack(feeds: Sequence[Feed]) -> Feed:
    if len(feeds) == 1:
        return feeds[0]
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


def _first_broken(result: RunResult) -> int | None:
    """Index of the first tensor with a value that is not finite.

    A mean shows every such value, where a minimum may pass over NaN; but the sum of huge
    values overflows by itself. A tensor without values has none that is not.
    """
    layout = result.selection.layout
    reach = np.maximum(np.abs(result.lows), np.abs(result.highs))
    fine = np.isfinite(reach) & (np.isfinite(result.means) | (reach > _SUM_MAY_OVERFLOW))
    fine |= np.repeat(layout.counts == 0, layout.channels)
    if fine.all():
        return None
    stops = np.cumsum(layout.channels)
    return int(np.searchsorted(stops, int(np.argmin(fine.all(axis=0))), side="right"))


def _agree(joint: RunResult, first: RunResult, second: RunResult) -> bool:
    """Return whether a run of two samples equals two runs, to the last bit.

    Else the integers of a model would depend on whether its batch is open.
    """
    if any(_first_broken(result) is not None for result in (joint, first, second)):
        return False
    if not np.array_equal(joint.selection.layout.counts, first.selection.layout.counts):
        return False
    pairs = [
        (joint.lows, np.concatenate([first.lows, second.lows])),
        (joint.highs, np.concatenate([first.highs, second.highs])),
        (joint.means, np.concatenate([first.means, second.means])),
    ]
    cuts = (run.selection.cut(run.values) for run in (joint, first, second))
    for together, *apart in zip(*cuts, strict=True):
        pairs.append((together.values, np.concatenate([run.values for run in apart], axis=1)))
    return all(np.array_equal(a, b) for a, b in pairs)


def _run_part(
    runner: Runner, samples: Iterable[Feed], first: int, progress: Callable[[], None]
) -> dict[str, Statistics]:
    """Return the statistics of adjacent samples, {} if there are none.

    How they are batched depends on the part alone, so the numbers do not depend on other parts.

    Raises:
        CalibrationError: a tensor holds values that are not finite, or its number of channels
            differs between samples.
        RuntimeRefusedError: onnxruntime does not take the model, or a node fails.
    """
    workers = OrderedWorkers[tuple[list[Feed], int], RunResult](
        lambda arguments: runner.run(*arguments)
    )
    results: list[RunResult] = []
    values: list[list[Kept]] = [[] for _ in runner.tensors]
    batch: list[Feed] = []
    number = first

    def take(finished: Iterable[RunResult]) -> None:
        for result in finished:
            for rows, selected in zip(values, result.selection.cut(result.values), strict=True):
                rows.append(selected)
            results.append(replace(result, values=result.values[:0].copy()))

    try:
        for feed in samples:
            runner.choose_batch(feed)
            if batch and _shapes(batch[0]) != _shapes(feed):
                take(workers.put((batch, number)))
                number, batch = number + len(batch), []
            batch.append(feed)
            if len(batch) == runner.batch:
                take(workers.put((batch, number)))
                number, batch = number + len(batch), []
            progress()
        if batch:
            take(workers.put((batch, number)))
        take(workers.drain())
    finally:
        workers.abandon()  # after an error; else there is nothing left
    if not results:
        return {}
    channels = np.asarray([result.selection.layout.channels for result in results])
    changing = np.flatnonzero((channels != channels[0]).any(axis=0))
    if changing.size:
        raise _channels_differ(list(runner.tensors)[changing[0]])
    return _summarize(results, runner.tensors, values, first)


def _shapes(feed: Feed) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in feed.items()}


def not_finite(number: int, name: str) -> CalibrationError:
    """Return the error for a tensor with NaN or infinite values on a sample."""
    return CalibrationError(
        f"sample {number}: the float model itself makes values that are not finite "
        f"(tensor {name!r})",
        hint="check the weights, and the normalization of the samples; --keep-float leaves nodes "
        "that need such values to the host",
    )


def _channels_differ(name: str) -> CalibrationError:
    """Return the error for a tensor whose number of channels differs between samples."""
    return CalibrationError(
        f"tensor {name!r} has not as many channels in every sample",
        hint="give samples of one shape, or fix it with --input-shape",
    )


def _summarize(
    results: Sequence[RunResult],
    tensors: Mapping[str, int | None],
    selected: Sequence[list[Kept]],
    first: int,
) -> dict[str, Statistics]:
    layouts = [result.selection.layout for result in results]
    batches = [layout.samples for layout in layouts]
    counts = np.repeat([layout.counts for layout in layouts], batches, axis=0)  # [samples, T]
    samples, stops = len(counts), np.cumsum(layouts[0].channels)
    reduced = _reduce(results, counts, layouts[0].channels)
    statistics = {}
    for index, (name, axis) in enumerate(tensors.items()):
        rows = slice(stops[index] - layouts[0].channels[index], stops[index])
        values = thin(selected[index], first + samples)
        selected[index].clear()  # while the next is put together, this is not there twice
        # Mean squares: the spread of the values that were kept, around the mean of all.
        squares = np.square(reduced["means"][rows])
        if values.values.shape[1]:
            squares += np.var(values.values, axis=1, dtype=np.float64)
        statistics[name] = Statistics(
            name=name, axis=axis, **{key: values[rows] for key, values in reduced.items()},
            squares=squares, values=values.values,
            samples=samples, count=int(counts[:, index].sum()), first=first,
            numbers=values.numbers, widths=values.widths,
        )  # fmt: skip
    return statistics


def _reduce(results: Sequence[RunResult], counts: Integers, channels: Integers) -> dict[str, Any]:
    """Reduce extremes and means over the samples, all tensors one behind the other.

    Channels without values get 0. The second extremes are the next to smallest minima and
    the next to largest maxima of the samples.
    """
    lows, highs, means = (
        np.concatenate([getattr(result, key) for result in results])
        for key in ("lows", "highs", "means")
    )
    has_values = np.repeat(counts > 0, channels, axis=1)
    is_empty = ~has_values.any(axis=0)
    shares = np.repeat(counts / np.maximum(counts.sum(axis=0), 1), channels, axis=1)
    low = np.where(is_empty, 0, np.min(lows, axis=0))
    high = np.where(is_empty, 0, np.max(highs, axis=0))
    with np.errstate(invalid="ignore"):  # sums of values near the end of float32 may be infinite
        mean = np.sum(shares * np.where(has_values, means, 0), axis=0)
    # Sums in float32 may leave the bounds by their last bit, or overflow.
    mean = np.nan_to_num(mean, nan=0.0, posinf=np.inf, neginf=-np.inf).clip(low, high)
    if len(counts) == 1:
        seconds = np.full_like(lows[0], _LARGEST_FLOAT), np.full_like(highs[0], -_LARGEST_FLOAT)
    else:
        seconds = (
            np.sort(np.where(has_values, lows, 0), axis=0)[1],
            np.sort(np.where(has_values, highs, 0), axis=0)[-2],
        )
    return {
        "lows": low, "highs": high, "means": mean,
        "second_lows": seconds[0], "second_highs": seconds[1],
    }  # fmt: skip
