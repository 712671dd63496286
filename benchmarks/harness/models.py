"""The recipe of every shared model: its inputs, its options, and how it is scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from harness import sound, text
from harness.data import (
    IMAGENET,
    SIGNED,
    SIGNED_BGR,
    SIGNED_NHWC,
    Pixels,
    Role,
    photo_batch,
    rows,
)
from harness.feeds import Array

Feeds = dict[str, Array]
# (folder of the shared data, file of the float model, role, count) -> arrays by input name
Maker = Callable[[Path, Path, Role, int], Feeds]
Batch = Callable[[Path, Role, int], Array]


@dataclass(frozen=True)
class Recipe:
    """Feeding and scoring of one model.

    Attributes:
        model: folder of the model; several recipes may share a model.
        make: function that makes samples.
        shapes: input shapes to fix, if the model leaves them open.
        top1: axis of the classes of the first output; the largest value is the answer.
        others: number of samples, besides the scored samples, on which answers are compared.
        synthetic: whether the data is made up, because no data suits the model.
        pixels: conversion of photographs to its input, if it reads photographs.
    """

    model: str
    make: Maker
    shapes: dict[str, tuple[int, ...]]
    top1: int | None = None
    others: int = 0
    synthetic: bool = False
    pixels: Pixels | None = None

    @property
    def arguments(self) -> list[str]:
        """Options that npuconv needs for this model."""
        named = [f"{name}={','.join(map(str, shape))}" for name, shape in self.shapes.items()]
        return [part for shape in named for part in ("--input-shape", shape)]


def one_input(
    model: str,
    name: str,
    batch: Batch,
    *,
    shape: tuple[int, ...] | None = None,
    top1: int | None = None,
    others: int = 0,
    pixels: Pixels | None = None,
) -> Recipe:
    """A recipe of a model with one input."""
    normalization = getattr(batch, "keywords", {}).get("pixels")
    pixels = pixels or (normalization if isinstance(normalization, Pixels) else None)

    def make(folder: Path, _: Path, role: Role, count: int) -> Feeds:
        return {name: batch(folder, role, count)}

    return Recipe(model, make, {name: shape} if shape else {}, top1, others, pixels=pixels)


def photo_crops(size: tuple[int, int], pixels: Callable[[Image.Image], Array]) -> Batch:
    """Return a maker of crops of photographs."""
    return partial(photo_batch, size=size, pixels=pixels)


def _rows(file: str, change: Callable[[Array], Array]) -> Batch:
    return lambda folder, role, count: change(rows(folder, file, role, count))


def _digits(values: Array) -> Array:
    return values[:, None].astype(np.float32) / np.float32(255)


def _floats(values: Array) -> Array:
    return values.astype(np.float32)


def _signed_first(values: Array) -> Array:
    return (values.astype(np.float32) / np.float32(127.5) - 1).transpose(0, 3, 1, 2)


_RGB_AND_ONES = Pixels(std=(1.0,), layout="nhwc")


def _with_ones(image: Image.Image) -> Array:
    """Return RGB 0..255 and a channel that is 1 everywhere, channels last."""
    values = _RGB_AND_ONES(image)
    return np.concatenate([values, np.ones_like(values[..., :1])], -1)


_MNIST = _rows("mnist3000.npz", _digits)
_CENTRED = Pixels(mean=(127.5,), std=(128.0,), layout="nhwc")
_CAFFE = Pixels(mean=(103.94, 116.78, 123.68), std=(1.0,), color="bgr")
_RAW = Pixels(std=(1.0,))
# Models of photographs whose height and width are open.
_OPEN = {
    "bodypix_mnv1_050_s16": (1, 257, 257, 3),
    "mtcnn_pnet": (1, 120, 160, 3),
    "zerodce_mdturp": (1, 3, 224, 224),
}
# Where every pixel has a class: the axis of the classes.
_CLASSES = {"deeplabv3_mnv2_257": 3}


def _reading() -> dict[str, Recipe]:
    """Models that read: on rendered text, and on photographs without any."""
    kinds = (
        ("ppocrv4_det", text.page_batch, (320, 320), None, 0),
        ("ppocrv4_rec", text.line_batch, (48, 320), 2, 48),
        ("ppocr_cls_v2", text.turned_batch, (48, 192), 1, 200),
    )
    reading = {}
    for name, batch, size, top1, others in kinds:
        plain, shape = photo_crops(size, SIGNED_BGR), (1, 3, *size)
        lines = partial(batch, size=size, pixels=SIGNED_BGR)
        reading[name] = one_input(name, "x", lines, shape=shape, top1=top1, others=others)
        reading[f"{name}_photos"] = one_input(name, "x", plain, shape=shape, top1=top1)
    return reading


def _classifying() -> dict[str, Recipe]:
    kws = _rows("kws500.npz", _floats)
    cifar, signed = (_rows("cifar10_60.npz", change) for change in (_floats, _signed_first))
    views = {pixels: photo_crops((224, 224), pixels) for pixels in (SIGNED_NHWC, _CAFFE)}
    kinds = (
        ("grouped_mnist_pads", "x", _MNIST, 500),
        ("mnist8_cntk", "Input3", _MNIST, 500),
        ("mnist_pytorch_java", "0", _MNIST, 500),
        ("mlperf_tiny_kws_dscnn", "serving_default_input_1:0", kws, 452),
        ("mlperf_tiny_ic_resnet8", "input_1", cifar, 12),
        ("winml_imgclassifier", "modelInput", signed, 12),
        ("mobilenetv2_imagenet_dq", "input", views[SIGNED_NHWC], 80),
        ("squeezenet11_fp32", "data_0", views[_CAFFE], 80),
    )
    grey, wide = Pixels(color="gray"), replace(SIGNED_NHWC, layout="nchw")
    normalizations = {
        **dict.fromkeys(("grouped_mnist_pads", "mnist8_cntk", "mnist_pytorch_java"), grey),
        "mlperf_tiny_ic_resnet8": replace(_RAW, layout="nhwc"),
        "winml_imgclassifier": wide,
    }
    return {
        name: one_input(name, source, batch, top1=1, others=others, pixels=normalizations.get(name))
        for name, source, batch, others in kinds
    }


def _hollow() -> dict[str, Recipe]:
    """Weights are constants: there is structure to convert, and no accuracy to lose."""
    kinds = (("light_densenet121", "data_0"), ("lightshufflenet", "gpu_0/data_0"))
    return {name: one_input(name, x, photo_crops((224, 224), IMAGENET)) for name, x in kinds}


def _seeing() -> dict[str, Recipe]:
    ultra = replace(SIGNED, mean=(127.0,), std=(128.0,))
    images: dict[str, tuple[str, tuple[int, int], Callable[[Image.Image], Array]]] = {
        "blazeface_back_kj": ("input:0", (256, 256), SIGNED_NHWC),
        "bodypix_mnv1_050_s16": ("input", (257, 257), SIGNED_NHWC),
        "deeplabv3_mnv2_257": ("sub_7", (257, 257), SIGNED_NHWC),
        "espcn_qonnx_float_nn": ("onnx::Relu_0", (128, 128), Pixels()),
        "fastestdet": ("input.1", (352, 352), Pixels(color="bgr")),
        "mlsd_tiny_320_kj": ("input_image_with_alpha:0", (320, 320), _with_ones),
        "mtcnn_onet": ("input_3", (48, 48), _CENTRED),
        "mtcnn_pnet": ("input_1", (120, 160), _CENTRED),
        "style_candy": ("inputImage", (720, 720), _RAW),
        "superres_connxr": ("input", (224, 224), Pixels(color="gray")),
        "ultraface_rfb320": ("input", (240, 320), ultra),
        "yunet_n_320": ("input", (320, 320), replace(_RAW, color="bgr")),
        "zerodce_mdturp": ("input", (224, 224), Pixels()),
    }
    seeing = {}
    for name, (source, size, pixels) in images.items():
        shape, top1 = _OPEN.get(name), _CLASSES.get(name)
        seeing[name] = one_input(name, source, photo_crops(size, pixels), shape=shape, top1=top1)
    return seeing


def _made_up() -> dict[str, Recipe]:
    """Models for which there is no data."""

    def notes(_: Path, role: Role, count: int) -> Array:
        return sound.play(role, count, 43844)

    def spectra(_: Path, role: Role, count: int) -> Array:
        return sound.spectrograms(role, count)

    def enhance(_: Path, model: Path, role: Role, count: int) -> Feeds:
        return sound.enhance_feeds(model, role, count)

    def voice(_: Path, model: Path, role: Role, count: int) -> Feeds:
        return sound.voice_feeds(model, role, count)

    synthetic = {
        "basic_pitch": one_input("basic_pitch", "serving_default_input_2:0", notes),
        "kws_micro_emx": one_input("kws_micro_emx", "serving_default_input:0", spectra, top1=1),
        "magika_v3_3": one_input("magika_v3_3", "bytes", sound.file_bytes, top1=1, others=200),
        "gtcrn_simple": Recipe("gtcrn_simple", enhance, {}),
        "silero_vad_op15": Recipe("silero_vad_op15", voice, {}),
    }
    return {name: replace(recipe, synthetic=True) for name, recipe in synthetic.items()}


def recipes() -> dict[str, Recipe]:
    """Every recipe by name, sorted."""
    groups = (_classifying(), _hollow(), _seeing(), _made_up(), _reading())
    return dict(sorted(item for group in groups for item in group.items()))
