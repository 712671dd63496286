"""The sample networks: their layers, the style of their files and their least accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from samplekit.conv import Conv, ConvTranspose
from samplekit.export import Interface
from samplekit.layers import (
    BatchNorm,
    Clip,
    Flatten,
    Gemm,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Pad,
    Relu,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Sample:
    """One sample model and how to make it.

    Args:
        name: name of its directory.
        task: ``classify`` or ``upscale``.
        interface: inputs and outputs of the exported model.
        build: function that makes the untrained layers.
        epochs: number of epochs.
        seed: seed of the weights and of the order of the batches.
        floor: least accuracy, or least gain over nearest neighbour in dB.
        folds: whether batch normalisations are merged before the export.
    """

    name: str
    task: Literal["classify", "upscale"]
    interface: Interface
    build: Callable[[], list[Layer]]
    epochs: int
    seed: int
    floor: float
    folds: bool = False


def _digits() -> list[Layer]:
    return [
        Conv("conv1", 1, 16, 3, auto_pad="SAME_UPPER", terse=True),
        BatchNorm("bn1", 16),
        Relu("relu1"),
        Conv("features/dw/Conv2D", 16, 16, 3, group=16, auto_pad="SAME_LOWER", bias=False),
        BatchNorm("features/dw/BatchNorm", 16, epsilon=1e-3),
        Relu("features/dw/Relu"),
        Conv("features/pw/Conv2D", 16, 32, 1, bias=False, terse=True),
        BatchNorm("features/pw/BatchNorm", 32, epsilon=1e-3),
        Relu(""),
        Conv("conv2", 32, 32, 3, stride=2, auto_pad="SAME_LOWER", terse=True),
        BatchNorm("bn2", 32),
        Relu("relu2"),
        Conv("conv3", 32, 32, 2, auto_pad="SAME_UPPER", terse=True),
        BatchNorm("bn3", 32),
        Relu("relu3"),
        MaxPool("pool3", 2),
        Conv("conv4", 32, 64, 2, auto_pad="VALID", terse=True),
        Relu("relu4"),
        Flatten("flatten"),
        Gemm("fc", 64, 10),
    ]


def _digits_grouped() -> list[Layer]:
    return [
        Pad("/stem/pad/Pad", (1, 1, 1, 1)),
        Conv("/stem/conv/Conv", 1, 16, 3),
        BatchNorm("/stem/norm", 16),
        Clip("/stem/act/Clip"),
        Conv("/block1/grouped/Conv", 16, 32, 3, pads=(1, 1, 1, 1), group=4),
        BatchNorm("/block1/norm", 32),
        Clip("/block1/act/Clip"),
        Conv("/block2/dilated/Conv", 32, 32, 3, pads=(2, 2, 2, 2), dilation=2),
        BatchNorm("/block2/norm", 32),
        Clip("/block2/act/Clip"),
        Conv("/block3/grouped/Conv", 32, 64, 3, stride=2, pads=(1, 1, 1, 1), group=2),
        BatchNorm("/block3/norm", 64),
        Clip("/block3/act/Clip"),
        GlobalAveragePool("/head/pool/GlobalAveragePool"),
        Conv("/head/logits/Conv", 64, 10, 1),
        Flatten("/head/Flatten"),
    ]


def _digits_upscale() -> list[Layer]:
    return [
        Conv("", 1, 24, 3, pads=(1, 1, 1, 1)),
        Relu("Relu_1"),
        Conv("Conv_2", 24, 24, 3, pads=(1, 1, 1, 1)),
        Relu("Relu_3"),
        ConvTranspose("ConvTranspose_4", 24, 16, 3, 2, (1, 1, 1, 1), output_padding=1),
        Relu("Relu_5"),
        Conv("Conv_6", 16, 16, 3, pads=(1, 1, 1, 1)),
        Relu("Relu_7"),
        Conv("Conv_8", 16, 1, 3, pads=(1, 1, 1, 1)),
    ]


IMAGE = (1, 8, 8)
SMALL_IMAGE = (1, 4, 4)
LOGITS = (10,)

SAMPLES = (
    Sample(
        name="digits",
        task="classify",
        interface=Interface("digits", 9, 4, ("data", IMAGE), ("logits", LOGITS)),
        build=_digits,
        epochs=12,
        seed=1,
        floor=0.97,
    ),
    Sample(
        name="digits_grouped",
        task="classify",
        interface=Interface("main_graph", 13, 7, ("images", IMAGE), ("scores", LOGITS)),
        build=_digits_grouped,
        epochs=8,
        seed=2,
        floor=0.95,
        folds=True,
    ),
    Sample(
        name="digits_upscale",
        task="upscale",
        interface=Interface("upscaler", 11, 6, ("low_res", SMALL_IMAGE), ("high_res", IMAGE)),
        build=_digits_upscale,
        epochs=80,
        seed=3,
        floor=4.0,
    ),
)
