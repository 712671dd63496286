"""One float pass over the samples -> statistics of tensors, channel by channel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from itertools import islice

import onnx

from npuconv.arithmetic.statistics import Statistics, join
from npuconv.calibration.ahead import read_ahead
from npuconv.calibration.cache import Cache, Shelf, fingerprint
from npuconv.calibration.part import PART, Part, channels_differ
from npuconv.calibration.runner import Runner
from npuconv.errors import CalibrationError
from npuconv.executor import RuntimeRefusedError
from npuconv.samples.feeds import Feed, Samples

Progress = Callable[[], None]
Marked = tuple[Feed, str]  # a sample and its fingerprint, empty where nobody asks for it


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
    total = len(feeds) if isinstance(feeds, Sized) else None
    if not tensors:
        return {}
    shelf = cache.shelf(model, tensors, total) if cache else None
    with _samples(feeds, shelf is not None) as samples:
        work = _Work(runner or Runner(model, tensors, total), shelf, progress)
        found = work.run(samples)
    if not found:
        raise CalibrationError("there are no samples to calibrate on")
    return found


def make_parts(
    model: onnx.ModelProto,
    tensors: Mapping[str, int | None],
    feeds: Samples,
    own: range,
    *,
    progress: Progress = lambda: None,
    cache: Cache,
) -> None:
    """Run some of the samples, and keep what was seen for whoever collects all of them.

    Args:
        model: the legalized float model; not changed.
        tensors: name -> channel axis.
        feeds: all samples.
        own: those to run: whole parts, adjacent.
        progress: called after each sample.
        cache: where the parts go; those that are there are not made again.

    Raises:
        CalibrationError: as of ``collect``.
        OutputError: the cache cannot be written.
    """
    shelf = cache.shelf(model, tensors, len(feeds))
    with _samples(feeds[own.start : own.stop], marked=True) as samples:
        runner = Runner(model, tensors, len(feeds))
        runner.settle(feeds[0])  # how many are run together must not depend on who runs them
        for _ in _Work(runner, shelf, progress).groups(samples, own.start):
            pass


@contextlib.contextmanager
def _samples(feeds: Iterable[Feed], marked: bool) -> Iterator[Iterator[Marked]]:
    """Samples that are read ahead, and what to say where the model does not run on them."""
    with contextlib.closing(read_ahead(_marked(feeds, marked))) as samples:
        try:
            yield samples
        except RuntimeRefusedError as error:
            raise CalibrationError(
                f"the float model does not run on the samples: {error}"
            ) from None


def _marked(feeds: Iterable[Feed], wanted: bool) -> Iterator[Marked]:
    """Samples with their fingerprints, made where they are read."""
    for feed in feeds:
        yield feed, fingerprint(feed) if wanted else ""


def _joined(before: Statistics | None, after: Statistics) -> Statistics:
    if before is None:
        return after
    if before.channels != after.channels:
        raise channels_differ(after.name)
    return join([before, after])


class _Work:
    """The samples part by part, each from the cache or from the model."""

    def __init__(self, runner: Runner, shelf: Shelf | None, progress: Progress) -> None:
        self._runner, self._shelf, self._progress = runner, shelf, progress

    def run(self, samples: Iterator[Marked]) -> dict[str, Statistics]:
        """Statistics of all samples by tensor; empty where there are none."""
        found: dict[str, Statistics] = {}
        for group in self.groups(samples):
            for name in list(group):  # one by one, so that not all of them are there twice
                found[name] = _joined(found.pop(name, None), group.pop(name))
        return found

    def groups(self, samples: Iterator[Marked], first: int = 0) -> Iterator[dict[str, Statistics]]:
        """Statistics of each part, from a sample of this number on."""
        while group := self._part(islice(samples, PART), first):
            first += next(iter(group.values())).samples
            yield group

    def _part(self, samples: Iterator[Marked], first: int) -> dict[str, Statistics]:
        """Return the statistics of the samples of one part."""
        part = Part(self._runner, first)
        try:
            return self._filled(part, samples, first)
        finally:
            part.abandon()  # after an error; else there is nothing left

    def _filled(self, part: Part, samples: Iterator[Marked], first: int) -> dict[str, Statistics]:
        """Return stored statistics if they fit all samples; else run the samples.

        Samples wait as long as a stored part may still fit.
        """
        prints, waiting = list[str](), list[Feed]()
        stored = self._shelf.parts_from(first) if self._shelf else []
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
        return self._finished(part, waiting, prints) if prints else {}

    def _finished(
        self, part: Part, waiting: list[Feed], prints: list[str]
    ) -> dict[str, Statistics]:
        for feed in waiting:
            part.add(feed)
        found = part.finish()
        if self._shelf:
            self._shelf.put(found, prints, self._runner.batch)
        return found
