"""A TFLite graph being made of an ONNX graph, whose tensors may be stored in other orders.

ONNX has the channels of an image second, TFLite last. A *view* is a stored tensor with its
*order*: axis k of the stored tensor is axis ``order[k]`` of the ONNX tensor. A Transpose of ONNX is
no operator here but another view of the same tensor; where an operator needs an order that is
not there, a TRANSPOSE makes it, or a RESHAPE where only axes of one element change places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from npuconv.errors import ModelError
from npuconv.model.proto import Links
from npuconv.tflite.flatbuffer import DTYPES, OPEN, Array, FileOperator, Graph, Tensor, TensorScales

Order = tuple[int, ...]
CHANNELS_LAST: Order = (0, 2, 3, 1)
_TO_INT32 = "int64"  # TFLite's kernels take indices and extents as int32
_FORMS = "choose --format qoperator, or export the model in float32"
_SHAPES = "give all extents with --input-shape NAME=1,3,224,224"


class View(NamedTuple):
    """A stored tensor: its number, and its order."""

    number: int
    order: Order


def onnx_order(rank: int) -> Order:
    """Return the order of ONNX."""
    return tuple(range(rank))


class Draft(Links):
    """A TFLite graph being made.

    Args:
        model: an integer model, its shapes inferred.

    Attributes:
        graph: the TFLite graph.
        outputs: names of the outputs of the model.
        fused: names of tensors whose producer was fused into the node before it.
        scales: scales of int8 inputs and outputs of operators beside convolutions, by name.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        source = model.graph
        super().__init__(source)
        self.graph = Graph()
        self.outputs = [info.name for info in source.output]
        self.fused: set[str] = set()
        self.scales: dict[str, TensorScales] = {}
        self._open: set[str] = set()
        for node in source.node:
            if node.op_type == "NonMaxSuppression" or not self._open.isdisjoint(node.input):
                self._open.update(filter(None, node.output))
        self._arrays = {t.name: numpy_helper.to_array(t) for t in source.initializer}
        self._infos = {i.name: i for i in (*source.output, *source.input, *source.value_info)}
        self._views: dict[str, list[View]] = {}
        self._shared: dict[tuple[Any, ...], int] = {}
        self._names: set[str] = set()

    # The ONNX graph

    def constant(self, name: str) -> Array | None:
        """Return the values of a constant; None for any other tensor."""
        return self._arrays.get(name)

    def fold(self, name: str, values: Array) -> None:
        """Make a tensor a constant."""
        self._arrays[name] = values

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the extents of an ONNX tensor; ``OPEN`` if they follow from values.

        Raises:
            ModelError: an extent is not known before the model runs.
        """
        if name in self._arrays:
            return tuple(int(n) for n in self._arrays[name].shape)
        info = self._infos.get(name)
        if info is None or not info.type.tensor_type.HasField("shape"):
            raise ModelError(
                f"the shape of {name!r} is not known, but TFLite needs it", hint=_SHAPES
            )
        dims = info.type.tensor_type.shape.dim
        if name not in self._open and any(not d.HasField("dim_value") for d in dims):
            shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims]
            raise ModelError(f"{name!r} has the shape {shape}: TFLite needs numbers", hint=_SHAPES)
        return tuple(int(d.dim_value) if d.HasField("dim_value") else OPEN for d in dims)

    def is_open(self, name: str) -> bool:
        """Return whether extents of a tensor follow from values."""
        return name in self._open and OPEN in self.shape(name)

    def knows(self, name: str) -> bool:
        """Return whether all extents of a tensor are known."""
        try:
            return OPEN not in self.shape(name)
        except ModelError:
            return False

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the element type of an ONNX tensor."""
        if name in self._arrays:
            return self._arrays[name].dtype
        kind = self._infos[name].type.tensor_type.elem_type
        return np.dtype(helper.tensor_dtype_to_np_dtype(kind))

    # The TFLite graph

    def view(self, name: str) -> View | None:
        """Return the first form in which a tensor is stored; None for a constant."""
        return self._views.get(name, [None])[0]

    def stored_view(self, name: str) -> View:
        """Return the first form in which a tensor is stored; a constant has the order of ONNX."""
        return self.view(name) or View(self.read(name), onnx_order(len(self.shape(name))))

    def order(self, names: Sequence[str], rank: int) -> Order:
        """Return the order of the first input of this rank, or the order of ONNX."""
        for view in map(self.view, names):
            if view is not None and len(view.order) == rank:
                return view.order
        return onnx_order(rank)

    def add(
        self,
        stem: str,
        shape: Sequence[int],
        dtype: Any,
        values: Array | None = None,
        quantization: TensorScales | None = None,
    ) -> int:
        """Add a tensor; return its number.

        Raises:
            ModelError: TFLite has no such element type.
        """
        kind = np.dtype(dtype)
        if kind.name not in DTYPES:
            raise ModelError(
                f"{stem!r} is {kind.name}, which TFLite computes nothing with", hint=_FORMS
            )
        name, number = stem, 0
        while name in self._names:
            number += 1
            name = f"{stem}_{number}"
        self._names.add(name)
        self.graph.tensors.append(
            Tensor(name, tuple(int(n) for n in shape), kind, values, quantization)
        )
        return len(self.graph.tensors) - 1

    def store(self, name: str, order: Order, quantization: TensorScales | None = None) -> int:
        """Add the tensor that an ONNX tensor is stored in; return its number."""
        shape = self.shape(name)
        index = self.add(
            name,
            [shape[k] for k in order],
            self.dtype(name),
            quantization=self.scales.get(name, quantization),
        )
        self._views.setdefault(name, []).append(View(index, order))
        return index

    def sibling(self, name: str, stem: str, quantization: TensorScales) -> str:
        """Make up an ONNX tensor of the shape and type of another; return its name."""
        sibling = f"{name}/{stem}"
        self._infos[sibling] = self._infos[name]
        self.scales[sibling] = quantization
        return sibling

    def alias(self, name: str, view: View) -> None:
        """Add a view of a stored tensor to an ONNX tensor."""
        self._views.setdefault(name, []).append(view)

    def quantization(self, index: int) -> TensorScales | None:
        """Return scale and zero point of a stored tensor."""
        return self.graph.tensors[index].quantization

    def number(self, stem: str, values: Any, quantization: TensorScales | None = None) -> int:
        """Add a constant, or find the one with the same values; return its number."""
        array = np.asarray(values)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        scale = None if quantization is None else quantization.scales.tobytes()
        key = (array.dtype.name, array.shape, array.tobytes(), scale)
        if key not in self._shared:
            self._shared[key] = self.add(stem, array.shape, array.dtype, array, quantization)
        return self._shared[key]

    def emit(
        self,
        code: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        table: str = "",
        **options: Any,
    ) -> None:
        """Append an operator."""
        self.graph.operators.append(
            FileOperator(code, tuple(inputs), tuple(outputs), table, options)
        )

    def step(self, code: str, inputs: Sequence[int], like: int, **options: Any) -> int:
        """Append an operator whose output has shape and type of a tensor; return the output."""
        result = self._like(like, self.graph.tensors[like].shape)
        table = options.pop("table", "")
        self.emit(code, inputs, [result], table, **options)
        return result

    def requantize(self, name: str, result: str) -> None:
        """Append a QUANTIZE of an int8 tensor to the scale of another."""
        source, order = self.stored_view(name)
        self.emit("QUANTIZE", [source], [self.store(result, order)], "QuantizeOptions")

    def take(self, source: int, output: int, axis: int, indices: Array) -> None:
        """Append a GATHER along an axis of a stored tensor."""
        places = self.number("indices", indices.astype(np.int32))
        self.emit("GATHER", [source, places], [output], "GatherOptions", Axis=axis)

    def read(self, name: str, order: Order | None = None, rank: int | None = None) -> int:
        """Return the number of a tensor stored in an order.

        Args:
            name: an ONNX tensor.
            order: order of the result; by default the order of ONNX.
            rank: number of axes; a tensor with fewer axes gets axes of extent 1 in front.

        Raises:
            ModelError: the order has another number of axes than the tensor.
        """
        shape = self.shape(name)
        rank = max(len(shape), rank or 0)
        order = onnx_order(rank) if order is None else order
        if len(order) != rank:
            raise ModelError(
                f"{name!r}: what reads it takes {len(order) - 2} spatial axes in TFLite; "
                f"it has {rank - 2}"
            )
        values = self.constant(name)
        if values is not None:
            wide = values.reshape((1,) * (rank - values.ndim) + values.shape)
            wide = wide.astype(np.int32) if wide.dtype.name == _TO_INT32 else wide
            stored = np.ascontiguousarray(wide.transpose(order))
            return self.number(name, stored, self.scales.get(name))
        if rank > len(shape):
            plain = View(
                self._like(self.flat(name), (1,) * (rank - len(shape)) + shape), onnx_order(rank)
            )
            self.reshape(self.flat(name), plain.number)
            return plain.number if order == plain.order else self._reordered(plain, order)
        if name not in self._views:  # the indices of a MaxPool, for one
            raise ModelError(f"TFLite has no operator that makes {name!r}")
        for view in self._views[name]:
            if view.order == order:
                return view.number
        index = self._reordered(self._views[name][0], order)
        self._views[name].append(View(index, order))
        return index

    def stored(self) -> dict[str, View]:
        """Return the first form of every tensor that is stored, by its ONNX name."""
        return {name: views[0] for name, views in self._views.items()}

    def as_output(self, name: str, order: Order, used: Sequence[int]) -> int:
        """Return the number of a tensor with that name if possible, not in ``used``."""
        index = self.read(name, order)
        stored = self.graph.tensors[index]
        if index in used or stored.values is not None:
            copy = self.add(name, stored.shape, stored.dtype, quantization=stored.quantization)
            self.reshape(index, copy)
            return copy
        if stored.name != name and name not in self._names:
            self._names.add(name)
            stored.name = name
        return index

    def flat(self, name: str) -> int:
        """Return a tensor, of any shape, whose elements are in the order of ONNX."""
        if self.constant(name) is None:
            for view in self._views[name]:
                if is_flat(self.shape(name), view.order):
                    return view.number
        return self.read(name)

    def _like(self, index: int, shape: Sequence[int]) -> int:
        """Add a tensor of another shape; return its number."""
        tensor = self.graph.tensors[index]
        return self.add(tensor.name, shape, tensor.dtype, quantization=tensor.quantization)

    def reshape(self, source: int, output: int) -> None:
        """Append a RESHAPE."""
        shape = self.graph.tensors[output].shape
        extents = self.number("shape", np.asarray(shape, np.int32))
        self.emit("RESHAPE", [source, extents], [output], "ReshapeOptions", NewShape=shape)

    def _reordered(self, view: View, order: Order) -> int:
        """Append a RESHAPE or a TRANSPOSE of a stored tensor into another order."""
        stored = self.graph.tensors[view.number]
        perm = [view.order.index(axis) for axis in order]
        result = self._like(view.number, [stored.shape[k] for k in perm])
        if is_flat(stored.shape, tuple(perm)):
            self.reshape(view.number, result)
        else:
            places = self.number("perm", np.asarray(perm, np.int32))
            self.emit("TRANSPOSE", [view.number, places], [result], "TransposeOptions")
        return result


def is_flat(shape: Sequence[int], order: Order) -> bool:
    """Return whether only axes of one element change places."""
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)
