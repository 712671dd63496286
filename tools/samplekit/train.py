"""Losses, the Adam optimiser and the training loop."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from samplekit.conv import Conv
from samplekit.layers import Array, BatchNorm, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Loss: TypeAlias = "Callable[[Array, NDArray[Any]], tuple[float, Array]]"


LABEL_SMOOTHING = 0.1  # keeps the logits small


def cross_entropy(logits: Array, labels: NDArray[Any]) -> tuple[float, Array]:
    """Mean softmax cross entropy with smoothed integer labels, and its gradient."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_chance = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    targets = np.full_like(logits, LABEL_SMOOTHING / logits.shape[1])
    targets[np.arange(len(labels)), labels] += 1 - LABEL_SMOOTHING
    loss = float(-(targets * log_chance).sum(axis=1).mean())
    return loss, (np.exp(log_chance) - targets) / len(labels)


def squared_error(output: Array, target: NDArray[Any]) -> tuple[float, Array]:
    """Mean squared error and its gradient."""
    difference = output - target
    return float(np.square(difference).mean()), 2 * difference / difference.size


def initialise(layers: Sequence[Layer], seed: int) -> None:
    """Draw the weights of every layer from one seed."""
    rng = np.random.default_rng(seed)
    for layer in layers:
        layer.initialise(rng)


def predict(layers: Sequence[Layer], x: Array) -> Array:
    """The output of the network as it will be exported."""
    for layer in layers:
        x = layer.forward(x)
    return x


class Adam:
    """Adam with decoupled weight decay on the kernels.

    Args:
        layers: whose weights to move.
        decay: the share of a kernel to remove per unit of step size.
    """

    def __init__(self, layers: Sequence[Layer], decay: float = 0.01) -> None:
        """Start with no momentum."""
        self._slots = [(layer, name) for layer in layers for name in layer.weights]
        shapes = [layer.weights[name].shape for layer, name in self._slots]
        self._first = [np.zeros(shape, np.float32) for shape in shapes]
        self._second = [np.zeros(shape, np.float32) for shape in shapes]
        self._decay = decay
        self._time = 0

    def step(self, rate: float) -> None:
        """Move every weight once, with the step size ``rate``."""
        self._time += 1
        scale = rate * math.sqrt(1 - 0.999**self._time) / (1 - 0.9**self._time)
        for (layer, name), first, second in zip(
            self._slots, self._first, self._second, strict=True
        ):
            grad, weight = layer.grads[name], layer.weights[name]
            first += 0.1 * (grad - first)
            second += 0.001 * (np.square(grad) - second)
            if name == "weight":
                weight *= 1 - rate * self._decay
            weight -= scale * first / (np.sqrt(second) + 1e-8)


def fit(
    layers: Sequence[Layer],
    loss: Loss,
    data: tuple[Array, NDArray[Any]],
    *,
    epochs: int,
    seed: int,
    progress: Callable[[int, float], None],
    batch: int = 64,
    rate: float = 3e-3,
) -> None:
    """Train in place, with a step size that falls along a cosine.

    Args:
        layers: the network, initialised.
        loss: the loss and its gradient for one batch.
        data: inputs and targets.
        epochs: passes over the data.
        seed: seed of the order of the batches.
        progress: called with the epoch and its mean loss.
        batch: images per step.
        rate: the first step size.
    """
    inputs, targets = data
    rng, adam = np.random.default_rng(seed), Adam(layers)
    for epoch in range(epochs):
        order = rng.permutation(len(inputs))
        starts = range(0, len(order) - batch + 1, batch)
        step_size = rate * (1 + math.cos(math.pi * epoch / epochs)) / 2
        losses = []
        for start in starts:
            numbers = order[start : start + batch]
            losses.append(_learn(layers, loss, inputs[numbers], targets[numbers]))
            adam.step(step_size)
        progress(epoch + 1, sum(losses) / len(losses))


def fold_batch_norms(layers: Sequence[Layer]) -> list[Layer]:
    """The trained network with each BatchNorm merged into the Conv before it."""
    folded: list[Layer] = []
    for layer in layers:
        if isinstance(layer, BatchNorm) and folded and isinstance(folded[-1], Conv):
            _merge(folded[-1], layer)
        else:
            folded.append(layer)
    return folded


def _merge(conv: Conv, norm: BatchNorm) -> None:
    factor = norm.weights["scale"] / np.sqrt(norm.variance + norm.epsilon)
    bias = conv.weights.get("bias", np.zeros(conv.outputs, np.float32))
    conv.weights["weight"] = conv.weights["weight"] * factor.reshape(-1, 1, 1, 1)
    conv.weights["bias"] = (bias - norm.mean) * factor + norm.weights["shift"]


def _learn(layers: Sequence[Layer], loss: Loss, x: Array, target: NDArray[Any]) -> float:
    for layer in layers:
        x = layer.learn(x)
    value, grad = loss(x, target)
    for layer in reversed(layers):
        grad = layer.backward(grad)
    return value
