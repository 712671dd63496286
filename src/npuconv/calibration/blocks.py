"""One calibration by several processes, each with a block of adjacent samples.

Whoever calibrates joins parts of a few samples, always the same ones and in their order. So
it does not matter who has made a part: a process with a block makes those of its samples and
stops, and the one that converts the model finds them where it would have put its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from npuconv.calibration.cache import Cache
from npuconv.calibration.collect import collect as collect_all
from npuconv.calibration.collect import make_parts
from npuconv.calibration.part import PART

if TYPE_CHECKING:
    import onnx

    from npuconv.arithmetic.statistics import Statistics
    from npuconv.samples import Samples


class Collected(Exception):  # noqa: N818 not an error: the work of this process is done
    """The parts of a block are where they are looked for."""


@dataclass(frozen=True)
class Block:
    """One of several equal shares of the samples.

    Attributes:
        number: which of them, from 0.
        of: how many there are.
    """

    number: int
    of: int

    def samples(self, total: int) -> range:
        """The samples of this block, whole parts of them; none where one part is all there is."""
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


def cache(named: str | Path | None) -> Cache | None:
    """Return the cache of parts for a conversion that names this folder; None without a folder.

    Raises:
        OutputError: the folder cannot be made.
    """
    chosen = _folder or named
    return Cache(chosen) if chosen else None


def collect(
    model: onnx.ModelProto,
    tensors: Mapping[str, int | None],
    samples: Samples,
    *,
    progress: Callable[[], None],
    cache: Cache | None,
) -> dict[str, Statistics]:
    """``npuconv.calibration.collect`` of all samples, or of this process's block.

    Raises:
        Collected: this process has a block, and its parts are in the cache.
        CalibrationError: samples that cannot be used.
        OutputError: the cache cannot be written.
    """
    if _block is None:
        return collect_all(model, tensors, samples, progress=progress, cache=cache)
    own = _block.samples(len(samples))
    if cache and tensors and own:
        make_parts(model, tensors, samples, own, progress=progress, cache=cache)
    raise Collected
