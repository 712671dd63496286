"""One exact form of a layer, as a rewrite proposes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npuconv.legalize.fitting.builder import Builder, Piece
    from npuconv.legalize.fitting.layer import Layer
    from npuconv.legalize.fitting.limits import Demand
    from npuconv.legalize.fitting.settings import FitSettings
    from npuconv.model.types import Tensor

    Emit = Callable[[Piece], Tensor]
    Build = Callable[[Builder, Piece, Emit], Tensor]
    # A rewrite: proposes forms of a layer that breaks limits, the most promising first.
    Split = Callable[[Layer, Demand, FitSettings], Iterator["Proposal"]]


@dataclass(frozen=True)
class Part:
    """Layers of one kind in a proposal."""

    layer: Layer
    count: int = 1
    weights: int = 1  # different weights among them: tiles share theirs


@dataclass(frozen=True)
class Proposal:
    """A layer as other layers, with what must be written around them.

    Attributes:
        split: name of the rewrite.
        text: for people, as ``2x2 tiles of 16x16``.
        parts: the layers it is made of.
        build: writes it; gets the layer as it is, and what builds a part.
        moved: elements that are sliced, padded, reordered or concatenated.
        summed: partial sums that are added; 0 where the form is exact in int8 too.
    """

    split: str
    text: str
    parts: tuple[Part, ...]
    build: Build
    moved: int = 0
    summed: int = 0
