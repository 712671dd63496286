"""Regions side by side in one graph, so that one session runs them all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from npuconv.legalize.region import Region
from npuconv.model import query
from npuconv.model.proto import Types
from npuconv.model.types import Constant

_IR = 8


class Side:
    """Regions side by side in one graph, the names of each with a prefix."""

    def __init__(self) -> None:
        self.feeds: dict[str, np.ndarray] = {}
        self._proto = onnx.ModelProto(ir_version=_IR)
        self._graph = self._proto.graph
        self._graph.name = "regions"
        self._opset = 0
        self._domains: set[str] = set()
        self._made: set[str] = set()  # by nodes, and not yet an output
        self._types = Types()

    def add(self, region: Region, feeds: Mapping[str, np.ndarray], prefix: str) -> dict[str, str]:
        """Add a region; returns the names its outputs have here, by their own names."""
        self._opset = max(self._opset, region.opset)
        for name, tensor in region.constants.items():
            self._constant(tensor, prefix + name)
        for name in region.inputs:
            self._feed(prefix + name, feeds[name])
        for node in region.nodes:
            node.write(self._graph.node.add(), prefix)
            self._domains.add(node.domain)
            self._made.update([prefix + made for made in node.outputs])
        return {name: self._output(inside, prefix) for name, inside in region.outputs.items()}

    def _output(self, inside: str, prefix: str) -> str:
        """Make a tensor an output; what is one already, or is read, is passed on as another."""
        name = prefix + inside
        if name not in self._made:
            last = self._graph.node.add()
            last.op_type = "Identity"
            last.input.append(name)
            name = f"{prefix}out/{len(self._graph.output)}"
            last.output.append(name)
        self._made.discard(name)
        self._graph.output.add().name = name
        return name

    def _constant(self, tensor: Constant, name: str) -> None:
        array = query.value(tensor)
        assert array is not None
        # Weights are fed, not copied into the model; shapes and axes must be initializers.
        if array.ndim and array.dtype.kind == "f":
            self._feed(name, array)
        else:
            self._graph.initializer.append(onnx.numpy_helper.from_array(array, name))

    def _feed(self, name: str, array: np.ndarray) -> None:
        self.feeds[name] = array
        info = self._graph.input.add()
        info.name = name
        info.type.CopyFrom(self._types.proto(array.dtype, array.shape))

    def model(self) -> onnx.ModelProto:
        """All that was added as a model."""
        self._proto.opset_import.append(helper.make_opsetid("", self._opset))
        for domain in sorted(self._domains - query.STANDARD_DOMAINS):
            self._proto.opset_import.append(helper.make_opsetid(domain, 1))
        return self._proto
