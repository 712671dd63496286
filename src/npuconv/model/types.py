"""Names for graph-surgeon's classes, which have no type hints. Imports nothing: rules load fast."""

from typing import Any, TypeAlias

Node: TypeAlias = Any
Tensor: TypeAlias = Any
Graph: TypeAlias = Any
