"""Models one of whose channels makes most of the noise."""

from __future__ import annotations

import numpy as np
import onnx

from builders import Net

CHANNELS, LOUD = 32, 5
X = ("N", 3, 12, 12)


def loud(between: str = "Relu", x: tuple[int | str, ...] = X) -> onnx.ModelProto:
    """Two convolutions; what one of 32 channels says between them counts most.

    Args:
        between: the operator there: after a Relu the device goes on, after another the host.
        x: shape of the input.
    """
    rng, net = np.random.default_rng(7), Net(x=x)
    made, read = rng.standard_normal((CHANNELS, 3, 3, 3)), rng.standard_normal((4, CHANNELS, 3, 3))
    made[LOUD] *= 6
    read[:, LOUD] *= 6
    net.op("Conv", "x", net.constant(made), name="first", pads=[1] * 4, to="made")
    net.op(between, to="followed")
    net.op("Conv", "followed", net.constant(read), name="mixed", pads=[1] * 4)
    return net.model()


def pictures(count: int = 32) -> np.ndarray:
    """Eight grey levels: float32 [count, 3, 12, 12], stored without loss."""
    levels = np.random.default_rng(3).integers(-4, 4, (count, 3, 12, 12))
    return levels.astype(np.float32)
