"""How far every channel of tensors reaches in each of a few samples by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npuconv.calibration.runner import Runner
from npuconv.calibration.workers import in_order

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from npuconv.samples.feeds import Feed

    Extremes = tuple[NDArray[np.float32], NDArray[np.float32]]  # [C] each

_MANY = 2**20  # samples, of which each gives next to no values besides


class Reach(NamedTuple):
    """Of one tensor, float32 [samples, C] each; not above and not below 0."""

    lows: NDArray[np.float32]
    highs: NDArray[np.float32]


def reaches(
    model: onnx.ModelProto, tensors: Mapping[str, int | None], feeds: Sequence[Feed]
) -> dict[str, Reach]:
    """Run samples one by one.

    Args:
        model: the legal float model; not changed.
        tensors: name -> channel axis, None: all channels together. Model inputs included.
        feeds: complete inputs.

    Returns:
        By tensor; without those that have not as many channels in every sample.

    Raises:
        CalibrationError: a tensor holds values that are not finite.
        RuntimeRefusedError: onnxruntime does not take the model, or a node fails.
    """
    runner = Runner(model, tensors, _MANY)
    each = list(in_order(partial(_run, runner), feeds)) if tensors else []
    found = {}
    for name, own in zip(tensors, zip(*each, strict=True), strict=False):
        if len({lows.size for lows, _ in own}) == 1:
            lows, highs = (np.stack(ends) for ends in zip(*own, strict=True))
            found[name] = Reach(np.minimum(lows, 0), np.maximum(highs, 0))
    return found


def _run(runner: Runner, feed: Feed) -> list[Extremes]:
    """Of every tensor; 0 where it has no values."""
    glance = runner.run([feed], 0)
    layout = glance.picks.layout
    empty = np.repeat(layout.counts == 0, layout.channels)
    ends = np.cumsum(layout.channels)[:-1]
    lows, highs = (np.where(empty, 0, end) for end in (glance.lows, glance.highs))
    return list(zip(np.split(lows, ends), np.split(highs, ends), strict=True))
