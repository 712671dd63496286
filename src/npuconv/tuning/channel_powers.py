"""How much noise the rounding of each channel of a layer puts into the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv import executor
from npuconv.calibration.workers import in_order
from npuconv.tuning.gated import Rounding, rounded
from npuconv.tuning.stages import Stages, State
from npuconv.tuning.whole import Values, sums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npuconv.samples import Feed

Array = NDArray[Any]


def channel_powers(
    model: onnx.ModelProto,
    output: Rounding,
    weights: Sequence[Rounding],
    channels: Sequence[int],
    feeds: Iterable[Feed],
) -> NDArray[np.float64]:
    """The noise of channels, each rounded alone; what lies before them is run once.

    Args:
        model: the legal float model.
        output: the rounding of what the layer puts out; its channels are axis 1.
        weights: that of its weights, if they are rounded.
        channels: which.
        feeds: complete inputs.

    Returns:
        float64, one for each of the channels: sums of squares over outputs and samples.

    Raises:
        RuntimeRefusedError: onnxruntime does not take a part of the model.
    """
    layer = _Layer(model, output, weights)
    total = np.zeros(len(channels))
    for feed in feeds:
        total += np.fromiter(layer.noises(feed, channels), np.float64, len(channels))
    return total


class _Layer:
    """A layer in a model that is cut behind it, as it is and rounded."""

    def __init__(
        self, model: onnx.ModelProto, output: Rounding, weights: Sequence[Rounding]
    ) -> None:
        self._tensor, self._output = output.gate.tensor, output
        self._exact, self._rounded = Stages(model), Stages(rounded(model, weights))
        makers = (k for k, node in enumerate(self._exact.nodes) if self._tensor in node.output)
        self._place = 1 + next(makers)
        self._sessions: list[executor.Session] = []

    def noises(self, feed: Feed, channels: Sequence[int]) -> Iterable[float]:
        """Of one sample."""
        before, other, behind = self._opened(feed)
        state = {**feed, **before.run(feed)}
        stored = self._stored(other.run(feed, [self._tensor])[self._tensor])
        noise = partial(self._noise, behind, state, behind.run(state), stored)
        return in_order(noise, channels)

    def _opened(self, feed: Feed) -> list[executor.Session]:
        if not self._sessions:
            parts = [each.part(0, self._place, feed) for each in (self._exact, self._rounded)]
            self._sessions = [executor.Session(part, threads=1) for part in parts]
            state = {**feed, **self._sessions[0].run(feed)}
            rest = self._exact.part(self._place, len(self._exact.nodes), state)
            self._sessions.append(executor.Session(rest, threads=1))
        return self._sessions

    def _stored(self, values: Array) -> Array:
        encoding = self._output.encoding
        assert encoding is not None, "it is that of an activation"
        return encoding.dequantize(encoding.quantize(values))

    def _noise(
        self, behind: executor.Session, state: State, exact: Values, stored: Array, channel: int
    ) -> float:
        """Of one channel."""
        values, one = state[self._tensor].copy(), np.s_[:, channel]
        values[one] = stored[one]
        return sums(exact, behind.run({**state, self._tensor: values}))[0]
