"""Which channels make most of the noise: measured one by one, and offered one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.executor import RuntimeRefusedError
from npuconv.model.conv import Window, window
from npuconv.plan.levels import parameters
from npuconv.plan.strands import Strand, is_depthwise, strands
from npuconv.tuning.channel_powers import ChannelNoise
from npuconv.tuning.shop import Offer

if TYPE_CHECKING:
    import onnx

    from npuconv.model.types import Node
    from npuconv.pipeline.legalize import Legalized
    from npuconv.samples import Feed
    from npuconv.tuning.gated import Rounding
    from npuconv.tuning.shop import Term

    Doubles = NDArray[np.float64]

WORTH = 0.005  # of all noise, that the roundings of channels must make together
MOST = 24  # strands whose channels are looked at
_LOOKED_AT = 48  # channels of a tensor whose noise is measured, one by one
_AT_ONCE = 8  # of them, the likeliest first
_LITTLE = 0.03  # of the noise so far: where none of some channels makes more, no others do


@dataclass(frozen=True)
class Seller:
    """Knows the model that is offered from.

    Attributes:
        work: a calibrated model, still in float.
        model: the same, before anything saturates its outputs.
        every: all of its roundings.
        terms: the noise of each, all samples counting alike.
        noise: the same in every sample, [roundings, samples].
        layers: names of those that may be changed.
        feeds: samples that the noise of channels is measured on.
    """

    work: Legalized
    model: onnx.ModelProto
    every: Sequence[Rounding]
    terms: Sequence[Term]
    noise: Doubles
    layers: Mapping[str, object]
    feeds: Sequence[Feed]

    def offers(self) -> list[Offer]:
        """Channels whose roundings make much of the noise, those of the most first."""
        rows = [(self._power(numbers), own, numbers) for own, numbers in self._candidates()]
        least = WORTH * sum(term.power for term in self.terms)
        loud = sorted((r for r in rows if r[0] >= least > 0), key=lambda row: -row[0])[:MOST]
        made = (self._offer(own, numbers) for _, own, numbers in loud)
        return [one for one in made if one is not None]

    def _candidates(self) -> Iterator[tuple[Strand, list[int]]]:
        """Strands that may be changed, with the numbers of their roundings."""
        at = {r.gate.tensor: k for k, r in enumerate(self.every) if r.gate.kind != "weights"}
        graph, is_int8 = self.work.model.graph, self.work.options.io == "int8"
        shut = {t.name for t in (*graph.inputs, *graph.outputs)} if is_int8 else set()
        for own in strands(self.work.model, self.work.plan):
            names = [conv.name for conv in (*own.makers, *own.readers)]
            numbers = [at[name] for name in own.tensors if name in at]
            fixed = shut & {own.tensor.name, *(end.name for end in own.ends)}
            if numbers and not fixed and all(name in self.layers for name in names):
                yield own, numbers

    def _power(self, numbers: Sequence[int]) -> float:
        return sum(self.terms[k].power for k in numbers)

    def _offer(self, own: Strand, numbers: Sequence[int]) -> Offer | None:
        least = 0.1 * self._power(numbers)
        count = _channels(own)
        try:
            noise = [
                (k, self._shares(own, count, k)) for k in numbers if self.terms[k].power >= least
            ]
        except RuntimeRefusedError:  # some types cannot be told of a part by itself
            return None
        rows = tuple(conv.name for conv in own.makers)
        columns = tuple(conv.name for conv in own.readers)
        return Offer(own.tensor.name, count, rows, columns, tuple(noise))

    def _shares(self, own: Strand, count: int, number: int) -> Doubles:
        """Of the noise of a rounding, what copies of each channel take; of unlikely ones nothing.

        Two copies are tried: they leave a quarter of what is spread over a step, and all of
        what a range cuts off, or of a background that lies next to a step.
        """
        rounding, even = self.every[number], 1 / self.noise.sum(axis=0)
        channels, order = ChannelNoise(self.model, rounding, [], self.feeds), _likely(own, rounding)
        found, total = np.zeros(count), 0.0
        for start in range(0, min(count, _LOOKED_AT), _AT_ONCE):
            some = np.asarray(order[start : start + _AT_ONCE])
            powers = channels.of(some.tolist()) @ even
            total += powers.sum()
            loud = powers > _LITTLE * total
            if not loud.any():
                break
            left = channels.of(some[loud].tolist(), copies=2) @ even
            found[some[loud]] = np.clip((powers[loud] - left) / (1 - 2**-2), 0, powers[loud])
        whole = max(float(self.noise[number] @ even), total)
        return found / whole if whole else found


def _channels(own: Strand) -> int:
    if own.makers:
        return len(parameters(own.makers[0])[0])
    return int(parameters(own.readers[0])[0].shape[1])


def _likely(own: Strand, rounding: Rounding) -> list[int]:
    """Channels in the order of the noise that they may make, by steps and what reads them."""
    assert rounding.encoding is not None, "it is that of an activation"
    count = _channels(own)
    steps = np.broadcast_to(rounding.encoding.scales.astype(np.float64), count)
    gains = np.zeros(count)
    for reader in own.readers:
        weight, _ = parameters(reader)
        gains += np.square(weight).sum(axis=0).reshape(count, -1).sum(axis=1)
    likely = np.square(steps) * (gains if gains.any() else 1.0)
    return [int(k) for k in np.argsort(-likely, kind="stable")]


def limits(work: Legalized, layers: Sequence[Node]) -> Callable[[str, int, int], bool]:
    """Whether the target takes a layer that has so many more rows and columns."""
    windows = {conv.name: (window(conv), is_depthwise(conv)) for conv in layers}
    known: dict[tuple[str, int, int], bool] = {}

    def fits(name: str, rows: int, columns: int) -> bool:
        key = (name, rows, columns)
        if key not in known:
            own, apart = windows[name]
            larger = None if own is None else _larger(own, rows, columns, apart=apart)
            known[key] = larger is not None and not work.ctx.objections(larger)
        return known[key]

    return fits


def _larger(own: Window, rows: int, columns: int, *, apart: bool) -> Window | None:
    """A convolution with more channels."""
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
