"""A TFLite graph as plain values, and its bytes, by the schema of the package ``tflite``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuconv.errors import ModelError
from npuconv.records import dataclass, field

Array = NDArray[Any]


@dataclass(frozen=True)
class TensorScales:
    """Scales and zero points of a tensor."""

    scales: NDArray[np.float32]  # float32 [1], or [C]
    zeros: NDArray[np.int64]  # int64 [1], or [C]
    axis: int = 0  # axis of the channels

    @classmethod
    def from_scale(cls, scale: float | np.float32, zero: int) -> TensorScales:
        """Return one scale and zero point for a tensor."""
        return cls(np.full(1, scale, np.float32), np.full(1, zero, np.int64))

    @property
    def scale(self) -> np.float32:
        """The only scale of a tensor without scales per channel."""
        return np.float32(self.scales[0])

    @property
    def zero(self) -> int:
        """The only zero point of a tensor without scales per channel."""
        return int(self.zeros[0])

    def equals(self, scales: TensorScales) -> bool:
        """Return whether two tensors, each with a single scale, have equal scale and zero point."""
        return self.scale == scales.scale and self.zero == scales.zero


@dataclass
class Tensor:
    """A tensor."""

    name: str  # unique in the graph
    shape: tuple[int, ...]  # extents, in the order in which they are stored; may be ``OPEN``
    dtype: np.dtype[Any]
    values: Array | None = None  # values of a constant; None for an input or a result
    quantization: TensorScales | None = None


@dataclass(frozen=True)
class FileOperator:
    """An operator."""

    code: str  # name in ``BuiltinOperator``
    inputs: tuple[int, ...]  # numbers of tensors; -1 for a missing optional input
    outputs: tuple[int, ...]  # numbers of tensors
    table: str = ""  # name of its table of options; empty without options
    options: Mapping[str, Any] = field(default_factory=dict)  # fields of that table


@dataclass
class Graph:
    """Tensors, operators in the order they run in, inputs and outputs by number of tensor."""

    tensors: list[Tensor] = field(default_factory=list)
    operators: list[FileOperator] = field(default_factory=list)
    inputs: Sequence[int] = ()
    outputs: Sequence[int] = ()


OPEN = -1  # extent that is not known before the file runs
_IDENTIFIER = b"TFL3"
_VERSION = 3  # version of the schema
_MAX_BYTES = 2**31 - 1  # offsets of a flatbuffer are signed 32-bit numbers
_ALIGNMENT = 16  # bytes to which constants are aligned, as in TFLite's own converter

DTYPES = {
    "float32": "FLOAT32", "float16": "FLOAT16", "int8": "INT8", "uint8": "UINT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "bool": "BOOL",
}  # fmt: skip

# Version of an operator that first took int8 (tensorflow/lite/tools/versioning/op_version.cc).
_INT8_VERSIONS = {
    "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "MAX_POOL_2D": 2, "CONCATENATION": 2, "PAD": 2,
    "PADV2": 2, "TRANSPOSE": 2, "RELU": 2, "SLICE": 2, "STRIDED_SLICE": 2, "GATHER": 2,
    "MAXIMUM": 2, "MINIMUM": 2, "RESIZE_NEAREST_NEIGHBOR": 2, "DEQUANTIZE": 2, "SPLIT_V": 2,
    "SPACE_TO_DEPTH": 2, "ADD": 2, "SUB": 2, "MUL": 2, "AVERAGE_POOL_2D": 2, "MEAN": 2,
    "SOFTMAX": 2, "LOGISTIC": 2, "TANH": 2, "LEAKY_RELU": 2, "RESIZE_BILINEAR": 2,
    "BATCH_MATMUL": 2, "QUANTIZE": 2,
}  # fmt: skip
_FIRST_VERSIONS = {"BROADCAST_TO": 2}  # first version for which TFLite has a kernel


def to_bytes(graph: Graph, description: str, metadata: Mapping[str, str]) -> bytes:
    """Return a TFLite file; the same graph gives the same bytes.

    Args:
        graph: to write.
        description: one line for people.
        metadata: entries of the file, by name.

    Raises:
        ModelError: the file would exceed 2 GB.
    """
    size = sum(t.values.nbytes for t in graph.tensors if t.values is not None)
    if size > _MAX_BYTES - 2**20:
        raise ModelError(f"constants of {size} bytes: a TFLite file holds less than 2 GB")
    return _File(size).write(graph, description, metadata)


class _File:
    """A file being written, from its leaves to its root; ``size``: bytes of all constants."""

    def __init__(self, size: int) -> None:
        import flatbuffers
        import tflite

        self.buffers = [b""]  # the first is empty by contract
        self.numbers: dict[bytes, int] = {}
        self.schema: Any = tflite
        self.builder: Any = flatbuffers.Builder(size + 2**16)

    def write(self, graph: Graph, description: str, metadata: Mapping[str, str]) -> bytes:
        """Return the bytes of the whole file."""
        codes = list(dict.fromkeys(_code(graph, op) for op in graph.operators))
        tensors = [self._tensor(tensor) for tensor in graph.tensors]
        operators = [self._operator(op, codes.index(_code(graph, op))) for op in graph.operators]
        subgraph = self._table(
            "SubGraph",
            Tensors=self._offsets(tensors),
            Inputs=self._numbers(graph.inputs, np.int32),
            Outputs=self._numbers(graph.outputs, np.int32),
            Operators=self._offsets(operators),
            Name=self.builder.CreateString("main"),
        )
        entries = [
            self._table("Metadata", Name=self.builder.CreateString(k), Buffer=self._buffer(v))
            for k, v in metadata.items()
        ]
        model = self._table(
            "Model",
            Version=_VERSION,
            OperatorCodes=self._offsets([self._operator_code(*code) for code in codes]),
            Subgraphs=self._offsets([subgraph]),
            Description=self.builder.CreateString(description),
            Buffers=self._offsets([self._stored(data) for data in self.buffers]),
            Metadata=self._offsets(entries),
        )
        self.builder.Finish(model, _IDENTIFIER)
        return bytes(self.builder.Output())

    def _table(self, name: str, **fields: Any) -> int:
        """Write a table; vectors and strings in it have been written before."""
        getattr(self.schema, f"{name}Start")(self.builder)
        for key, value in fields.items():
            getattr(self.schema, f"{name}Add{key}")(self.builder, value)
        return int(getattr(self.schema, f"{name}End")(self.builder))

    def _offsets(self, offsets: Sequence[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def _numbers(self, values: Any, dtype: Any) -> int:
        return int(self.builder.CreateNumpyVector(np.asarray(values, dtype).reshape(-1)))

    def _buffer(self, data: bytes | str) -> int:
        """Return the number of the buffer with these bytes, which constants share."""
        raw = data.encode() if isinstance(data, str) else data
        if raw not in self.numbers:
            self.numbers[raw] = len(self.buffers)
            self.buffers.append(raw)
        return self.numbers[raw]

    def _stored(self, data: bytes) -> int:
        if not data:
            return self._table("Buffer")
        self.builder.StartVector(1, len(data), _ALIGNMENT)
        self.builder.head -= len(data)
        self.builder.Bytes[self.builder.head : self.builder.head + len(data)] = data
        return self._table("Buffer", Data=int(self.builder.EndVector()))

    def _tensor(self, tensor: Tensor) -> int:
        data = b"" if tensor.values is None else np.ascontiguousarray(tensor.values).tobytes()
        quantization = tensor.quantization
        fields = {
            "Shape": self._numbers([abs(n) for n in tensor.shape], np.int32),
            "Type": getattr(self.schema.TensorType, DTYPES[tensor.dtype.name]),
            "Buffer": 0 if tensor.values is None else self._buffer(data),
            "Name": self.builder.CreateString(tensor.name),
        }
        if OPEN in tensor.shape:
            fields["ShapeSignature"] = self._numbers(tensor.shape, np.int32)
        if quantization is not None:
            fields["Quantization"] = self._table(
                "QuantizationParameters",
                Scale=self._numbers(quantization.scales, np.float32),
                ZeroPoint=self._numbers(quantization.zeros, np.int64),
                QuantizedDimension=quantization.axis,
            )
        return self._table("Tensor", **fields)

    def _operator_code(self, name: str, version: int) -> int:
        code = getattr(self.schema.BuiltinOperator, name)
        placeholder = self.schema.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES
        return self._table(
            "OperatorCode",
            DeprecatedBuiltinCode=min(code, placeholder),
            Version=version,
            BuiltinCode=code,
        )

    def _operator(self, op: FileOperator, code: int) -> int:
        fields: dict[str, Any] = {
            "OpcodeIndex": code,
            "Inputs": self._numbers(op.inputs, np.int32),
            "Outputs": self._numbers(op.outputs, np.int32),
        }
        if op.table:
            options = {
                key: self._numbers(value, np.int32) if isinstance(value, tuple) else value
                for key, value in op.options.items()
            }
            fields["BuiltinOptionsType"] = getattr(self.schema.BuiltinOptions, op.table)
            fields["BuiltinOptions"] = self._table(op.table, **options)
        return self._table("Operator", **fields)


def _code(graph: Graph, op: FileOperator) -> tuple[str, int]:
    """Return name and version of an operator: int8 may need a later version."""
    dtype = graph.tensors[op.inputs[0]].dtype
    first = _FIRST_VERSIONS.get(op.code, 1)
    return op.code, _INT8_VERSIONS.get(op.code, first) if dtype == np.int8 else first


def enumerator(group: str, name: str) -> int:
    """Return the number of a name in an enumeration of the schema, such as ``Padding``."""
    import tflite

    return int(getattr(getattr(tflite, group), name))


def read_metadata(data: bytes) -> dict[str, str]:
    """Return the metadata of a TFLite file, by name.

    Args:
        data: a file whose offsets have been verified, as LiteRT does when it loads one.
    """
    import tflite

    model, metadata = tflite.Model.GetRootAs(data, 0), {}
    for entry in map(model.Metadata, range(model.MetadataLength())):
        name = entry.Name()
        if name is not None and entry.Buffer() < model.BuffersLength():
            buffer = model.Buffers(entry.Buffer())
            values = bytes(buffer.DataAsNumpy()) if buffer.DataLength() else b""
            metadata[name.decode(errors="replace")] = values.decode(errors="replace")
    return metadata
