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
from npuconv.tuning.noise.channel_powers import ChannelNoise
from npuconv.tuning.noise.loudest import loudest
from npuconv.tuning.precision.shop import Offer

if TYPE_CHECKING:
    import onnx

    from npuconv.model.types import Node
    from npuconv.pipeline.legalize import Legalized
    from npuconv.samples import Feed
    from npuconv.tuning.noise.gated import Rounding
    from npuconv.tuning.precision.shop import Term

    Doubles = NDArray[np.float64]

WORTH = 0.01  # of all noise, that the roundings of channels must make together
MOST = 12  # strands whose channels are looked at
_LITTLE = 0.06  # of the noise of a tensor: channels that make less are not offered


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
            inside = own.made_by is not None and not own.ends
            if (
                numbers
                and not fixed
                and (inside or has_host(self.work))
                and all(name in self.layers for name in names)
            ):
                yield own, numbers

    def _power(self, numbers: Sequence[int]) -> float:
        return sum(self.terms[k].power for k in numbers)

    def _offer(self, own: Strand, numbers: Sequence[int]) -> Offer | None:
        least = 0.1 * self._power(numbers)
        count = _channels(own)
        try:
            noise = [(k, self._shares(count, k)) for k in numbers if self.terms[k].power >= least]
        except RuntimeRefusedError:  # some types cannot be told of a part by itself
            return None
        rows = tuple(conv.name for conv in own.makers)
        columns = tuple(conv.name for conv in own.readers)
        return Offer(own.tensor.name, count, rows, columns, tuple(noise))

    def _shares(self, count: int, number: int) -> Doubles:
        """Of the noise of a rounding, what copies of each channel take; of silent ones nothing.

        Two copies are tried: they leave a quarter of what is spread over a step, and all of
        what a range cuts off, or of a background that lies next to a step.
        """
        rounding, even = self.every[number], 1 / self.noise.sum(axis=0)
        channels, whole = ChannelNoise(self.model, rounding, [], self.feeds), self.noise[number]
        loud, found = loudest(channels, even, count, _LITTLE * (whole @ even)), np.zeros(count)
        if loud:
            powers, some = np.asarray(list(loud.values())), list(loud)
            left = channels.of(some, copies=2) @ even
            found[some] = np.clip((powers - left) / (1 - 2**-2), 0, powers)
            found /= max(float(whole @ even), float(powers.sum()))
        return found


def _channels(own: Strand) -> int:
    if own.makers:
        return len(parameters(own.makers[0])[0])
    return int(parameters(own.readers[0])[0].shape[1])


def has_host(work: Legalized) -> bool:
    """Whether there is somebody who adds numbers and takes means."""
    return work.target.unlisted_operators != "error"


def limits(work: Legalized, layers: Sequence[Node]) -> Callable[[str, int, int], bool]:
    """Whether the target takes a layer that has so many more rows and columns."""
    windows = {conv.name: (window(conv), is_depthwise(conv)) for conv in layers}
    known: dict[tuple[str, int, int], bool] = {}

    def fits(name: str, rows: int, columns: int) -> bool:
        """Asked once for each size."""
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
