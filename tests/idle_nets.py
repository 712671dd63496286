"""Models some of whose channels say nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from builders import Net

CHANNELS = 8
IDLE = (1, 4, 6)
LOUD = 3  # its steps are the largest, and what reads it makes them larger still


def inverted(
    idle: Sequence[int] = IDLE,
    bias: float = -1.0,
    pads: Sequence[int] = (1, 1, 1, 1),
    x: tuple[int | str, ...] = ("N", 3, 12, 12),
) -> onnx.ModelProto:
    """As in MobileNet: channels made, followed one by one, and mixed.

    Args:
        idle: channels whose weights are nothing.
        bias: of these.
        pads: of the convolution that follows channels one by one.
        x: shape of the input.
    """
    rng, net = np.random.default_rng(5), Net(x=x)
    weight = rng.standard_normal((CHANNELS, 3, 3, 3))
    offset = rng.uniform(0, 1, CHANNELS)
    weight[LOUD] *= 4
    weight[list(idle)], offset[list(idle)] = 1e-20, bias
    net.op("Conv", "x", net.constant(weight), net.constant(offset), name="first")
    net.op("Clip", net.last, net.constant(np.float32(0)), net.constant(np.float32(24)), to="made")
    deep = net.constant(rng.standard_normal((CHANNELS, 1, 3, 3)))
    own = net.constant(rng.uniform(0, 1, CHANNELS))
    net.op("Conv", "made", deep, own, name="deep", group=CHANNELS, pads=list(pads))
    net.op("Relu", to="followed")
    mixing = rng.standard_normal((4, CHANNELS, 1, 1))
    mixing[:, LOUD] *= 4
    return net.op("Conv", "followed", net.constant(mixing), name="mixed").model()


def pictures(count: int = 32) -> np.ndarray:
    """Noise: float32 [count, 3, 12, 12]."""
    return np.random.default_rng(2).standard_normal((count, 3, 12, 12)).astype(np.float32)
