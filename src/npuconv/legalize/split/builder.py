"""Writes a plan into the graph: slices, pads and convolutions with the shapes they have.

The same slice, pad or piece of weights is written once, however often it is asked for: the
tiles of an image share one initializer, and all parts of a tile one Slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from npuconv.legalize.split.layer import Layer
from npuconv.legalize.tools.layout import TO_THE_END
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.model.conv import flat_pads
from npuconv.records import dataclass, field, replace

Move = Callable[[np.ndarray], np.ndarray]  # function of weights, biases or numbers of channels
Mode = Literal["float", "rounding", "exact", "int8"]
Bound = tuple[int, int, int, int]  # axis, start, stop (below 0: from the end), step


@dataclass(frozen=True)
class SumTerm:
    """A convolution of a layer whose result the device adds to others in int32."""

    # Slices of the input that the convolution reads; empty for the whole input.
    bounds: tuple[Bound, ...]
    index: tuple[slice, ...]  # slices of the layer's weights that the convolution has
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


@dataclass(frozen=True)
class BiasChannels:
    """Constant input channels whose weights make up the bias of a convolution."""

    count: int
    tap: int  # flat index of the kernel tap that has these weights
    padded: bool  # whether a Pad adds these channels; else a Concat


@dataclass(frozen=True)
class WrittenConv:
    """A convolution that a plan has written.

    Attributes:
        node: name of the convolution.
        places: flat index of each weight in the weights of the layer; -1 for a zero.
        summed: whether its result is added to the results of other convolutions.
        terms: convolutions whose sum the device computes in int32 instead.
        bias_channels: input channels in the place of the bias; None if the device adds the bias.
    """

    node: str
    places: NDArray[np.int64]
    summed: bool = False
    terms: tuple[SumTerm, ...] = ()
    bias_channels: BiasChannels | None = None


@dataclass(frozen=True)
class TensorPart:
    """Channels of the input or of the output of a layer, in the order of a tensor.

    Attributes:
        of_input: whether they are channels of the input.
        channels: number of each, -1 for zeros.
        axis: axis of the channels.
    """

    of_input: bool
    channels: NDArray[np.int64]
    axis: int = 1


@dataclass(frozen=True)
class Piece:
    """A layer with the tensors it reads."""

    layer: Layer
    source: Tensor
    weight: Tensor  # weights; for a pool, which has no weights, its source
    bias: Tensor | None
    summed: bool = False  # whether the result is added to other results

    def array(self) -> np.ndarray:
        """The weights, O x I/group x kernel."""
        array = query.value(self.weight)
        assert array is not None
        return array

    def with_layer(self, layer: Layer, source: Tensor | None = None) -> Piece:
        """Return the piece with another layer."""
        return replace(self, layer=layer, source=self.source if source is None else source)


@dataclass
class Builder:
    """Adds nodes that replace one source node.

    Attributes:
        model: model that gets the nodes.
        node: the source node.
        whole: layer of the source node.
        mode: ``float`` and ``exact`` write everything; ``rounding`` the sums and averages that
            int8 rounds once more, and leaves layers between them whole; ``int8`` leaves sums in
            int32 and a bias as input channels to the lowering.
        count: convolutions and pools written.
        convs: convolutions written.
        tensors: parts of the input and of the output, by name; only in the mode ``int8``.
    """

    model: Model
    node: Node
    whole: Layer
    mode: Mode = "float"
    count: int = 0
    convs: list[WrittenConv] = field(default_factory=list)
    tensors: dict[str, TensorPart] = field(default_factory=dict)
    _places: dict[int, np.ndarray] = field(default_factory=dict)  # flat indices + 1; 0: zero
    _constants: dict[Hashable, tuple[Any, Any]] = field(default_factory=dict)
    _padded: dict[int, tuple[Tensor, dict[int, tuple[int, int]], Tensor]] = field(
        default_factory=dict
    )

    def pad(self, tensor: Tensor, amounts: Mapping[int, tuple[int, int]]) -> Tensor:
        """Pad a tensor with zeros, by axis; two Pads in a row become one."""
        amounts = {axis: pair for axis, pair in amounts.items() if any(pair)}
        if not amounts:
            return tensor
        inner, before, _ = self._padded.get(id(tensor)) or self._pad_in_front(tensor)
        if min(before, default=2) < 2 or min(amounts) < 2:  # a separate Pad for channels
            inner, before = tensor, {}
        total = dict(before)
        for axis, (begin, end) in amounts.items():
            first, last = before.get(axis, (0, 0))
            total[axis] = (first + begin, last + end)
        key = ("pad", id(inner), tuple(sorted(total.items())))
        result = self._once(key, inner, lambda: self._pad(inner, total))
        self._padded[id(result)] = (inner, total, result)
        return result

    def _pad_in_front(self, tensor: Tensor) -> tuple[Tensor, dict[int, tuple[int, int]], Tensor]:
        """Return the input of a Pad of this layer alone, its amounts by axis, and ``tensor``.

        Returns:
            ``tensor``, no amounts, and ``tensor`` if there is no such Pad.
        """
        pad, whole = query.producer(tensor), (tensor, dict[int, tuple[int, int]](), tensor)
        if self.mode != "int8" or pad is None or pad.op != "Pad" or len(tensor.outputs) > 1:
            return whole
        pairs, is_plain = query.pad_amounts(pad), len(pad.inputs) == 2 and query.pads_with_zero(pad)
        if pairs is None or len(pairs) != len(self.whole.source) or any(map(any, pairs[:2])):
            return whole
        return (pad.inputs[0], dict(enumerate(pairs[2:], 2)), tensor) if is_plain else whole

    def slice(self, tensor: Tensor, bounds: Sequence[Bound]) -> Tensor:
        """Return a Slice of a tensor; bounds of a complete axis are dropped."""
        dims = self.dims(tensor)
        bounds = [b for b in bounds if not is_whole(b, dims[b[0]])]
        if not bounds:
            return tensor
        key = ("slice", id(tensor), tuple(bounds))
        return self._once(key, tensor, lambda: self._slice(tensor, bounds))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Return the Concat of tensors."""
        if len(tensors) == 1:
            return tensors[0]
        shape = list(self.dims(tensors[0]))
        extents = [self.dims(t)[axis] for t in tensors]
        shape[axis] = None if None in extents else sum(d or 0 for d in extents)
        result, parts = self._insert("Concat", tensors, shape, axis=axis), map(self._part, tensors)
        channels = [part.channels for part in parts if part is not None][: None if axis == 1 else 1]
        return self._note(result, tensors[0], lambda _: np.concatenate(channels))

    def add(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the sum of tensors."""
        if len(tensors) == 1:
            return tensors[0]
        return self._insert("Sum" if len(tensors) > 2 else "Add", tensors, self.dims(tensors[0]))

    def to_channels(self, tensor: Tensor, factors: Sequence[int]) -> Tensor:
        """Turn each ``factors`` block of cells into channels, by phase; extents must divide."""
        key = ("channels", id(tensor), tuple(factors))
        return self._once(key, tensor, lambda: self._to_channels(tensor, factors))

    def from_channels(self, tensor: Tensor, factors: Sequence[int]) -> Tensor:
        """Turn phases in channels back into cells: the inverse of ``to_channels``."""
        n, channels, *cells = self.dims(tensor)
        depth = (channels or 0) // int(np.prod(factors))
        whole = [None if c is None else c * f for c, f in zip(cells, factors, strict=True)]
        if set(factors) == {1}:
            return tensor
        shape, one_phase = [n, depth, *whole], itemgetter(slice(depth))
        if len(factors) == 2 and len(set(factors)) == 1:
            attrs = {"blocksize": factors[0], "mode": "DCR"}
            result = self._insert("DepthToSpace", [tensor], shape, **attrs)
            return self._note(result, tensor, one_phase)
        axes = len(factors)
        split = self._reshape(tensor, [0, *factors, depth, *[int(c or 0) for c in cells]])
        self._note(split, tensor, one_phase, axis=1 + axes)
        perm = [0, 1 + axes, *(i for a in range(axes) for i in (2 + axes + a, 1 + a))]
        transposed = self._note(self._transpose(split, perm), tensor, one_phase)
        result = self._reshape(transposed, [0, depth, *[int(w or 0) for w in whole]], shape)
        return self._note(result, tensor, one_phase)

    def weights(self, piece: Piece, key: Hashable, move: Move) -> Tensor:
        """Return the changed weights of a layer, created once for each key."""
        tensor = self.constant(piece, key, lambda: move(piece.array()))
        if self.mode == "int8" and id(tensor) not in self._places:
            self._places[id(tensor)] = move(self._places_of(piece.weight))
        return tensor

    def constant(self, piece: Piece, key: Hashable, make: Callable[[], np.ndarray]) -> Tensor:
        """New weights of a layer, created once for each key."""
        return self._constant("weight", piece.weight, key, make)

    def biases(self, piece: Piece, key: Hashable, move: Move) -> Tensor:
        """Return a part of the bias, or a changed bias, created once for each key."""
        owner = piece.weight if piece.bias is None else piece.bias
        return self._constant("bias", owner, key, lambda: move(self.bias_values(piece)))

    def _constant(
        self, kind: str, owner: Tensor, key: Hashable, make: Callable[[], np.ndarray]
    ) -> Tensor:
        name = f"{self.node.name}/{kind}"
        return self._once(
            (kind, id(owner), key),
            owner,
            lambda: edit.constant(self.model, name, np.ascontiguousarray(make())),
        )

    def bias_values(self, piece: Piece) -> np.ndarray:
        """The bias; zeros if the piece has no bias."""
        array = query.value(piece.bias)
        return np.zeros(piece.layer.out_channels, piece.array().dtype) if array is None else array

    def layer(
        self,
        piece: Piece,
        terms: tuple[SumTerm, ...] = (),
        bias_channels: BiasChannels | None = None,
    ) -> Tensor:
        """Add the convolution or pool; record the sums or bias channels that the device runs."""
        self.count += 1
        layer, attributes = piece.layer, piece.layer.window().attributes
        if layer.op != "Conv":
            attrs = {name: attributes[name] for name in ("kernel_shape", "pads", "strides")}
            attrs |= {"dilations": list(layer.dilations)} if max(layer.dilations) > 1 else {}
            attrs |= {"count_include_pad": 1} if layer.counted else {}
            return self._insert(layer.op, [piece.source], layer.output, **attrs)
        result = self._conv(piece)
        node, places = query.producer(result), np.zeros(0, np.int64)
        assert node is not None, "it has just been made"
        if self.mode == "int8":
            places = self._places_of(piece.weight) - 1
            rows = places.reshape(len(places), -1).max(axis=1)
            rows = np.where(rows < 0, -1, rows // math.prod(self.whole.weight[1:]))
            self.tensors[result.name] = TensorPart(of_input=False, channels=rows)
        self.convs.append(WrittenConv(node.name, places, piece.summed, terms, bias_channels))
        return result

    def _conv(self, piece: Piece) -> Tensor:
        inputs = [piece.source, piece.weight, *([] if piece.bias is None else [piece.bias])]
        win = piece.layer.window()
        return self._insert("Conv", inputs, piece.layer.output, **win.attributes)

    def with_ones(self, piece: Piece, tensor: Tensor, count: int) -> Tensor:
        """Append ``count`` channels of ones to a tensor; with a Pad if its extents are open."""
        dims, dtype = self.dims(tensor), piece.array().dtype
        if None in dims:
            pads = [0] * len(dims)
            pads[1] = count
            amounts = edit.integers(self.model, f"{self.node.name}/pads", [0] * len(dims) + pads)
            fill = edit.constant(self.model, f"{self.node.name}/one", np.ones((), dtype))
            shape = [dims[0], (dims[1] or 0) + count, *dims[2:]]
            return self._insert("Pad", [tensor, amounts, fill], shape)
        shape_of_ones = (dims[0] or 1, count, *(d or 1 for d in dims[2:]))
        ones = self.constant(piece, ("ones", *shape_of_ones), lambda: np.ones(shape_of_ones, dtype))
        return self.concat([tensor, ones], 1)

    def _places_of(self, weight: Tensor) -> np.ndarray:
        """Return the flat index of each weight in the weights of the layer, from 1."""
        if weight is self.node.inputs[1]:
            return 1 + np.arange(math.prod(self.whole.weight)).reshape(self.whole.weight)
        return self._places[id(weight)]

    def _part(self, tensor: Tensor) -> TensorPart | None:
        """Return the channels of a tensor; None if they are not recorded."""
        if self.mode != "int8":
            return None
        if tensor.name in self.tensors:
            return self.tensors[tensor.name]
        return TensorPart(of_input=True, channels=np.arange(self.whole.in_channels))

    def _note(
        self, result: Tensor, source: Tensor, move: Move = np.asarray, axis: int = 1
    ) -> Tensor:
        """Record the channels of a result: the moved channels of the source."""
        if (part := self._part(source)) is not None:
            self.tensors[result.name] = replace(part, channels=move(part.channels), axis=axis)
        return result

    def dims(self, tensor: Tensor) -> tuple[int | None, ...]:
        """Return the shape, with None for extents that are not known."""
        shape = query.shape(tensor)
        if shape is None:  # no result of this class: inference has not run
            return self.whole.source
        return tuple(d if isinstance(d, int) else None for d in shape)

    def _once(self, key: Hashable, owner: Any, make: Callable[[], Tensor]) -> Tensor:
        """Return the result for a key; the reference to its owner keeps the id unique."""
        if key not in self._constants:
            self._constants[key] = (make(), owner)
        return self._constants[key][0]

    def _insert(
        self, op: str, inputs: Sequence[Tensor], shape: Sequence[int | None] | None, **attrs: Any
    ) -> Tensor:
        return edit.insert(
            self.model, op, list(inputs), origin=[self.node], shape=shape, attrs=attrs
        )

    def _pad(self, tensor: Tensor, amounts: dict[int, tuple[int, int]]) -> Tensor:
        dims = self.dims(tensor)
        pairs = [amounts.get(axis, (0, 0)) for axis in range(len(dims))]
        flat = edit.integers(self.model, f"{self.node.name}/pads", flat_pads(tuple(pairs)))
        shape = [None if d is None else d + sum(p) for d, p in zip(dims, pairs, strict=True)]
        result = self._insert("Pad", [tensor, flat], shape)
        return self._note(result, tensor, lambda x: np.pad(x, pairs[1], constant_values=-1))

    def _slice(self, tensor: Tensor, bounds: Sequence[Bound]) -> Tensor:
        shape = list(self.dims(tensor))
        for axis, start, stop, step in bounds:
            extent = shape[axis]
            shape[axis] = None if extent is None else len(range(extent)[start:stop:step])
        columns = {
            "starts": [b[1] for b in bounds], "ends": [b[2] for b in bounds],
            "axes": [b[0] for b in bounds],
        }  # fmt: skip
        if any(b[3] != 1 for b in bounds):
            columns["steps"] = [b[3] for b in bounds]
        stem = f"{self.node.name}/slice"
        tensors = [edit.integers(self.model, stem, values) for values in columns.values()]
        cut = next((slice(*b[1:]) for b in bounds if b[0] == 1), slice(None))
        return self._note(self._insert("Slice", [tensor, *tensors], shape), tensor, itemgetter(cut))

    def _to_channels(self, tensor: Tensor, factors: Sequence[int]) -> Tensor:
        n, channels, *extents = self.dims(tensor)
        cells = [int(e or 0) // f for e, f in zip(extents, factors, strict=True)]
        shape = [n, int(channels or 0) * int(np.prod(factors)), *cells]
        repeated = partial(np.tile, reps=int(np.prod(factors)))
        if len(factors) == 2 and len(set(factors)) == 1:
            result = self._insert("SpaceToDepth", [tensor], shape, blocksize=factors[0])
            return self._note(result, tensor, repeated)
        axes = len(factors)
        pairs = [value for pair in zip(cells, factors, strict=True) for value in pair]
        split = self._note(self._reshape(tensor, [0, int(channels or 0), *pairs]), tensor)
        phases, blocks = [3 + 2 * a for a in range(axes)], [2 + 2 * a for a in range(axes)]
        transposed = self._transpose(split, [0, *phases, 1, *blocks])
        self._note(transposed, tensor, axis=1 + axes)
        result = self._reshape(transposed, [0, *(int(d or 0) for d in shape[1:])], shape)
        return self._note(result, tensor, repeated)

    def _reshape(
        self, tensor: Tensor, target: Sequence[int], shape: Sequence[int | None] | None = None
    ) -> Tensor:
        ints = edit.integers(self.model, f"{self.node.name}/shape", target)
        dims = shape if shape is not None else [self.dims(tensor)[0], *target[1:]]
        return self._insert("Reshape", [tensor, ints], dims)

    def _transpose(self, tensor: Tensor, perm: Sequence[int]) -> Tensor:
        dims = self.dims(tensor)
        return self._insert("Transpose", [tensor], [dims[a] for a in perm], perm=list(perm))


def is_whole(bound: Bound, extent: int | None) -> bool:
    """Return whether a bound covers a complete axis."""
    _, start, stop, step = bound
    return (
        start == 0 and step == 1 and (stop >= TO_THE_END or (extent is not None and stop == extent))
    )
