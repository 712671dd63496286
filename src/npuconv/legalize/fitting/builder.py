"""Writes a plan into the graph: slices, pads and convolutions with the shapes they have.

The same slice, pad or piece of weights is written once, however often it is asked for: the
tiles of an image share one initializer, and all parts of a tile one Slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuconv.legalize.fitting.layer import Layer
from npuconv.model import edit, query
from npuconv.model.conv import flat_pads
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

FOREVER = 2**63 - 1  # as the end of a Slice: to the end, whatever the extent
Bound = tuple[int, int, int, int]  # axis, start, stop (below 0: from the end), step


@dataclass(frozen=True)
class Whole:
    """A convolution before it was fitted."""

    name: str  # of its node, which is gone
    source: str  # name of the tensor it read
    layer: Layer


@dataclass(frozen=True)
class Fragment:
    """A convolution that has weights of another one."""

    whole: Whole
    # In the shape of its own weights: where each of them is among those of the whole, counted
    # through all axes; -1 where there is a zero.
    places: NDArray[np.int64]
    biased: bool  # whether it adds the bias of the whole to the outputs that it makes
    summed: bool = False  # whether its outputs are added to those of others
    host_padded: bool = False  # whether the host pads what it reads, so that any zero point will do

    @property
    def needs_zero(self) -> bool:
        """Return whether it stands for a convolution that pads with stored zeros."""
        return self.whole.layer.padded and not self.host_padded

    def channels(self) -> NDArray[np.int64]:
        """Return the input channel of the whole that each weight reads; -1 for zeros between."""
        layer = self.whole.layer
        rows, inner = np.divmod(self.places, math.prod(layer.weight[1:]))
        column = inner // math.prod(layer.kernel)
        channel = rows // (layer.weight[0] // layer.group) * layer.weight[1] + column
        return np.where(self.places < 0, -1, channel)


@dataclass(frozen=True)
class BiasChannels:
    """A convolution whose bias the weights of constant input channels make up."""

    count: int
    tap: int  # of the kernel, counted through all axes: the one that has these weights
    weight: NDArray[Any]  # without these channels
    bias: NDArray[Any]
    padded: bool  # whether a Pad makes these channels, and not a Concat


@dataclass(frozen=True)
class Piece:
    """A layer with the tensors it reads."""

    layer: Layer
    source: Tensor
    weight: Tensor  # of a pool, which has none, its source
    bias: Tensor | None
    first: bool = True  # whether it adds the bias: of parts that are added the first alone does
    summed: bool = False  # whether it is such a part

    def array(self) -> np.ndarray:
        """The weights, O x I/group x kernel."""
        array = query.value(self.weight)
        assert array is not None
        return array

    def with_layer(self, layer: Layer, source: Tensor | None = None) -> Piece:
        """Return the same weights and bias in another layer."""
        return replace(self, layer=layer, source=self.source if source is None else source)


@dataclass
class Builder:
    """Adds nodes that stand for one source node."""

    model: Model
    node: Node
    whole: Whole
    count: int = 0  # convolutions written
    fragments: dict[str, Fragment] = field(default_factory=dict)  # by the name of the node
    bias_channels: dict[str, BiasChannels] = field(default_factory=dict)  # the same
    _places: dict[int, np.ndarray | None] = field(default_factory=dict)  # from 1; 0: a zero
    _made: dict[Hashable, tuple[Any, Any]] = field(default_factory=dict)
    _padded: dict[int, tuple[Tensor, dict[int, tuple[int, int]], Tensor]] = field(
        default_factory=dict
    )

    def pad(self, tensor: Tensor, amounts: dict[int, tuple[int, int]]) -> Tensor:
        """Pad a tensor with zeros, by axis; two Pads in a row become one."""
        amounts = {axis: pair for axis, pair in amounts.items() if any(pair)}
        if not amounts:
            return tensor
        inner, before, _ = self._padded.get(id(tensor), (tensor, {}, tensor))
        if min(before, default=2) < 2 or min(amounts) < 2:  # channels get a Pad of their own
            inner, before = tensor, {}
        total = dict(before)
        for axis, (begin, end) in amounts.items():
            first, last = before.get(axis, (0, 0))
            total[axis] = (first + begin, last + end)
        key = ("pad", id(inner), tuple(sorted(total.items())))
        result = self._once(key, inner, lambda: self._pad(inner, total))
        self._padded[id(result)] = (inner, total, result)
        return result

    def slice(self, tensor: Tensor, bounds: Sequence[Bound]) -> Tensor:
        """Part of a tensor; bounds that take all of an axis are left out."""
        dims = self.dims(tensor)
        bounds = [b for b in bounds if not _is_whole(b, dims[b[0]])]
        if not bounds:
            return tensor
        key = ("slice", id(tensor), tuple(bounds))
        return self._once(key, tensor, lambda: self._slice(tensor, bounds))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors side by side."""
        if len(tensors) == 1:
            return tensors[0]
        shape = list(self.dims(tensors[0]))
        extents = [self.dims(t)[axis] for t in tensors]
        shape[axis] = None if None in extents else sum(d or 0 for d in extents)
        return self._insert("Concat", tensors, shape, axis=axis)

    def add(self, tensors: Sequence[Tensor], *, pairwise: bool = False) -> Tensor:
        """The sum; with one operator, or with an Add for each two."""
        shape = self.dims(tensors[0])
        if len(tensors) > 2 and not pairwise:
            return self._insert("Sum", tensors, shape)
        total = tensors[0]
        for tensor in tensors[1:]:
            total = self._insert("Add", [total, tensor], shape)
        return total

    def to_channels(self, tensor: Tensor, factors: Sequence[int]) -> Tensor:
        """Cells of every ``factors`` block as channels, phase by phase; extents must divide."""
        return self._once(
            ("channels", id(tensor), tuple(factors)),
            tensor,
            lambda: self._to_channels(tensor, factors),
        )

    def from_channels(self, tensor: Tensor, factors: Sequence[int]) -> Tensor:
        """Put channels back side by side: the inverse of ``to_channels``."""
        n, channels, *cells = self.dims(tensor)
        depth = (channels or 0) // int(np.prod(factors))
        whole = [None if c is None else c * f for c, f in zip(cells, factors, strict=True)]
        if set(factors) == {1}:
            return tensor
        shape = [n, depth, *whole]
        if len(factors) == 2 and len(set(factors)) == 1:
            attrs = {"blocksize": factors[0], "mode": "DCR"}
            return self._insert("DepthToSpace", [tensor], shape, **attrs)
        axes = len(factors)
        split = self._reshape(tensor, [0, *factors, depth, *[int(c or 0) for c in cells]])
        perm = [0, 1 + axes, *(i for a in range(axes) for i in (2 + axes + a, 1 + a))]
        transposed = self._transpose(split, perm)
        return self._reshape(transposed, [0, depth, *[int(w or 0) for w in whole]], shape)

    def weights(
        self, piece: Piece, key: Hashable, move: Callable[[np.ndarray], np.ndarray]
    ) -> Tensor:
        """The weights of a layer cut, moved, or with zeros between, once for each key."""
        tensor = self.constant(piece, key, lambda: move(piece.array()))
        if id(tensor) not in self._places:
            before = self._places_of(piece.weight)
            self._places[id(tensor)] = None if before is None else move(before)
        return tensor

    def constant(self, piece: Piece, key: Hashable, make: Callable[[], np.ndarray]) -> Tensor:
        """Weights that stand in the place of those of a layer, made once for each key."""
        name = f"{self.node.name}/weight"
        return self._once(
            ("weights", id(piece.weight), key),
            piece.weight,
            lambda: edit.constant(self.model, name, np.ascontiguousarray(make())),
        )

    def biases(self, piece: Piece, key: Hashable, make: Callable[[], np.ndarray]) -> Tensor:
        """A piece of the bias, or one that is made up, once for each key."""
        owner = piece.weight if piece.bias is None else piece.bias
        name = f"{self.node.name}/bias"
        return self._once(
            ("bias", id(owner), key),
            owner,
            lambda: edit.constant(self.model, name, np.ascontiguousarray(make())),
        )

    def bias_values(self, piece: Piece) -> np.ndarray:
        """The bias, zeros where there is none."""
        array = query.value(piece.bias)
        return np.zeros(piece.layer.out_channels, piece.array().dtype) if array is None else array

    def layer(self, piece: Piece) -> Tensor:
        """The convolution or pool itself."""
        self.count += 1
        return self._conv(piece) if piece.layer.op == "Conv" else self._pool(piece)

    def _pool(self, piece: Piece) -> Tensor:
        layer = piece.layer
        attrs: dict[str, Any] = {
            "kernel_shape": list(layer.kernel), "pads": flat_pads(layer.pads),
            "strides": list(layer.strides),
        }  # fmt: skip
        attrs |= {"dilations": list(layer.dilations)} if max(layer.dilations) > 1 else {}
        attrs |= {"count_include_pad": 1} if layer.counted else {}
        return self._insert(layer.op, [piece.source], layer.output, **attrs)

    def _conv(self, piece: Piece) -> Tensor:
        layer = piece.layer
        inputs = [piece.source, piece.weight]
        inputs += [] if piece.bias is None else [piece.bias]
        result = self._insert(
            "Conv", inputs, layer.output,
            auto_pad="NOTSET", dilations=list(layer.dilations), group=layer.group,
            kernel_shape=list(layer.kernel), pads=flat_pads(layer.pads),
            strides=list(layer.strides),
        )  # fmt: skip
        self._record(result, piece)
        return result

    def with_ones(self, piece: Piece, tensor: Tensor, count: int) -> Tensor:
        """Put channels of ones behind those of a tensor; with a Pad where its extents are open."""
        dims, dtype = self.dims(tensor), piece.array().dtype
        if None in dims:
            ends = [0] * len(dims)
            ends[1] = count
            amounts = edit.integers(self.model, f"{self.node.name}/pads", [0] * len(dims) + ends)
            fill = edit.constant(self.model, f"{self.node.name}/one", np.ones((), dtype))
            shape = [dims[0], (dims[1] or 0) + count, *dims[2:]]
            return self._insert("Pad", [tensor, amounts, fill], shape)
        shape_of_ones = (dims[0] or 1, count, *(d or 1 for d in dims[2:]))
        ones = self.constant(piece, ("ones", *shape_of_ones), lambda: np.ones(shape_of_ones, dtype))
        return self.concat([tensor, ones], 1)

    def record_bias(self, result: Tensor, piece: Piece, count: int, tap: int) -> None:
        """Note of a convolution, made of a piece, that channels of a constant have its bias."""
        maker = query.producer(result)
        assert maker is not None, "it has just been made"
        beside = query.producer(maker.inputs[0])
        padded = beside is not None and beside.op == "Pad"
        self._record(result, piece)
        bias = self.bias_values(piece)
        self.bias_channels[maker.name] = BiasChannels(count, tap, piece.array(), bias, padded)

    def _record(self, result: Tensor, piece: Piece) -> None:
        """Note which weights of the whole a convolution has."""
        places, maker = self._places_of(piece.weight), query.producer(result)
        if places is not None and maker is not None:
            self.fragments[maker.name] = Fragment(
                self.whole, places - 1, biased=piece.first, summed=piece.summed
            )

    def _places_of(self, weight: Tensor) -> np.ndarray | None:
        """Return where each weight is in those of the whole, from 1; None where it is in none."""
        if weight is self.node.inputs[1] and id(weight) not in self._places:
            size = math.prod(self.whole.layer.weight)
            self._places[id(weight)] = 1 + np.arange(size).reshape(self.whole.layer.weight)
        return self._places.get(id(weight))

    def dims(self, tensor: Tensor) -> tuple[int | None, ...]:
        """Return the shape, with None for extents that are not known."""
        shape = query.shape(tensor)
        if shape is None:  # nothing has inferred it, so it is no result of this class
            return self.whole.layer.source
        return tuple(d if isinstance(d, int) else None for d in shape)

    def _once(self, key: Hashable, owner: Any, make: Callable[[], Tensor]) -> Tensor:
        """Return the result for a key; its owner is held, so that no other gets its id."""
        if key not in self._made:
            self._made[key] = (make(), owner)
        return self._made[key][0]

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
        return self._insert("Pad", [tensor, flat], shape)

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
        return self._insert("Slice", [tensor, *tensors], shape)

    def _to_channels(self, tensor: Tensor, factors: Sequence[int]) -> Tensor:
        n, channels, *extents = self.dims(tensor)
        cells = [int(e or 0) // f for e, f in zip(extents, factors, strict=True)]
        shape = [n, int(channels or 0) * int(np.prod(factors)), *cells]
        if len(factors) == 2 and len(set(factors)) == 1:
            return self._insert("SpaceToDepth", [tensor], shape, blocksize=factors[0])
        axes = len(factors)
        pairs = [value for pair in zip(cells, factors, strict=True) for value in pair]
        split = self._reshape(tensor, [0, int(channels or 0), *pairs])
        phases, blocks = [3 + 2 * a for a in range(axes)], [2 + 2 * a for a in range(axes)]
        transposed = self._transpose(split, [0, *phases, 1, *blocks])
        return self._reshape(transposed, [0, *(int(d or 0) for d in shape[1:])], shape)

    def _reshape(
        self, tensor: Tensor, target: Sequence[int], shape: Sequence[int | None] | None = None
    ) -> Tensor:
        ints = edit.integers(self.model, f"{self.node.name}/shape", target)
        dims = shape if shape is not None else [self.dims(tensor)[0], *target[1:]]
        return self._insert("Reshape", [tensor, ints], dims)

    def _transpose(self, tensor: Tensor, perm: Sequence[int]) -> Tensor:
        dims = self.dims(tensor)
        return self._insert("Transpose", [tensor], [dims[a] for a in perm], perm=list(perm))


def _is_whole(bound: Bound, extent: int | None) -> bool:
    _, start, stop, step = bound
    return start == 0 and step == 1 and (stop >= FOREVER or (extent is not None and stop == extent))
