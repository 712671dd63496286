"""Every option of the tool, once: flag, YAML key, default, help and bounds.

The command line flags, the validation of ``--config`` files and the published JSON
schema are all derived from these models.
"""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from npuconv import yamlio
from npuconv.errors import UsageError
from npuconv.limits import DEFAULT, NAMES, Limits
from npuconv.validated import Before, Field, Record, faults
from npuconv.version import DEFAULT_OPSET, NEWEST_OPSET, OLDEST_OPSET
from npuconv.version import Format as Format

Preset = Literal["unit", "signed", "imagenet", "raw", "none"]
Method = Literal["auto", "minmax", "percentile", "entropy", "mse"]
Step = Literal[
    "host-padding", "range-margin",
    "clipping", "gptq-rounding", "bias-correction",
]  # fmt: skip
Form = Literal["split", "dense", "sub-pixel", "zero-insertion", "slices"]
_FLAGS_ONLY = (
    "config", "output", "output_format", "report", "write_baseline",
    "timings", "quiet", "verbose", "no_color", "max_seconds", "max_memory", "help_all",
)  # fmt: skip
Level = Literal["error", "warning", "note"]


SUFFIX, TFLITE_SUFFIX = ".npu.onnx", ".npu.tflite"


def suffix_of(output_format: str) -> str:
    """Return the end of the names of models in a format."""
    return TFLITE_SUFFIX if output_format == "tflite" else SUFFIX


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_tuple(value: Any) -> Any:
    return (value,) if _is_number(value) else value


def _numbers(value: Any) -> list[float]:
    return [*filter(_is_number, value)] if isinstance(value, list | tuple) else []


def _as_finite(value: Any) -> Any:
    if not all(map(math.isfinite, _numbers(_as_tuple(value)))):
        raise ValueError("must be finite numbers")
    return _as_tuple(value)


def _as_deviations(value: Any) -> Any:
    if (smallest := min(_numbers(_as_tuple(value)), default=1)) <= 0:
        raise ValueError(f"a standard deviation is above 0, not {smallest:g}")
    return value


def _as_square(value: Any) -> Any:
    return (value, value) if _is_number(value) else value


# Lists for which one number may be given.
Floats = Annotated[tuple[float, ...], Before(_as_finite, float | tuple[float, ...])]
Deviations = Annotated[Floats, Before(_as_deviations, float | tuple[float, ...])]
Integers = Annotated[tuple[int, ...], Before(_as_tuple, int | tuple[int, ...])]
Pair = Annotated[tuple[int, int], Before(_as_square, int | tuple[int, int])]


class Preprocess(Record):
    """Conversion of an image file to a model input.

    The pixel value v (0..255) becomes ``(v - mean) / std`` per channel, after resizing
    and cropping. Presets are shorthands for mean and std.
    """

    preset: Preset | None = Field(
        default=None,
        description="normalization of images; unit: 0..1; signed: -1..1; imagenet: ImageNet mean "
        "and std; raw: 0..255; none: nothing is assumed, only without --calibration",
    )
    mean: Floats | None = Field(
        default=None, description="subtracted from pixels of 0..255; one number, or one per channel"
    )
    std: Deviations | None = Field(
        default=None, description="divides pixels of 0..255; one number, or one per channel"
    )
    resize: Integers | None = Field(
        default=None, description="HEIGHT,WIDTH, or one number for the short side"
    )
    crop: Pair | None = Field(
        default=None, description="HEIGHT,WIDTH of a centre crop; one number for a square"
    )
    color: Literal["rgb", "bgr", "gray"] = Field(default="rgb", description="channel order")
    layout: Literal["nchw", "nhwc"] = Field(default="nchw", description="layout of the model input")

    @property
    def phrase(self) -> str:
        """Settings that are not defaults, in one phrase: ``imagenet, resize 256, color bgr``."""
        parts = []
        for key, value in self.model_dump(exclude_defaults=True).items():
            values = value if isinstance(value, tuple) else (value,)
            words = " ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
            parts.append(words if key == "preset" else f"{key} {words}")
        return ", ".join(parts)


