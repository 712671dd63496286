"""Convolutions that were fitted in fragments are rounded as the whole that they were.

So an exact rewrite has the integers of the layer that it stands for: one Hessian, one choice of
rounding, one scale for each row, one correction of the bias; and tiles share their weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights, per_weight
from npuconv.legalize.fitting.builder import Fragment, Whole
from npuconv.legalize.fitting.layer import Layer
from npuconv.legalize.legal import LegalModel
from npuconv.model import query
from npuconv.model.types import Node
from npuconv.quantize.hessian import Windows, windows_of
from npuconv.quantize.settings import HESSIAN

Places = NDArray[np.int64]
_Member = tuple["Node", "Fragment"]


@dataclass(frozen=True)
class Assembly:
    """A convolution, and the convolutions of the device that have all of its weights."""

    whole: Whole
    fragments: tuple[_Member, ...]
    moved: str = ""  # name of what the host has made of its input, padded, to suit int8 better

    @property
    def name(self) -> str:
        """Name of its Hessian."""
        return self.whole.name

    @property
    def convs(self) -> frozenset[str]:
        """Names of the convolutions."""
        return frozenset(conv.name for conv, _ in self.fragments)

    def windows(self, tensors: Iterable[str]) -> Windows | None:
        """Return the im2col windows of the original convolution if its input still exists."""
        layer, size = self.whole.layer, math.prod(self.whole.layer.kernel)
        is_mean = layer.uniform and layer.weight[1] == 1 and size > 1
        if size > HESSIAN.largest_kernel or is_mean:
            return None
        parts = [windows_of(conv) for conv, _ in self.fragments]
        if parts[0] is not None and _geometry(parts[0]) == _geometry(layer):
            windows = replace(parts[0], name=self.name)
            if all(part and replace(part, name=self.name) == windows for part in parts):
                return windows  # of a tensor that the host may have prepared
        source = self.moved or self.whole.source
        if source not in tensors:
            return None
        cells = [layer.cells(axis) for axis in layer.axes]
        known = tuple(n for n in cells if n is not None)
        pads = [(0, 0)] * len(cells) if self.moved else layer.pads
        begins, ends = zip(*pads, strict=True)
        return Windows(
            self.name, source, layer.in_channels, layer.group, layer.kernel,
            layer.strides, layer.dilations, (*begins, *ends),
            known if len(known) == len(cells) else None,
        )  # fmt: skip

    def parameters(self) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Return weights and bias of the whole; no bias where no fragment has one."""
        weight = np.zeros(math.prod(self.whole.layer.weight), np.float32)
        bias = np.zeros(self.whole.layer.weight[0], np.float32)
        has_bias = False
        for conv, fragment in self.fragments:
            values, added = query.constant_input(conv, 1), query.constant_input(conv, 2)
            assert values is not None  # assemblies have constant weights
            used = fragment.places >= 0
            weight[fragment.places[used]] = values[used]
            if fragment.biased and added is not None:
                rows = self._rows(fragment)
                bias[rows[rows >= 0]], has_bias = added[rows >= 0], True
        return weight.reshape(self.whole.layer.weight), bias if has_bias else None

    def clusters(self, encodings: Mapping[str, Encoding]) -> Iterator[Cluster]:
        """Yield fragments whose inputs are encoded alike, with the input of the whole.

        Where the host makes the input, tiles of it may have scales of their own. What no
        fragment of a cluster reads is encoded as another one reads it.
        """
        waiting, seen = list(self.fragments), np.full((2, self.whole.layer.in_channels), np.nan)
        while waiting:
            encoded, members, others = np.full_like(seen, np.nan), list[_Member](), list[_Member]()
            for member in waiting:
                read = self._read(member, encodings)
                alike = read is not None and bool(
                    np.all((encoded == read) | np.isnan(encoded + read))
                )
                if alike and read is not None:
                    encoded = np.where(np.isnan(encoded), read, encoded)
                (members if alike else others).append(member)
            if not members:
                return
            seen = np.where(np.isnan(seen), encoded, seen)
            scales, zeros = np.where(np.isnan(encoded), seen, encoded)
            waiting, first = others, encodings[members[0][0].inputs[0].name]
            if not np.isnan(scales).any():
                source = replace(
                    first, scales=scales.astype(np.float32), zeros=zeros.astype(np.int32), axis=1
                )
                yield Cluster(self, source, tuple(members))

    def _read(self, each: _Member, encodings: Mapping[str, Encoding]) -> NDArray[np.float64] | None:
        """Return scales and zero points [2,C] of channels that a fragment reads, else NaN.

        None where it reads one of them in two ways.
        """
        conv, fragment = each
        own, group = encodings[conv.inputs[0].name], int(query.attribute(conv, "group", 1))
        used, found = fragment.places >= 0, np.full((2, self.whole.layer.in_channels), np.nan)
        channels = fragment.channels()[used]
        for row, values in zip(found, (own.scales, own.zeros), strict=True):
            laid = np.broadcast_to(
                per_weight(values, fragment.places.shape, group), fragment.places.shape
            )[used]
            row[channels] = laid
            if not np.array_equal(row[channels], laid):
                return None
        return found

    def _rows(self, fragment: Fragment) -> Places:
        """Return the row of the whole that each row of a fragment is of; -1 where it is zeros."""
        last = fragment.places.reshape(len(fragment.places), -1).max(axis=1)
        return np.where(last < 0, -1, last // math.prod(self.whole.layer.weight[1:]))

    def fragment_weights(self, fragment: Fragment, rounded: RoundedWeights) -> RoundedWeights:
        """Return what a fragment has of the rounded weights of the whole."""
        weight = np.where(fragment.places < 0, 0, rounded.weight.reshape(-1)[fragment.places])
        rows = self._rows(fragment)
        scales = np.where(rows < 0, rounded.scales.max(), rounded.scales[rows])
        bias = np.where((rows < 0) | (not fragment.biased), 0, rounded.bias[rows])
        return RoundedWeights(
            weight.astype(np.int8), scales.astype(np.float32), bias.astype(np.float32)
        )


@dataclass(frozen=True)
class Cluster:
    """Fragments of a convolution that read what is encoded alike."""

    assembly: Assembly
    source: Encoding  # of what the whole would read
    fragments: tuple[_Member, ...]

    @property
    def convs(self) -> frozenset[str]:
        """Names of the convolutions."""
        return frozenset(conv.name for conv, _ in self.fragments)

    def shares(
        self, rounded: RoundedWeights, encodings: Mapping[str, Encoding]
    ) -> Iterator[tuple[str, RoundedWeights]]:
        """Yield the name of each convolution, and what it has of the rounded weights."""
        for conv, fragment in self.fragments:
            share = self.assembly.fragment_weights(fragment, rounded)
            offsets = query.constant_input(conv, 2)  # of its inputs, where it does not add the bias
            if not fragment.biased and offsets is not None:
                share = replace(share, bias=offsets.astype(np.float32))
            unit = self.source.nominal / encodings[conv.inputs[0].name].nominal
            yield conv.name, replace(share, scales=share.scales * np.float32(unit))


def assemblies(graph: LegalModel) -> list[Assembly]:
    """Return the convolutions that were fitted, of which the device has all fragments."""
    members: dict[str, list[_Member]] = {}
    for conv in graph.plan.device:
        fragment, shape = graph.splits.fragments.get(conv.name), query.shape(conv.inputs[1])
        if fragment is not None and tuple(shape or ()) == fragment.places.shape:
            members.setdefault(fragment.whole.name, []).append((conv, fragment))
    complete = []
    for parts in members.values():
        whole = parts[0][1].whole
        covered = np.zeros(math.prod(whole.layer.weight), bool)
        for _, fragment in parts:
            covered[fragment.places[fragment.places >= 0]] = True
        constant = all(query.constant_input(conv, 1) is not None for conv, _ in parts)
        if constant and covered.all():
            complete.append(Assembly(whole, tuple(parts), _moved(graph, parts)))
    return complete


def _moved(graph: LegalModel, parts: Sequence[_Member]) -> str:
    """Return the name of what a Sub of the host has made for all fragments; else nothing."""
    (name, tensor), *others = {
        (source := graph.plan.uncut(conv.inputs[0])).name: source for conv, _ in parts
    }.items()
    maker, origin = query.producer(tensor), set(graph.model.origin(parts[0][0]))
    if others or maker is None or maker.op != "Sub":
        return ""
    return name if origin <= set(graph.model.origin(maker)) else ""  # it is none of the model


def _geometry(one: Windows | Layer) -> tuple[object, ...]:
    channels = one.channels if isinstance(one, Windows) else one.in_channels
    return channels, one.group, one.kernel, one.strides, one.dilations
