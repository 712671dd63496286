"""Keyword arguments of the library, with types that an editor completes.

Made by tools/gendocs.py from ``npuconv.config``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from npuconv.config import Form, Format, Level, Method, Preset, Selection, Step
    from npuconv.config import Preprocess as PreprocessOptions


class PreprocessKeywords(TypedDict, total=False):
    """Keys of ``preprocess``."""

    # normalization of images
    preset: Preset | None
    # subtracted from pixels of 0..255
    mean: float | Sequence[float] | None
    # divides pixels of 0..255
    std: float | Sequence[float] | None
    # HEIGHT,WIDTH, or one number for the short side
    resize: int | Sequence[int] | None
    # HEIGHT,WIDTH of a centre crop
    crop: int | Sequence[int] | None
    # channel order
    color: Literal["rgb", "bgr", "gray"]
    # layout of the model input
    layout: Literal["nchw", "nhwc"]


class SampleKeywords(TypedDict, total=False):
    """Options of ``verify``."""

    # for images
    preprocess: PreprocessOptions | PreprocessKeywords | Preset
    # fixes dynamic dimensions
    input_shape: Mapping[str, Sequence[int]]
    # array of the samples for the only input
    calibration_key: str | None
    # seed of made-up samples
    seed: int


class CommonKeywords(TypedDict, total=False):
    """Options that all conversions take."""

    # answer of an undocumented limit for this run
    assume: Sequence[str]
    # fixes dynamic dimensions
    input_shape: Mapping[str, Sequence[int]]
    # array of the samples for the only input
    calibration_key: str | None
    # for images
    preprocess: PreprocessOptions | PreprocessKeywords | Preset
    # keep scales, zero points and integer weights of a model that is quantized already
    keep_scales: bool
    # how activation ranges are chosen
    method: Method
    # form of the written model
    format: Format
    # type of the model's inputs and outputs
    io: Literal["float", "int8"]
    # operator set of the written model
    opset: int
    # layout of the device nodes
    layout: Literal["nchw", "nhwc"]
    # write operators of ONNX's own domain only
    standard_ops: bool
    # compile the TFLite file with Arm's Vela, which must be installed
    with_vela: bool
    # turn operators into equal convolutions
    offload: bool
    # rewrite convolutions so that they keep every known limit
    fit: bool
    # what the host pads to make steps smaller
    pad_on_host: Literal["host", "inputs", "auto", "all", "never"]
    # form of a rewrite whatever it costs
    prefer: Sequence[Form]
    # nodes that stay float on the host
    keep_float: Sequence[str]
    # fail below so many dB
    min_sqnr: float | None
    # percent more MACs for more accuracy
    max_extra_macs: float | None
    # percent more bytes between device and host
    max_extra_bytes: float | None
    # steps of quantization to leave out
    without: Sequence[Step]
    # findings that make the exit code 1
    fail_on: Literal["error", "warning", "unknown", "never"]
    # effect of a limit that is marked '?'
    unknown: Literal["warn", "fail", "pass"]
    # only these rules
    select: Sequence[str]
    # not these rules
    ignore: Sequence[str]
    # level of a rule's findings
    severity: Mapping[str, Level]
    # select, ignore and severity for the models that a pattern fits
    rules: Mapping[str, Selection]
    # file of accepted findings
    baseline: str | None
    # compare every rewrite with what it replaced
    verify: bool
    # calibration samples read at most
    max_samples: int
    # MiB of a constant that npuconv makes
    max_folded_mib: int
    # bytes of a model with its external data
    max_model_bytes: int
    # nodes of a model
    max_nodes: int
    # depth of subgraphs inside subgraphs
    max_depth: int
    # MiB of one tensor of the model
    max_tensor_mib: int
    # pixels of one image
    max_image_pixels: int
    # bytes of the arrays of an .npz
    max_archive_bytes: int
    # decompressed to compressed bytes in an .npz
    max_archive_ratio: int
    # seed of made-up samples
    seed: int


class OptionKeywords(CommonKeywords, total=False):
    """Options of ``check`` and ``convert``."""

    # folder that keeps what was seen of the samples
    cache: str | None


class BatchKeywords(CommonKeywords, total=False):
    """Options of ``run_batch``."""

    # a built-in target, or a YAML file
    target: str
    # samples: .npz, .npy, images, or a folder of them
    calibration: str | None