def _of_preset(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value in get_args(Preset):
        return {"preset": value}
    near = yamlio.suggest(value, get_args(Preset))
    raise ValueError(
        f"{value!r} is no preset: one of {', '.join(get_args(Preset))}, or keys as "
        f"{{preset: unit}}" + (f"; {near}" if near else "")
    )


PreprocessField = Annotated[Preprocess, Before(_of_preset, Preprocess)]


class Selection(Record):
    """Selection and severities of findings for the models of one pattern."""

    select: tuple[str, ...] = Field(default=(), description="instead of the general key, if given")
    ignore: tuple[str, ...] = Field(default=(), description="besides the general key")
    severity: dict[str, Level] = Field(
        default_factory=dict, description="over the general key, code by code"
    )


class Options(Record):
    """Options of one conversion or check."""

    # Words that users write although they are no keys, with the advice to show.
    misplaced: ClassVar[dict[str, str]] = {
        **dict.fromkeys(_FLAGS_ONLY, "a flag of the command line, not a key"),
        **{key: f"{key} is a key inside preprocess" for key in Preprocess.model_fields},
        "input_layout": "write it as layout inside preprocess",
        "no_verify": "write verify: false",
        "no_offload": "write offload: false",
        "requantize": "write keep_scales: false",
        "no_fit": "write fit: false",
    }

    target: str = Field(default="npu-int8", description="a built-in target, or a YAML file")
    assume: tuple[str, ...] = Field(
        default=(),
        description="answer of an undocumented limit for this run; kernel_h=5 (at most), "
        "stride_h=1,2 (one of), in_c=1..64, bias=true; Conv.kernel_h=5 of one operator",
    )
    input_shape: dict[str, tuple[int, ...]] = Field(
        default_factory=dict,
        description="fixes dynamic dimensions; NAME=1,3,224,224 for each input",
    )
    calibration: str | None = Field(
        default=None,
        description="samples: .npz, .npy, images, or a folder of them; or a .txt list of images",
    )
    calibration_key: str | None = Field(
        default=None,
        min_length=1,
        description="array of the samples for the only input; without it the one named like the "
        "input, or the only one that fits",
    )
    preprocess: PreprocessField = Field(default=Preprocess(), description="for images")
    keep_scales: bool = Field(
        default=True,
        description="keep scales, zero points and integer weights of a model that is quantized "
        "already; --requantize drops them and starts from its float values",
    )
    method: Method = Field(default="auto", description="how activation ranges are chosen")
    format: Format = Field(
        default="qoperator", description="form of the written model; by default that of the target"
    )
    io: Literal["float", "int8"] = Field(
        default="float", description="type of the model's inputs and outputs"
    )
    opset: int = Field(
        default=DEFAULT_OPSET,
        ge=OLDEST_OPSET,
        le=NEWEST_OPSET,
        description="operator set of the written model; the IR version goes with it; by default "
        "that of the target, else 21",
    )
    layout: Literal["nchw", "nhwc"] = Field(
        default="nchw",
        description="layout of the device nodes; nhwc writes QLinearConv and NhwcMaxPool of "
        "com.microsoft",
    )
    standard_ops: bool = Field(
        default=False,
        description="write operators of ONNX's own domain only; others are QLinearAdd and the "
        "like, which onnxruntime has kernels for",
    )
    offload: bool = Field(default=True, description="turn operators into equal convolutions")
    fit: bool = Field(
        default=True, description="rewrite convolutions so that they keep every known limit"
    )
    pad_on_host: Literal["host", "inputs", "auto", "all", "never"] = Field(
        default="host",
        description="what the host pads to make steps smaller; inputs: inputs of the model; "
        "host: all that it makes or carries anyway, so that nothing more crosses; auto: "
        "also tensors that the device makes, where the outputs gain 1 dB by it; all: every "
        "tensor",
    )
    prefer: tuple[Form, ...] = Field(
        default=(),
        description="form of a rewrite whatever it costs; split or dense (grouped convolutions), "
        "sub-pixel or zero-insertion (transposed ones), slices (those of three axes that all stay)",
    )
    keep_float: tuple[str, ...] = Field(
        default=(),
        description="nodes that stay float on the host; a pattern of names, as 'head/*', "
        "op:OPERATOR, or module:PATTERN of the training code",
    )
    min_sqnr: float | None = Field(
        default=None,
        ge=-100,
        le=200,
        allow_inf_nan=False,
        description="fail below so many dB; layers run several times to reach them, as far as "
        "--max-extra-macs allows",
    )
    max_extra_macs: float | None = Field(
        default=None,
        ge=0,
        le=1000,
        allow_inf_nan=False,
        description="percent more MACs for more accuracy; by default none, or up to 100 with "
        "--min-sqnr",
    )
    without: tuple[Step, ...] = Field(
        default=(), description="steps of quantization to leave out; for benchmarks and bug reports"
    )
    fail_on: Literal["error", "warning", "unknown", "never"] = Field(
        default="error", description="findings that make the exit code 1"
    )
    unknown: Literal["warn", "fail", "pass"] = Field(
        default="warn", description="effect of a limit that is marked '?'"
    )
    select: tuple[str, ...] = Field(
        default=(), description="only these rules; codes, beginnings of codes, or names"
    )
    ignore: tuple[str, ...] = Field(
        default=(), description="not these rules; the longer of two beginnings wins"
    )
    severity: dict[str, Level] = Field(
        default_factory=dict,
        description="level of a rule's findings; CODE=error, CODE=warning or CODE=note",
    )
    rules: dict[str, Selection] = Field(
        default_factory=dict,
        description="select, ignore and severity for the models that a pattern fits",
    )
    baseline: str | None = Field(
        default=None, description="file of accepted findings; they do not fail a check"
    )
    source_root: str | None = Field(
        default=None,
        description="folder of the training code; reports then name its files and present lines, "
        "and SARIF points at them",
    )
    verify: bool = Field(default=True, description="compare every rewrite with what it replaced")
    max_samples: int = Field(default=512, ge=1, description="calibration samples read at most")
    max_folded_mib: int = Field(
        default=256,
        ge=1,
        description="MiB of a constant that npuconv makes; larger ones are not made",
    )
    max_model_bytes: int = Field(
        default=DEFAULT.model_bytes, ge=1, description="bytes of a model with its external data"
    )
    max_nodes: int = Field(
        default=DEFAULT.nodes,
        ge=1,
        description="nodes of a model; with those of subgraphs and functions",
    )
    max_depth: int = Field(
        default=DEFAULT.depth, ge=0, description="depth of subgraphs inside subgraphs"
    )
    max_tensor_mib: int = Field(
        default=DEFAULT.tensor_mib, ge=1, description="MiB of one tensor of the model"
    )
    max_image_pixels: int = Field(
        default=DEFAULT.image_pixels, ge=1, description="pixels of one image"
    )
    max_archive_bytes: int = Field(
        default=DEFAULT.archive_bytes,
        ge=1,
        description="bytes of the arrays of an .npz; once decompressed",
    )
    max_archive_ratio: int = Field(
        default=DEFAULT.archive_ratio,
        ge=1,
        description="decompressed to compressed bytes in an .npz; of arrays over 64 MiB",
    )
    seed: int = Field(
        default=0, ge=0, description="seed of made-up samples; where no data is given"
    )

    def for_target(self, form: str | None, opset: int | None) -> Self:
        """Return the options with the form and the opset of the target, where none was given."""
        stated = {"opset": opset, "format": form}
        explicit_fields = self.model_fields_set
        update = {
            key: value for key, value in stated.items() if value and key not in explicit_fields
        }
        return self.model_copy(update=update) if update else self

    @property
    def calibrates(self) -> bool:
        """Whether activations become int8, which needs samples."""
        return self.format not in ("weights", "float")

    @property
    def lowers(self) -> bool:
        """Whether integer operators take the place of float operators between conversions."""
        return self.format in ("qoperator", "tflite")

    @property
    def has_budget(self) -> bool:
        """Whether layers and channels may run several times for accuracy."""
        return self.min_sqnr is not None or bool(self.max_extra_macs)

    @property
    def limits(self) -> Limits:
        """Limits on untrusted files."""
        return Limits(**{name: getattr(self, f"max_{name}") for name in NAMES})


def merge(*layers: dict[str, Any]) -> dict[str, Any]:
    """Return one dict of options; later layers win, nested dicts are merged key by key."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, entry in layer.items():
            short = key == "preprocess" and isinstance(entry, str)  # the name of a preset
            value = {"preset": entry} if short else entry
            old = result.get(key)
            is_nested = isinstance(old, dict) and isinstance(value, dict)
            result[key] = merge(old, value) if is_nested else value  # type: ignore[arg-type]
    return result


def make_options(
    values: Mapping[str, Any], named: Callable[[tuple[str, ...]], str] | None = None
) -> Options:
    """Validate options given by flags or keyword arguments.

    ``named`` returns the name of an option in a message, from the path of its keys.

    Raises:
        UsageError: an unknown option, or a value that it does not take.
    """
    try:
        return Options.model_validate(values)
    except ValueError as error:
        first = faults(error)[0]
        path = tuple(str(part) for part in first["loc"])
        name = named(path) if named else f"option {'.'.join(path)!r}"
        text = f"{name}: {yamlio.explain(first)}"
        raise UsageError(text, hint=yamlio.hint_of(first, Options)) from None
