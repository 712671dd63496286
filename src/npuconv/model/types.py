"""Names for graph-surgeon's classes; nothing outside ``model`` imports the library."""

from __future__ import annotations

from typing import TypeAlias

import onnx_graphsurgeon as gs
from onnx_graphsurgeon.logger import G_LOGGER

# Its logger prints to stdout, where results go; what matters we raise ourselves.
G_LOGGER.severity = G_LOGGER.CRITICAL + 1

Node: TypeAlias = gs.Node
Tensor: TypeAlias = gs.Tensor
Variable: TypeAlias = gs.Variable
Constant: TypeAlias = gs.Constant
Graph: TypeAlias = gs.Graph
