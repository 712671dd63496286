"""What is cut off of samples that nobody has seen, and which ranges had better be larger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from npuconv.calibration.reaches import Reach, reaches
from npuconv.model import query
from npuconv.samples.feeds import spread
from npuconv.tuning.noise.alone import noise_by_feed
from npuconv.tuning.noise.clipping import Clipping
from npuconv.tuning.noise.left_out import LeftOut, Losses
from npuconv.tuning.noise.twin import roundings
from npuconv.tuning.noise.whole import Judge
from npuconv.tuning.scales.margins import unseen
from npuconv.tuning.scales.room import Room, factors, suspects

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from npuconv.model.types import Tensor
    from npuconv.pipeline.legalize import Legalized
    from npuconv.quant.encoding import Encoding
    from npuconv.quant.statistics import Statistics
    from npuconv.samples import Samples
    from npuconv.tuning.noise.gated import Rounding
    from npuconv.tuning.scales.candidates import Tried

    Doubles = NDArray[np.float64]

MOST, FEWEST = 32, 8  # samples that are left out, one at a time
VALUES = 2**23  # of inputs and outputs of all of them, or fewer samples are taken
FEW = 4  # samples that the noise of roundings is measured on
# Shares of the noise of all roundings: what must be lost, that it is looked for, which is as much
# as two of 32 samples that lose all; and what must be saved, that ranges are changed for it.
WORTH, SAVED = 0.06, 0.02
_CLOSER = 5  # one sample in so many, of those that lose most, tells which tensors it is
_NEARLY_ALL = 0.9  # of all losses, that these must have
_NONE = 1e-30  # noise


class Foresight:
    """Runs samples with the ranges that all others would have made.

    Args:
        work: a calibrated model, still in float.
        chosen: how its tensors are stored, and the weights for that.
        model: the same model, before anything saturates its outputs.
        stats: of its tensors.
        samples: those that ranges are made from.
    """

    def __init__(
        self,
        work: Legalized,
        chosen: Tried,
        model: onnx.ModelProto,
        stats: Mapping[str, Statistics],
        samples: Samples,
    ) -> None:
        self._encodings, self._stats = chosen.encodings.by_tensor, stats
        self._every = roundings(work.model, work.plan, self._encodings, chosen.rounded)
        tensors = _tensors(work)
        self._groups = _by_group(work, chosen, self._every, tensors)
        names = (r.gate.tensor for own in self._groups.values() for r in own)
        self._axes = {name: _behind(tensors[name], self._encodings[name]) for name in names}
        self._clipping = Clipping(model, self._axes)
        size = _size(samples[0]) + _size(self._clipping.exact(samples[0]))
        count = min(MOST, max(FEWEST, VALUES // max(size, 1)))
        self._feeds = [samples[k] for k in spread(len(samples), count)]
        self._judge = Judge(model, self._feeds)

    @cached_property
    def _noise(self) -> Doubles:
        """Of all roundings together, in each of the samples."""
        return np.maximum(self._judge.noise(self._every).each, _NONE)

    def rooms(self) -> dict[str, Room]:
        """By group, where it is worth it.

        Every sample counts alike: noise is told as a share of what all roundings make in it;
        and none counts more than once, however much is cut off of it.

        Raises:
            RuntimeRefusedError: a node fails.
        """
        names, losses = list(self._groups), self._losses()
        lost = losses.of([range(len(names))])[0]
        weights = 1 / (np.maximum(self._noise, lost) * len(self._feeds))
        if lost @ weights < WORTH:
            return {}
        losses.some = _those_of_most(lost * weights)
        found = self._chosen(names, losses, weights[losses.some], lost @ weights)
        enough = sum(room.saved for room in found.values()) >= SAVED
        return {names[part]: room for part, room in found.items()} if enough else {}

    def _chosen(
        self, names: Sequence[str], losses: Losses, weights: Doubles, lost: float
    ) -> dict[int, Room]:
        parts = suspects(losses, weights, lost)
        rounded = dict(zip(parts, self._rounded([names[k] for k in parts]), strict=True))

        def left(factor: float) -> dict[int, float]:
            """By part, what is still cut off."""
            shares = losses.of(list(parts), factor) @ weights
            return dict(zip(parts, shares.tolist(), strict=True))

        return factors(parts, rounded, left)

    def _losses(self) -> Losses:
        axes = {name: self._encodings[name].axis for name in self._axes}
        seen = reaches(self._judge.model, axes, self._feeds)
        left_out = {name: self._left_out(name, reach) for name, reach in seen.items()}
        parts = [
            [r.gate.tensor for r in own if r.gate.tensor in left_out]
            for own in self._groups.values()
        ]
        exact = self._judge.exact()
        return Losses(self._clipping, self._feeds, exact, left_out, parts, range(len(exact)))

    def _left_out(self, name: str, reach: Reach) -> LeftOut:
        stats, encoding = self._stats.get(name), self._encodings[name]
        if stats is None or stats.channels != reach.lows.shape[1]:
            ends = reach.lows.min(axis=0), reach.highs.max(axis=0)
            return LeftOut(encoding, reach, *ends, np.zeros(ends[0].size))
        ends = np.minimum(stats.lows, 0), np.maximum(stats.highs, 0)
        return LeftOut(encoding, reach, *ends, unseen(stats))

    def _rounded(self, names: Iterable[str]) -> list[float]:
        """The noise that the rounding of these groups makes, as a share of the whole."""
        some = list(spread(len(self._feeds), FEW))
        every = [(name, rounding) for name in names for rounding in self._groups[name]]
        feeds = [self._feeds[k] for k in some]
        noise = noise_by_feed(self._judge.model, [rounding for _, rounding in every], feeds)
        shares = (noise / self._noise[some]).mean(axis=1).tolist()
        return [
            sum(share for share, (own, _) in zip(shares, every, strict=True) if own == name)
            for name in names
        ]


def _by_group(
    work: Legalized, chosen: Tried, every: Iterable[Rounding], tensors: Mapping[str, Tensor]
) -> dict[str, list[Rounding]]:
    """Roundings of activations, by what shares their ranges; exact values need no room."""
    found: dict[str, list[Rounding]] = {}
    groups = work.plan.group_of()
    for rounding in every:
        name = rounding.gate.tensor
        if rounding.gate.kind == "weights" or query.rank(tensors[name]) is None:
            continue
        if not chosen.encodings.methods[groups[name].name].startswith("exact"):
            found.setdefault(groups[name].name, []).append(rounding)
    return found


def _tensors(work: Legalized) -> dict[str, Tensor]:
    nodes = (*work.plan.device, *work.plan.carried)
    return {t.name: t for node in nodes for t in (*node.inputs, *node.outputs)}


def _behind(tensor: Tensor, encoding: Encoding) -> int:
    """How many axes are behind that of the channels."""
    rank = query.rank(tensor)
    return 0 if encoding.axis is None or rank is None else rank - 1 - encoding.axis % rank


def _size(values: Mapping[str, object]) -> int:
    return sum(one.size for one in values.values() if isinstance(one, np.ndarray))


def _those_of_most(lost: Doubles) -> list[int]:
    order = np.argsort(-lost, kind="stable")
    enough = int(np.searchsorted(np.cumsum(lost[order]), _NEARLY_ALL * lost.sum())) + 1
    return sorted(order[: min(enough, -(-len(lost) // _CLOSER))].tolist())
