"""Classes of graph-surgeon, for code that constructs graphs, nodes or tensors."""

from __future__ import annotations

from onnx_graphsurgeon import Constant, Graph, Node, Tensor, Variable
from onnx_graphsurgeon.logger import G_LOGGER

__all__ = ["Constant", "Graph", "Node", "Tensor", "Variable"]

# Its logger prints to stdout, where results go; npuconv raises the errors that matter.
G_LOGGER.severity = G_LOGGER.CRITICAL + 1
