"""TFLite files on LiteRT's reference kernels, which compute the integers of the device."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Annotated, Any

import numpy as np
import onnx
from onnx import helper

from npuconv import executor
from npuconv.emit.tflite.translate import ENDS, STORED
from npuconv.errors import ModelError, UsageError
from npuconv.records import dataclass
from npuconv.tflite import flatbuffer
from npuconv.validated import Bounded, read_entries

_MAX_RANK = 8  # largest rank of a tensor of TFLite
_Index = Annotated[int, Bounded(ge=0)]
_Order = Annotated[list[_Index], Bounded(max_length=_MAX_RANK)]
_PURPOSE = "verify of a TFLite file"


@dataclass(frozen=True)
class _FileTensor:
    """A tensor of the file that is also in the ONNX model."""

    name: str  # name in the ONNX model
    detail: Mapping[str, Any]  # index, dtype and shape in the file, as LiteRT describes them
    order: Sequence[int]  # axis k of the stored tensor is axis ``order[k]`` of the ONNX tensor

    def info(self) -> onnx.ValueInfoProto:
        """Return name, type and shape as ONNX has them."""
        shape = [int(self.detail["shape"][axis]) for axis in np.argsort(self.order)]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.detail["dtype"]))
        return helper.make_tensor_value_info(self.name, kind, shape)


class TfliteSession:
    """A TFLite file that npuconv wrote, loaded into LiteRT.

    ``proto`` has inputs, outputs and metadata of the file as an ONNX model, whose one node stands
    for all operators and makes the tensors of the layers, too.

    Raises:
        UsageError: LiteRT is not installed.
        ModelError: a file that LiteRT does not load, or that npuconv did not write.
    """

    def __init__(self, data: bytes, name: str) -> None:
        try:
            runtime = importlib.import_module("ai_edge_litert.interpreter")
        except ImportError:
            raise UsageError(
                f"{_PURPOSE}: LiteRT (ai-edge-litert) is not installed",
                hint="pip install 'npuconv[litert]'; or verify the ONNX model that "
                "convert -o NAME.onnx writes, which has the same integers",
            ) from None
        self._name, self._lock = name, Lock()
        try:
            self._interpreter = runtime.Interpreter(
                model_content=data,
                num_threads=1,
                experimental_preserve_all_tensors=True,  # those of layers are read
                experimental_op_resolver_type=runtime.OpResolverType.BUILTIN_REF,
            )
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise ModelError(
                f"{name}: LiteRT does not load it: {executor.first_line(error)}"
            ) from None
        metadata = flatbuffer.read_metadata(data)
        details = [*self._interpreter.get_input_details(), *self._interpreter.get_output_details()]
        interface = _interface_tensors(metadata.get(ENDS, ""), details, name)
        count = len(self._interpreter.get_input_details())
        self._inputs, self._outputs = interface[:count], interface[count:]
        layers = _layer_tensors(metadata.get(STORED, "[]"), self._interpreter.get_tensor_details())
        names = {tensor.name for tensor in interface}
        self._outputs += [tensor for tensor in layers if tensor.name not in names]
        inputs, outputs = ([t.name for t in tensors] for tensors in (self._inputs, self._outputs))
        infos = [tensor.info() for tensor in interface]
        node = helper.make_node("TFLite", inputs, outputs, domain="npuconv")
        graph = helper.make_graph([node], name, infos[:count], infos[count:])
        self.proto = helper.make_model(graph)
        helper.set_model_props(self.proto, metadata)

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str], _draw: int = 0
    ) -> dict[str, np.ndarray]:
        """Run once; arrays have their axes in the order of ONNX.

        Raises:
            ModelError: LiteRT fails on these inputs.
        """
        with self._lock:  # samples run beside each other, an interpreter holds one
            try:
                for end, values in zip(self._inputs, self.stored(feeds).values(), strict=True):
                    self._interpreter.set_tensor(end.detail["index"], values)
                self._interpreter.invoke()
            except (ValueError, RuntimeError) as error:
                raise ModelError(
                    f"{self._name}: LiteRT does not run it: {executor.first_line(error)}"
                ) from None
            tensors = [end for end in self._outputs if end.name in outputs]
            numbers = {end.name: end.detail["index"] for end in tensors}
            return self.restored({n: self._interpreter.get_tensor(k) for n, k in numbers.items()})

    def stored(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return inputs with the types and the order of axes of the file, in its order."""
        arrays = ((end, np.asarray(feeds[end.name], end.detail["dtype"])) for end in self._inputs)
        return {e.name: np.ascontiguousarray(a.transpose(e.order)) for e, a in arrays}

    def restored(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return outputs with their axes in the order of ONNX."""
        orders = {end.name: np.argsort(end.order) for end in self._outputs}
        return {name: array.transpose(orders[name]) for name, array in values.items()}


def _interface_tensors(
    record: str, details: Sequence[Mapping[str, Any]], name: str
) -> list[_FileTensor]:
    """Return inputs and outputs with the names and orders that are recorded.

    Raises:
        ModelError: nothing is recorded, or it does not fit.
    """
    entries = read_entries(tuple[str, _Order], record)
    fits = [sorted(order) for _, order in entries] == [[*range(len(d["shape"]))] for d in details]
    if not fits:
        raise ModelError(
            f"{name}: does not say which of its axes are which of the ONNX model",
            hint="npuconv writes that into its files: convert the model again",
        )
    return [
        _FileTensor(label, detail, order)
        for (label, order), detail in zip(entries, details, strict=True)
    ]


def _layer_tensors(record: str, details: Sequence[Mapping[str, Any]]) -> list[_FileTensor]:
    """Return the recorded tensors of layers; an empty result if the record does not fit."""
    by_number = {detail["index"]: detail for detail in details}
    tensors = []
    for label, order, number in read_entries(tuple[str, _Order, _Index], record):
        if number not in by_number or sorted(order) != [*range(len(by_number[number]["shape"]))]:
            return []
        tensors.append(_FileTensor(label, by_number[number], order))
    return tensors
