"""Convolution and its transpose, as matrix products over unfolded windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from samplekit.layers import Array, Layer, Pads, crop_image, he_normal, pad_image

AutoPad = Literal["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]


def to_rows(x: Array, group: int) -> Array:
    """[N, C, H, W] as [group, N * H * W, C / group]."""
    batch, channels, rows, columns = x.shape
    split = x.reshape(batch, group, channels // group, rows, columns)
    return split.transpose(1, 0, 3, 4, 2).reshape(group, batch * rows * columns, -1)


def from_rows(rows: Array, batch: int, size: int) -> Array:
    """Undo :func:`to_rows` for square images."""
    split = rows.reshape(len(rows), batch, size, size, -1).transpose(1, 0, 4, 2, 3)
    return split.reshape(batch, -1, size, size)


@dataclass(frozen=True)
class Window:
    """A square window that slides over an image."""

    kernel: int
    stride: int = 1
    dilation: int = 1

    @property
    def span(self) -> int:
        """Number of pixels that the window covers in one direction."""
        return (self.kernel - 1) * self.dilation + 1

    def count(self, size: int) -> int:
        """Return the number of positions that fit into ``size`` pixels."""
        return (size - self.span) // self.stride + 1

    def same_pads(self, size: int, *, lower: bool) -> Pads:
        """The padding of ONNX ``SAME_UPPER`` or ``SAME_LOWER`` for ``size`` pixels."""
        positions = -(-size // self.stride)
        total = max((positions - 1) * self.stride + self.span - size, 0)
        before = total - total // 2 if lower else total // 2
        return before, before, total - before, total - before

    def unfold(self, x: Array, group: int) -> Array:
        """The pixels under every position: [group, N * positions, C / group * kernel^2]."""
        views = np.lib.stride_tricks.sliding_window_view(x, (self.span, self.span), axis=(2, 3))
        step, hole = self.stride, self.dilation
        views = views[:, :, ::step, ::step, ::hole, ::hole]
        batch, channels, rows, columns = views.shape[:4]
        split = views.reshape(batch, group, channels // group, rows, columns, *views.shape[4:])
        return split.transpose(1, 0, 3, 4, 2, 5, 6).reshape(group, batch * rows * columns, -1)

    def fold(self, cols: Array, shape: tuple[int, int, int, int]) -> Array:
        """Add unfolded values back onto an image of ``shape``; the transpose of ``unfold``."""
        batch, channels, height, _ = shape
        n, k, group = self.count(height), self.kernel, len(cols)
        split = cols.reshape(group, batch, n, n, channels // group, k, k)
        taps = split.transpose(5, 6, 1, 0, 4, 2, 3).reshape(k, k, batch, channels, n, n)
        image = np.zeros(shape, np.float32)
        end = (n - 1) * self.stride + 1
        for row, column in np.ndindex(k, k):
            top, left = row * self.dilation, column * self.dilation
            target = image[:, :, top : top + end : self.stride, left : left + end : self.stride]
            target += taps[row, column]
        return image


@dataclass(eq=False)
class Conv(Layer):
    """A convolution on square images.

    Args:
        terse: export only the attributes that ONNX cannot infer, as old exporters did.
    """

    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    pads: Pads = (0, 0, 0, 0)
    auto_pad: AutoPad = "NOTSET"
    dilation: int = 1
    group: int = 1
    bias: bool = True
    terse: bool = False
    _used_pads: Pads = field(init=False, repr=False)
    _cols: Array = field(init=False, repr=False)
    _shape: tuple[int, int, int, int] = field(init=False, repr=False)

    @property
    def window(self) -> Window:
        """The geometry of the kernel."""
        return Window(self.kernel, self.stride, self.dilation)

    def initialise(self, rng: np.random.Generator) -> None:
        """Draw the weight [outputs, inputs / group, kernel, kernel] and a zero bias."""
        shape = (self.outputs, self.inputs // self.group, self.kernel, self.kernel)
        self.weights["weight"] = he_normal(rng, shape, int(np.prod(shape[1:])))
        if self.bias:
            self.weights["bias"] = np.zeros(self.outputs, np.float32)

    def forward(self, x: Array) -> Array:
        """Unfold, multiply by the kernels, add the bias."""
        self._used_pads = self._pads_for(x.shape[2])
        padded = pad_image(x, self._used_pads)
        batch, channels, size, _ = padded.shape
        self._shape = (batch, channels, size, size)
        self._cols = self.window.unfold(padded, self.group)
        y = from_rows(self._cols @ self._matrix(), batch, self.window.count(size))
        return y + self.weights["bias"].reshape(1, -1, 1, 1) if "bias" in self.weights else y

    def backward(self, grad: Array) -> Array:
        """Gradients of the kernels, the bias and the input."""
        rows = to_rows(grad, self.group)
        weight = self._cols.transpose(0, 2, 1) @ rows
        self.grads["weight"] = weight.transpose(0, 2, 1).reshape(self.weights["weight"].shape)
        if "bias" in self.weights:
            self.grads["bias"] = grad.sum(axis=(0, 2, 3))
        cols = rows @ self._matrix().transpose(0, 2, 1)
        return crop_image(self.window.fold(cols, self._shape), self._used_pads)

    def _matrix(self) -> Array:
        weight = self.weights["weight"]
        return weight.reshape(self.group, self.outputs // self.group, -1).transpose(0, 2, 1)

    def _pads_for(self, size: int) -> Pads:
        if self.auto_pad.startswith("SAME"):
            return self.window.same_pads(size, lower=self.auto_pad == "SAME_LOWER")
        return self.pads


@dataclass(eq=False)
class ConvTranspose(Layer):
    """A transposed convolution on square images; upscales by its stride."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    pads: Pads
    output_padding: int = 0
    _x: Array = field(init=False, repr=False)

    @property
    def window(self) -> Window:
        """The geometry of the kernel."""
        return Window(self.kernel, self.stride)

    def initialise(self, rng: np.random.Generator) -> None:
        """Draw the weight [inputs, outputs, kernel, kernel] and a zero bias."""
        shape = (self.inputs, self.outputs, self.kernel, self.kernel)
        fan_in = max(self.inputs * self.kernel**2 // self.stride**2, 1)
        self.weights["weight"] = he_normal(rng, shape, fan_in)
        self.weights["bias"] = np.zeros(self.outputs, np.float32)

    def forward(self, x: Array) -> Array:
        """Spread every pixel by the kernel, crop, add the bias."""
        self._x = x
        size = (x.shape[2] - 1) * self.stride + self.kernel + self.output_padding
        cols = to_rows(x, 1) @ self.weights["weight"].reshape(self.inputs, -1)
        full = self.window.fold(cols, (len(x), self.outputs, size, size))
        return crop_image(full, self.pads) + self.weights["bias"].reshape(1, -1, 1, 1)

    def backward(self, grad: Array) -> Array:
        """Gradients of the kernels, the bias and the input."""
        cols = self.window.unfold(pad_image(grad, self.pads), 1)[0]
        weight = self.weights["weight"]
        self.grads["weight"] = (to_rows(self._x, 1)[0].T @ cols).reshape(weight.shape)
        self.grads["bias"] = grad.sum(axis=(0, 2, 3))
        rows = cols @ weight.reshape(self.inputs, -1).T
        return from_rows(rows[None], len(grad), self._x.shape[2])
