"""Annotations: facts that float passes find out and quantization needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from npuconv.legalize.source_scales import SourceScales
from npuconv.model.conv import Window, window
from npuconv.model.types import Node

if TYPE_CHECKING:
    import numpy as np

    from npuconv.legalize.fitting.builder import BiasChannels, Fragment
    from npuconv.model.partial_sums import Part

    Expected = tuple[np.ndarray, np.ndarray]  # mean and standard deviation of every channel


@dataclass(frozen=True)
class Splits:
    """Convolutions that are written in several, by node.

    Attributes:
        fragments: convolutions that have weights of one that was fitted.
        bias_channels: convolutions whose bias is made of constant input channels.
        parts: parts in which the device runs a convolution, adding them in int32.
    """

    fragments: Mapping[str, Fragment] = field(default_factory=dict)
    bias_channels: Mapping[str, BiasChannels] = field(default_factory=dict)
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)

    def windows(self, conv: Node) -> list[Window]:
        """Return the windows that the device runs for a Conv: its own, or those of its parts."""
        win, parts = window(conv), self.parts.get(conv.name, ())
        if win is None:
            return []
        channels = self.bias_channels.get(conv.name)
        if channels is not None:
            return [_wider(win, channels.count)]
        return [part.window(win) for part in parts] or [win]


def _wider(win: Window, count: int) -> Window:
    """Return a dense convolution with more input channels."""
    if win.weight is None or win.input is None:
        return win
    outputs, inputs, *kernel = win.weight
    dims = (win.input[0], inputs + count, *win.input[2:])
    return replace(win, weight=(outputs, inputs + count, *kernel), input=dims)


@dataclass(frozen=True)
class Annotations:
    """Facts about tensors and layers of a model; passes that add to them return new ones.

    Attributes:
        expected: mean and standard deviation of a tensor's channels in training, by tensor.
        source_scales: of a model that was quantized before.
        splits: convolutions that are written in several.
    """

    expected: Mapping[str, Expected] = field(default_factory=dict)
    source_scales: SourceScales = field(default_factory=SourceScales)
    splits: Splits = field(default_factory=Splits)
