"""Keyword arguments of the library, with types that an editor completes.

Made by tools/gendocs.py from ``npuconv.config``; docs/reference/options.md describes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from npuconv.config import Form, Format, Level, Method, Preset, Selection, Step
    from npuconv.config import Preprocess as PreprocessOptions


class PreprocessKeywords(TypedDict, total=False):
    """Keys of ``preprocess``."""

    preset: Preset | None
    mean: float | Sequence[float] | None
    std: float | Sequence[float] | None
    resize: int | Sequence[int] | None
    crop: int | Sequence[int] | None
    color: Literal["rgb", "bgr", "gray"]
    layout: Literal["nchw", "nhwc"]


class SampleKeywords(TypedDict, total=False):
    """Options of ``verify``."""

    preprocess: PreprocessOptions | PreprocessKeywords | Preset
    input_shape: Mapping[str, Sequence[int]]
    calibration_key: str | None
    seed: int


class OptionKeywords(TypedDict, total=False):
    """Options of ``check`` and ``convert``."""

    assume: Sequence[str]
    input_shape: Mapping[str, Sequence[int]]
    calibration_key: str | None
    preprocess: PreprocessOptions | PreprocessKeywords | Preset
    keep_scales: bool
    method: Method
    format: Format
    io: Literal["float", "int8"]
    opset: int
    layout: Literal["nchw", "nhwc"]
    standard_ops: bool
    offload: bool
    fit: bool
    pad_on_host: Literal["host", "inputs", "auto", "all", "never"]
    prefer: Sequence[Form]
    keep_float: Sequence[str]
    min_sqnr: float | None
    max_extra_macs: float | None
    without: Sequence[Step]
    fail_on: Literal["error", "warning", "unknown", "never"]
    unknown: Literal["warn", "fail", "pass"]
    select: Sequence[str]
    ignore: Sequence[str]
    severity: Mapping[str, Level]
    rules: Mapping[str, Selection]
    baseline: str | None
    source_root: str | None
    verify: bool
    max_samples: int
    max_folded_mib: int
    max_model_bytes: int
    max_nodes: int
    max_depth: int
    max_tensor_mib: int
    max_image_pixels: int
    max_archive_bytes: int
    max_archive_ratio: int
    seed: int


class BatchKeywords(OptionKeywords, total=False):
    """Options of ``run_batch``."""

    target: str
    calibration: str | None
