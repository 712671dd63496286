"""TFLite files on LiteRT's reference kernels, which compute the integers of the device."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Annotated, Any

import numpy as np
import onnx
from onnx import helper
from pydantic import Field, TypeAdapter, ValidationError

from npuconv.emit.tflite import flatbuffer
from npuconv.emit.tflite.translate import ENDS, STORED
from npuconv.errors import ModelError, UsageError

_MAX_RANK = 8  # of a tensor of TFLite
_Order = Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=_MAX_RANK)]
_RECORD = TypeAdapter(list[tuple[str, _Order]])
_STORED = TypeAdapter(list[tuple[str, _Order, Annotated[int, Field(ge=0)]]])
_PURPOSE = "verify of a TFLite file"


@dataclass(frozen=True)
class _Held:
    """A tensor of the file that the ONNX model has as well."""

    name: str  # in the ONNX model
    number: int  # of its tensor in the file
    dtype: Any
    shape: tuple[int, ...]  # as it is stored
    order: tuple[int, ...]  # axis k of what is stored is axis ``order[k]`` of the ONNX tensor

    def info(self) -> onnx.ValueInfoProto:
        """Return name, type and shape as ONNX has them."""
        shape = [self.shape[self.order.index(axis)] for axis in range(len(self.order))]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
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
            raise ModelError(f"{name}: LiteRT does not load it: {_line(error)}") from None
        metadata = flatbuffer.read_metadata(data)
        details = [*self._interpreter.get_input_details(), *self._interpreter.get_output_details()]
        ends = _ends(metadata.get(ENDS, ""), details, name)
        count = len(self._interpreter.get_input_details())
        self._inputs, self._outputs = ends[:count], ends[count:]
        held = _stored(metadata.get(STORED, "[]"), self._interpreter.get_tensor_details())
        taken = {end.name for end in ends}
        self._outputs += [one for one in held if one.name not in taken]
        reads, makes = ([one.name for one in some] for some in (self._inputs, self._outputs))
        given, made = ([end.info() for end in some] for some in (ends[:count], ends[count:]))
        whole = helper.make_node("TFLite", reads, makes, domain="npuconv")
        self.proto = helper.make_model(helper.make_graph([whole], name, given, made))
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
                for end in self._inputs:
                    values = np.asarray(feeds[end.name], end.dtype).transpose(end.order)
                    self._interpreter.set_tensor(end.number, np.ascontiguousarray(values))
                self._interpreter.invoke()
            except (ValueError, RuntimeError) as error:
                raise ModelError(f"{self._name}: LiteRT does not run it: {_line(error)}") from None
            return {
                end.name: self._interpreter.get_tensor(end.number).transpose(np.argsort(end.order))
                for end in self._outputs
                if end.name in outputs
            }


def _ends(record: str, details: Sequence[Mapping[str, Any]], name: str) -> list[_Held]:
    """Return inputs and outputs with the names and orders that are recorded.

    Raises:
        ModelError: nothing is recorded, or it does not fit.
    """
    try:
        entries = _RECORD.validate_json(record)
    except ValidationError:
        entries = []
    fits = [sorted(order) for _, order in entries] == [[*range(len(d["shape"]))] for d in details]
    if not fits:
        raise ModelError(
            f"{name}: does not say which of its axes are which of the ONNX model",
            hint="npuconv writes that into its files: convert the model again",
        )
    return [
        _Held(label, one["index"], one["dtype"], tuple(map(int, one["shape"])), tuple(order))
        for (label, order), one in zip(entries, details, strict=True)
    ]


def _stored(record: str, details: Sequence[Mapping[str, Any]]) -> list[_Held]:
    """Return the tensors of layers that are recorded; none where the record does not fit."""
    known = {one["index"]: one for one in details}
    try:
        entries = _STORED.validate_json(record)
    except ValidationError:
        return []
    if any(
        number not in known or sorted(order) != [*range(len(known[number]["shape"]))]
        for _, order, number in entries
    ):
        return []
    return [
        _Held(label, number, one["dtype"], tuple(map(int, one["shape"])), tuple(order))
        for label, order, number in entries
        for one in [known[number]]
    ]


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
