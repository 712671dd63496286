"""The layers that have no sliding kernel, each with its forward and backward pass.

Tensors are float32 in the ONNX layout [batch, channel, row, column].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float32]
Pads: TypeAlias = tuple[int, int, int, int]  # top, left, bottom, right

PER_CHANNEL = (1, -1, 1, 1)
ALL_BUT_CHANNEL = (0, 2, 3)


def pad_image(x: Array, pads: Pads) -> Array:
    """Surround every image of ``x`` with zeros."""
    top, left, bottom, right = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))


def crop_image(x: Array, pads: Pads) -> Array:
    """Undo :func:`pad_image`."""
    top, left, bottom, right = pads
    return x[:, :, top : x.shape[2] - bottom, left : x.shape[3] - right]


def he_normal(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> Array:
    """Random weights that keep the variance of a rectified signal."""
    return np.asarray(rng.standard_normal(shape) * np.sqrt(2.0 / fan_in), np.float32)


@dataclass(eq=False)
class Layer:
    """A step of a sequential network.

    Args:
        name: the name of the exported node; empty for a node without one.
    """

    name: str
    weights: dict[str, Array] = field(default_factory=dict, init=False, repr=False)
    grads: dict[str, Array] = field(default_factory=dict, init=False, repr=False)

    def initialise(self, rng: np.random.Generator) -> None:
        """Draw the weights; most layers have none."""

    def forward(self, x: Array) -> Array:
        """The output for ``x``; remembers what ``backward`` needs."""
        raise NotImplementedError

    def learn(self, x: Array) -> Array:
        """``forward`` while training; most layers do the same then."""
        return self.forward(x)

    def backward(self, grad: Array) -> Array:
        """Fill ``grads`` and return the gradient of the input."""
        raise NotImplementedError


@dataclass(eq=False)
class Clip(Layer):
    """Limit values to ``low`` .. ``high``."""

    low: float = 0.0
    high: float = 6.0
    _inside: NDArray[np.bool_] = field(init=False, repr=False)

    def forward(self, x: Array) -> Array:
        """Clip every value."""
        self._inside = (x > self.low) & (x < self.high)
        return np.clip(x, self.low, self.high)

    def backward(self, grad: Array) -> Array:
        """Pass the gradient where the value was not clipped."""
        return grad * self._inside


@dataclass(eq=False)
class Relu(Clip):
    """Replace negative values by zero."""

    high: float = float("inf")


@dataclass(eq=False)
class Pad(Layer):
    """Surround the image with zeros, as a node of its own."""

    pads: Pads

    def forward(self, x: Array) -> Array:
        """Add the border."""
        return pad_image(x, self.pads)

    def backward(self, grad: Array) -> Array:
        """Drop the border."""
        return crop_image(grad, self.pads)


@dataclass(eq=False)
class MaxPool(Layer):
    """Maximum of tiles that do not overlap."""

    kernel: int
    _picked: Array = field(init=False, repr=False)

    def forward(self, x: Array) -> Array:
        """The largest value of every tile."""
        batch, channels, rows, columns = x.shape
        k = self.kernel
        tiles = x.reshape(batch, channels, rows // k, k, columns // k, k)
        best = tiles.max(axis=(3, 5), keepdims=True)
        picked = (tiles == best).astype(np.float32)
        self._picked = picked / picked.sum(axis=(3, 5), keepdims=True)
        return np.asarray(best[:, :, :, 0, :, 0])

    def backward(self, grad: Array) -> Array:
        """Send the gradient to the largest values; ties share it."""
        batch, channels, rows, columns = grad.shape
        spread = self._picked * grad[:, :, :, None, :, None]
        return spread.reshape(batch, channels, rows * self.kernel, columns * self.kernel)


@dataclass(eq=False)
class GlobalAveragePool(Layer):
    """Mean of each channel, as an image of one pixel."""

    _shape: tuple[int, ...] = field(init=False, repr=False)

    def forward(self, x: Array) -> Array:
        """Average the rows and columns."""
        self._shape = x.shape
        return np.asarray(x.mean(axis=(2, 3), keepdims=True))

    def backward(self, grad: Array) -> Array:
        """Give every pixel an equal share."""
        share = grad / (self._shape[2] * self._shape[3])
        return np.broadcast_to(share, self._shape)


@dataclass(eq=False)
class Flatten(Layer):
    """Layer that puts everything but the batch into one axis."""

    _shape: tuple[int, ...] = field(init=False, repr=False)

    def forward(self, x: Array) -> Array:
        """Reshape to [batch, values]."""
        self._shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, grad: Array) -> Array:
        """Reshape back."""
        return grad.reshape(self._shape)


@dataclass(eq=False)
class Gemm(Layer):
    """A fully connected layer."""

    inputs: int
    outputs: int
    _x: Array = field(init=False, repr=False)

    def initialise(self, rng: np.random.Generator) -> None:
        """Draw the weight [inputs, outputs] and a zero bias."""
        self.weights["weight"] = he_normal(rng, (self.inputs, self.outputs), self.inputs)
        self.weights["bias"] = np.zeros(self.outputs, np.float32)

    def forward(self, x: Array) -> Array:
        """``x @ weight + bias``."""
        self._x = x
        return np.asarray(x @ self.weights["weight"] + self.weights["bias"])

    def backward(self, grad: Array) -> Array:
        """Gradients of the weight, the bias and the input."""
        self.grads["weight"] = self._x.T @ grad
        self.grads["bias"] = grad.sum(axis=0)
        return np.asarray(grad @ self.weights["weight"].T)


@dataclass(eq=False)
class BatchNorm(Layer):
    """Normalise each channel; remembers running statistics for inference."""

    channels: int
    epsilon: float = 1e-5
    momentum: float = 0.9
    mean: Array = field(init=False, repr=False)
    variance: Array = field(init=False, repr=False)
    _normal: Array = field(init=False, repr=False)
    _inverse: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start as the identity."""
        self.weights = {
            "scale": np.ones(self.channels, np.float32),
            "shift": np.zeros(self.channels, np.float32),
        }
        self.mean = np.zeros(self.channels, np.float32)
        self.variance = np.ones(self.channels, np.float32)

    def forward(self, x: Array) -> Array:
        """Normalise by the running statistics."""
        return self._normalise(x, self.mean, self.variance)

    def learn(self, x: Array) -> Array:
        """Normalise by the statistics of the batch and remember them."""
        mean, variance = x.mean(axis=ALL_BUT_CHANNEL), x.var(axis=ALL_BUT_CHANNEL)
        self.mean = self.momentum * self.mean + (1 - self.momentum) * mean
        self.variance = self.momentum * self.variance + (1 - self.momentum) * variance
        return self._normalise(x, mean, variance)

    def _normalise(self, x: Array, mean: Array, variance: Array) -> Array:
        deviation = np.sqrt(variance + self.epsilon)
        self._inverse = np.asarray(1 / deviation, np.float32).reshape(PER_CHANNEL)
        self._normal = (x - mean.reshape(PER_CHANNEL)) * self._inverse
        scale = self.weights["scale"].reshape(PER_CHANNEL)
        return self._normal * scale + self.weights["shift"].reshape(PER_CHANNEL)

    def backward(self, grad: Array) -> Array:
        """Gradients through the statistics of the batch."""
        self.grads["shift"] = grad.sum(axis=ALL_BUT_CHANNEL)
        self.grads["scale"] = (grad * self._normal).sum(axis=ALL_BUT_CHANNEL)
        count = grad.size // self.channels
        centred = grad - self.grads["shift"].reshape(PER_CHANNEL) / count
        centred = centred - self._normal * self.grads["scale"].reshape(PER_CHANNEL) / count
        slope = self._inverse * self.weights["scale"].reshape(PER_CHANNEL)
        return np.asarray(centred * slope, np.float32)
