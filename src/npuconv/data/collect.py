"""One float pass over the samples: statistics of tensors, channel by channel.

The pass goes part by part, each from the cache or from the model. Several processes may share
it, each with a block of adjacent samples: a process with a block makes the parts of its samples
and stops, and the process that converts the model finds them in the cache.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import onnx

from npuconv.arithmetic.statistics import Statistics, join
from npuconv.data.cache import Cache, PartStore, fingerprint
from npuconv.data.runner import PART, Part, Runner, channels_differ
from npuconv.data.samples import Feed, Samples
from npuconv.data.workers import read_ahead
from npuconv.errors import CalibrationError
from npuconv.executor import RuntimeRefusedError

Progress = Callable[[], None]
Marked = tuple[Feed, str]  # a sample and its fingerprint, empty where there is no cache


def collect(
    model: onnx.ModelProto,
    tensors: Mapping[str, int | None],
    feeds: Iterable[Feed],
    *,
    progress: Progress = lambda: None,
    cache: Cache | None = None,
    runner: Runner | None = None,
) -> dict[str, Statistics]:
    """Run the samples once through the float model and watch tensors.

    The samples are read while the model runs, run in batches where that gives the same
    numbers, and let go: memory does not grow with them. The result is the same to the bit
    for the same samples, also where a part of it comes from the cache.

    Args:
        model: the legalized float model; not changed.
        tensors: name -> channel axis, None: all channels together. Model inputs included.
        feeds: complete inputs, one dict per sample. With a length, each sample gives at
            once only the values that are kept in the end.
        progress: called after each sample.
        cache: where parts of the work are kept, and looked for.
        runner: of the same model and tensors, so that it is not loaded again.

    Raises:
        CalibrationError: onnxruntime refuses the model or a sample, a tensor holds values
            that are not finite, or there are no samples.
        OutputError: the cache cannot be written.
    """
    if not tensors:
        return {}
    total = len(feeds) if isinstance(feeds, Sized) else None
    store = cache.store(model, tensors, total) if cache else None
    statistics: dict[str, Statistics] = {}
    with _reading(feeds, store is not None) as samples:
        passes = _Pass(runner or Runner(model, tensors, total), store, progress)
        for part in passes.parts(samples):
            for name in list(part):  # one by one, so that not all of them are there twice
                before, after = statistics.pop(name, None), part.pop(name)
                if before is not None and before.channels != after.channels:
                    raise channels_differ(name)
                statistics[name] = after if before is None else join([before, after])
    if not statistics:
        raise CalibrationError("there are no samples to calibrate on")
    return statistics


class Collected(Exception):  # noqa: N818 not an error: the work of this process is done
    """End of a conversion whose process has made the parts of its block."""


@dataclass(frozen=True)
class Block:
    """One of several equal shares of the samples."""

    number: int  # position among the blocks, from 0
    of: int  # how many there are

    def samples(self, total: int) -> range:
        """Return the samples of this block, in whole parts; none where there is only one part."""
        parts = -(-total // PART)
        if parts < 2:  # nothing can be done at the same time
            return range(0)
        first, end = (parts * share // self.of * PART for share in (self.number, self.number + 1))
        return range(first, min(end, total))


_folder: str | Path | None = None
_block: Block | None = None


def share(folder: str | Path | None, block: Block | None = None) -> None:
    """Set the folder and the block of all further conversions of this process.

    Args:
        folder: where parts are kept and looked for, whatever cache a conversion names;
            None: in that cache.
        block: the only parts that are made: a conversion then ends with ``Collected``.
            None: all parts are made, and the conversion goes on.
    """
    global _folder, _block
    _folder, _block = folder, block


def shared_cache(named: str | Path | None) -> Cache | None:
    """Return the cache of parts for a conversion that names this folder; None without a folder.

    Raises:
        OutputError: the folder cannot be made.
    """
    chosen = _folder or named
    return Cache(chosen) if chosen else None


def collect_shared(
    model: onnx.ModelProto,
    tensors: Mapping[str, int | None],
    samples: Samples,
    *,
    progress: Progress,
    cache: Cache | None,
) -> dict[str, Statistics]:
    """``collect`` all samples, or make the parts of this process's block.

    Raises:
        Collected: this process has a block, and its parts are in the cache.
        CalibrationError: samples that cannot be used.
        OutputError: the cache cannot be written.
    """
    if _block is None:
        return collect(model, tensors, samples, progress=progress, cache=cache)
    own = _block.samples(len(samples))
    if cache and tensors and own:
        store = cache.store(model, tensors, len(samples))
        with _reading(samples[own.start : own.stop], marked=True) as block:
            runner = Runner(model, tensors, len(samples))
            runner.choose_batch(samples[0])  # it must not depend on who runs the samples
            for _ in _Pass(runner, store, progress).parts(block, own.start):
                pass
    raise Collected


@contextlib.contextmanager
def _reading(feeds: Iterable[Feed], marked: bool) -> Iterator[Iterator[Marked]]:
    """Read samples ahead; raise CalibrationError where the model does not run on them."""
    pairs = ((feed, fingerprint(feed) if marked else "") for feed in feeds)
    with contextlib.closing(read_ahead(pairs)) as samples:
        try:
            yield samples
        except RuntimeRefusedError as error:
            text = f"the float model does not run on the samples: {error}"
            raise CalibrationError(text) from None


class _Pass:
    """A float pass part by part, each from the cache or from the model."""

    def __init__(self, runner: Runner, store: PartStore | None, progress: Progress) -> None:
        self._runner, self._store, self._progress = runner, store, progress

    def parts(self, samples: Iterator[Marked], first: int = 0) -> Iterator[dict[str, Statistics]]:
        """Yield the statistics of each part, from a sample of this number on."""
        while found := self._part(islice(samples, PART), first):
            first += next(iter(found.values())).samples
            yield found

    def _part(self, samples: Iterator[Marked], first: int) -> dict[str, Statistics]:
        """Return stored statistics if they fit all samples; else run the samples.

        Samples wait as long as a stored part may still fit.
        """
        part, prints, waiting = Part(self._runner, first), list[str](), list[Feed]()
        stored = self._store.parts_from(first) if self._store else []
        try:
            for feed, mark in samples:
                prints.append(mark)
                waiting.append(feed)
                stored = [s for s in stored if s.prints[: len(prints)] == prints]
                while waiting and not stored:
                    part.add(waiting.pop(0))
                self._progress()
            for match in (s for s in stored if s.prints == prints):
                self._runner.batch = match.batch
                return match.found
            if not prints:
                return {}
            for feed in waiting:
                part.add(feed)
            statistics = part.finish()
        finally:
            part.abandon()  # after an error; else there is nothing left
        if self._store:
            self._store.put(statistics, prints, self._runner.batch)
        return statistics
