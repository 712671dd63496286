"""Models with a channel that causes most of the noise."""

from __future__ import annotations

import numpy as np
import onnx

from support.builders import Net

CHANNELS, LOUD = 32, 5
X = ("N", 3, 12, 12)


def loud(between: str = "Relu", x: tuple[int | str, ...] = X) -> onnx.ModelProto:
    """Two convolutions; the outputs depend mostly on channel ``LOUD`` of the 32 between them.

    Args:
        between: operator between them; the device runs a Relu, the host other operators.
        x: shape of the input.
    """
    rng, net = np.random.default_rng(7), Net(x=x)
    first, second = (
        rng.standard_normal((CHANNELS, 3, 3, 3)),
        rng.standard_normal((4, CHANNELS, 3, 3)),
    )
    first[LOUD] *= 6
    second[:, LOUD] *= 6
    net.op("Conv", "x", net.constant(first), name="first", pads=[1] * 4, to="made")
    net.op(between, to="followed")
    net.op("Conv", "followed", net.constant(second), name="mixed", pads=[1] * 4)
    return net.model()


def inverted(x: tuple[int | str, ...] = X, pads: tuple[int, ...] = (1,) * 4) -> onnx.ModelProto:
    """Build an inverted bottleneck of MobileNet; the outputs depend mostly on channel ``LOUD``."""
    rng, net = np.random.default_rng(5), Net(x=x)
    weight, offset = rng.standard_normal((8, 3, 3, 3)), rng.uniform(0, 1, 8)
    weight[LOUD] *= 4
    net.op("Conv", "x", net.constant(weight), net.constant(offset), name="first")
    net.op("Clip", net.last, net.constant(np.float32(0)), net.constant(np.float32(24)), to="made")
    deep, bias = net.constant(rng.standard_normal((8, 1, 3, 3))), net.constant(rng.uniform(0, 1, 8))
    net.op("Conv", "made", deep, bias, name="deep", group=8, pads=pads).op("Relu", to="followed")
    mixing = rng.standard_normal((4, 8, 1, 1))
    mixing[:, LOUD] *= 4
    return net.op("Conv", "followed", net.constant(mixing), name="mixed").model()


def pictures(count: int = 32) -> np.ndarray:
    """Eight grey levels: float32 [count, 3, 12, 12], stored without loss."""
    levels = np.random.default_rng(3).integers(-4, 4, (count, 3, 12, 12))
    return levels.astype(np.float32)
