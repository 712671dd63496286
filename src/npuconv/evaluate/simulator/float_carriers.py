"""Float carriers: float tensors that hold the integers of the 8-bit tensors of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from npuconv.arithmetic.device import MAX_SHIFT
from npuconv.arithmetic.rescaling import FLOAT, Rescaling
from npuconv.arithmetic.whole import Rounding
from npuconv.model.proto import all_names, reads

Array = NDArray[Any]
REQUANTIZE_KEY = "npuconv.requantize"  # of the model's metadata; ``emit`` writes it
LARGEST_BITS = 31  # of a multiplier
EIGHT_BITS: dict[int, tuple[int, int]] = {
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
}


@dataclass(frozen=True)
class IntegerRange:
    """An 8-bit tensor: its type, and the least and the greatest integer that it can hold."""

    dtype: int
    low: int
    high: int


def full_range(dtype: int) -> IntegerRange:
    """Return the range of all integers of an 8-bit type."""
    return IntegerRange(dtype, *EIGHT_BITS[dtype])


def _requantization(words: str) -> Rescaling:
    """Return the requantization of a device; float for other words."""
    kind, *parts = words.split() or ["float"]
    if kind == "shift" and len(parts) == 3 and parts[2] in get_args(Rounding):
        bits, places = (int(part) if part.isdecimal() else -1 for part in parts[:2])
        if 2 <= bits <= LARGEST_BITS and 0 <= places <= MAX_SHIFT:
            return Rescaling("shift", bits, places, cast("Rounding", parts[2]))
    return Rescaling("gemmlowp") if kind == "gemmlowp" else FLOAT


class FloatCarriers:
    """A rewrite of a model, node by node in its order.

    A tensor exists as integers under its own name, as floats under its carrier's, or both:
    a Cast makes the missing form on demand.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._source = model
        self._nodes: list[onnx.NodeProto] = []
        self._initializers = {t.name: t for t in graph.initializer}
        self._added: list[onnx.TensorProto] = []
        self._values: dict[str, Array] = {}
        self._infos = {v.name: v for v in (*graph.value_info, *graph.output, *graph.input)}
        self._inferred = False
        self._stored: dict[str, IntegerRange] = {}
        self._carriers: dict[str, str] = {}
        self._shared: dict[float, str] = {}
        self._made = {v.name for v in graph.input} | set(self._initializers)
        self._made |= {t.values.name for t in graph.sparse_initializer}
        self._names = set(all_names(graph))
        noted = {entry.key: entry.value for entry in model.metadata_props}
        self.rescaling = _requantization(noted.get(REQUANTIZE_KEY, ""))
        for tensor in graph.initializer:
            self._declare(tensor.name, tensor.data_type)
        for info in graph.input:
            self._declare(info.name, info.type.tensor_type.elem_type)

    @property
    def opset(self) -> int:
        """Version of the standard operators."""
        imports = self._source.opset_import
        return max((o.version for o in imports if o.domain in ("", "ai.onnx")), default=1)

    def constant(self, name: str) -> Array | None:
        """Return the value of an initializer or of a Constant node; None for any other tensor."""
        if name not in self._values and name in self._initializers:
            self._values[name] = numpy_helper.to_array(self._initializers[name])
        return self._values.get(name)

    def dtype(self, name: str) -> int:
        """Return the element type as the model declares it; 0 where it does not."""
        info = self._infos.get(name)
        return int(info.type.tensor_type.elem_type) if info is not None else 0

    def rank(self, name: str) -> int | None:
        """Return the number of axes; None if even shape inference does not know it."""
        extents = self.extents(name)
        return None if extents is None else len(extents)

    def extents(self, name: str) -> tuple[int | None, ...] | None:
        """Return the extents, None for an unknown extent; None if the rank is unknown."""
        info = self._infos.get(name)
        if info is not None and info.type.tensor_type.HasField("shape"):
            dims = info.type.tensor_type.shape.dim
            return tuple(d.dim_value if d.HasField("dim_value") else None for d in dims)
        if self._inferred:
            return None
        self._inferred = True
        graph = onnx.shape_inference.infer_shapes(self._source).graph
        infos = (*graph.value_info, *graph.output)
        self._infos |= {i.name: i for i in infos if i.type.tensor_type.HasField("shape")}
        return self.extents(name)

    def stored(self, name: str) -> IntegerRange | None:
        """Return type and range of an 8-bit tensor; None for a tensor of another type."""
        stored, value = self._stored.get(name), self.constant(name)
        if stored is None or value is None or not value.size:
            return stored
        return IntegerRange(stored.dtype, int(value.min()), int(value.max()))

    def carrier(self, name: str) -> str:
        """Return the name of the float tensor that holds the integers of ``name``."""
        if name not in self._carriers:
            value = self.constant(name)
            if value is not None:
                self._carriers[name] = self.add(f"{name}/float", value.astype(np.float32))
            else:
                self._carriers[name] = self.fresh(f"{name}/float")
                self.emit("Cast", [name], [self._carriers[name]], to=TensorProto.FLOAT)
        return self._carriers[name]

    def new_carrier(self, name: str, stored: IntegerRange) -> str:
        """Return a name for the carrier of a tensor that is about to be made as floats."""
        self._stored[name] = stored
        self._carriers[name] = self.fresh(f"{name}/float")
        return self._carriers[name]

    def add(self, stem: str, values: Array) -> str:
        """Add an initializer; return its name."""
        name = self.fresh(stem)
        self._added.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def shared(self, value: np.float32) -> str:
        """Add a number that many nodes read as an initializer, once; return its name."""
        if value.item() not in self._shared:
            self._shared[value.item()] = self.add(f"simulator/{value:g}", np.asarray(value))
        return self._shared[value.item()]

    def fold(self, name: str, values: Array) -> None:
        """Make a tensor a constant."""
        self._added.append(numpy_helper.from_array(np.asarray(values), name))
        self._made.add(name)

    def emit(self, op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> None:
        """Append a standard node."""
        self.append(helper.make_node(op, inputs, outputs, **attrs))

    def step(self, op: str, inputs: list[str], stem: str, **attrs: Any) -> str:
        """Append a node with one new output; return its name."""
        name = self.fresh(stem)
        self.emit(op, inputs, [name], **attrs)
        return name

    def keep(self, node: onnx.NodeProto) -> None:
        """Append a node unchanged, behind Casts to integers of the 8-bit tensors that it reads."""
        for name in reads(node):
            self._store_integers(name)
        self.append(node)
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = node.attribute[0].t
            self._initializers[node.output[0]] = tensor
            self._declare(node.output[0], tensor.data_type)
        for name in node.output:
            self._declare(name, self.dtype(name))

    def append(self, node: onnx.NodeProto) -> None:
        """Append a node whose names are right."""
        self._nodes.append(node)
        self._made.update(node.output)

    def _declare(self, name: str, dtype: int) -> None:
        if dtype in EIGHT_BITS:
            self._stored.setdefault(name, full_range(dtype))

    def _store_integers(self, name: str) -> None:
        if name not in self._made and name in self._carriers:
            self.emit("Cast", [self._carriers[name]], [name], to=self._stored[name].dtype)

    def fresh(self, stem: str) -> str:
        """Return a name that the model does not have, made from ``stem``."""
        name, number = stem, 0
        while name in self._names:
            number += 1
            name = f"{stem}_{number}"
        self._names.add(name)
        return name

    def finish(self, watch: Iterable[str]) -> onnx.ModelProto:
        """Return the model with ``watch`` as further outputs."""
        outputs = [info.name for info in self._source.graph.output]
        extra = list(dict.fromkeys(name for name in watch if name not in outputs))
        for name in (*outputs, *extra):
            self._store_integers(name)
        model, source = onnx.ModelProto(), self._source
        model.ir_version, model.producer_name = source.ir_version, source.producer_name
        model.opset_import.extend(source.opset_import)
        model.functions.extend(source.functions)
        graph = model.graph
        graph.name = source.graph.name
        graph.input.extend(source.graph.input)
        graph.output.extend(source.graph.output)
        graph.sparse_initializer.extend(source.graph.sparse_initializer)
        graph.node.extend(self._nodes)
        read = {name for node in self._nodes for name in reads(node)}
        read |= {*outputs, *extra}
        tensors = (*source.graph.initializer, *self._added)
        graph.initializer.extend(t for t in tensors if t.name in read)
        graph.value_info.extend(v for v in source.graph.value_info if v.name in self._made)
        graph.output.extend(
            helper.make_empty_tensor_value_info(name) for name in extra if name in self._made
        )
        return model
