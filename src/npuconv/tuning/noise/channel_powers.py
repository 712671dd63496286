"""How much noise the rounding of each channel of a layer puts into the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv import executor
from npuconv.calibration.workers import in_order
from npuconv.tuning.noise.gated import Rounding, inputs_made, rounded
from npuconv.tuning.noise.stages import Stages, State
from npuconv.tuning.noise.whole import Values, sums
from npuconv.tuning.precision.copies import offsets

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
    return ChannelNoise(model, output, weights, feeds).of(channels).sum(axis=1)


class _Seen(NamedTuple):
    """A sample: what runs behind the layer, on what, to what end, and what the layer makes."""

    behind: executor.Session
    state: State
    exact: Values
    values: Array


class ChannelNoise:
    """A layer in a model that is cut behind it, as it is and rounded.

    Args:
        model: the legal float model.
        output: the rounding of what the layer puts out; its channels are axis 1.
        weights: that of its weights, if they are rounded.
        feeds: complete inputs, a few.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        output: Rounding,
        weights: Sequence[Rounding],
        feeds: Iterable[Feed],
    ) -> None:
        nodes, (made,) = inputs_made(model, [output])
        self._tensor, self._output, self._feeds = made.gate.tensor, output, list(feeds)
        self._exact = Stages(model, nodes)
        self._rounded = Stages(rounded(model, weights)) if weights else self._exact
        makers = (k for k, node in enumerate(self._exact.nodes) if self._tensor in node.output)
        self._place = 1 + next(makers)
        self._sessions: list[executor.Session] = []
        self._known: list[_Seen] = []

    def of(self, channels: Sequence[int | Sequence[int]], copies: int = 1) -> NDArray[np.float64]:
        """The noise of these in each of the feeds, float64 [channels, feeds].

        Args:
            channels: which; several at once where a sequence stands for one.
            copies: how often each is made, a share of a step apart; their mean counts.

        Raises:
            RuntimeRefusedError: onnxruntime does not take a part of the model.
        """
        self._known = self._known or [self._opened_for(feed) for feed in self._feeds]
        rows = []
        for one in self._known:
            stored = self._stored(one.values, copies)
            noise = partial(self._noise, one, stored)
            rows.append(np.fromiter(in_order(noise, channels), np.float64, len(channels)))
        return np.stack(rows, axis=1)

    def _opened_for(self, feed: Feed) -> _Seen:
        """What tells the noise of a channel in one sample."""
        before, other, behind = self._opened(feed)
        state = {**feed, **before.run(feed)}
        values = other.run(feed, [self._tensor])[self._tensor]
        return _Seen(behind, state, behind.run(state), values)

    def _opened(self, feed: Feed) -> list[executor.Session]:
        if not self._sessions:
            parts = [each.part(0, self._place, feed) for each in (self._exact, self._rounded)]
            self._sessions = [executor.Session(part, threads=1) for part in parts]
            state = {**feed, **self._sessions[0].run(feed)}
            rest = self._exact.part(self._place, len(self._exact.nodes), state)
            self._sessions.append(executor.Session(rest, threads=1))
        return self._sessions

    def _stored(self, values: Array, copies: int) -> Array:
        encoding = self._output.encoding
        assert encoding is not None, "it is that of an activation"
        steps = encoding.scales.reshape(-1, *[1] * (values.ndim - 2))
        moved = ((values + by * steps, by * steps) for by in offsets(copies).astype(np.float32))
        each = (encoding.dequantize(encoding.quantize(x)) - by for x, by in moved)
        return np.asarray(sum(each) / np.float32(copies))

    def _noise(self, one: _Seen, stored: Array, channel: int | Sequence[int]) -> float:
        """Of one channel, or of some together."""
        which = channel if isinstance(channel, int) else list(channel)
        values, own = one.state[self._tensor].copy(), np.s_[:, which]
        values[own] = stored[own]
        return sums(one.exact, one.behind.run({**one.state, self._tensor: values}))[0]
