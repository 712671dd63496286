"""Schema of ``manifest.json``, which ``npuconv split`` writes and ``npuconv run`` reads."""

from typing import Annotated, Any, Literal

from npuconv.schemas.report import Tool
from npuconv.validated import Bounded, Field, Record

MANIFEST = "manifest.json"
# A file beside the manifest: no folder, and nothing that leads out of this one.
FileName = Annotated[str, Bounded(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}$")]
Digest = Annotated[str, Bounded(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Bounded(ge=0, le=2**53)]
Scale = Annotated[float, Bounded(gt=0, allow_inf_nan=False)]


class SplitSource(Record):
    """A file that the folder was made from."""

    name: str
    sha256: str


class CrossingTensor(Record):
    """A tensor between two parts, or between the caller and a part."""

    name: str
    dtype: str = Field(description="numpy name of the element type")
    shape: tuple[Count | None, ...] | None = Field(
        description="null: unknown, as a whole or in one extent"
    )
    bytes: Count | None = Field(description="null where an extent is not known")
    scale: Scale | tuple[Scale, ...] | None = Field(
        description="scale, or scales of the channels, of 8 bits; null: float, or not known"
    )
    zero_point: int | tuple[int, ...] | None


class PartEntry(Record):
    """A model of the folder; they run in this order."""

    side: Literal["device", "host"]
    file: FileName
    sha256: Digest
    nodes: Count
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Packed(Record):
    """An array in ``weights.bin``: little endian, the last axis first."""

    dtype: Literal["int8", "uint8", "int32", "float32"]
    shape: tuple[Count, ...]
    offset: Count
    bytes: Count


class LayerEntry(Record):
    """A convolution of the device."""

    name: str
    part: FileName = Field(description="file of the part that it is in")
    input: str
    output: str
    group: Count
    kernel_shape: tuple[Count, ...]
    strides: tuple[Count, ...]
    dilations: tuple[Count, ...]
    pads: tuple[Count, ...] = Field(description="all begins, then all ends")
    layout: Literal["nchw", "nhwc"]
    input_scale: float
    input_zero_point: int
    output_scale: float
    output_zero_point: int
    arrays: dict[str, Packed] = Field(
        description="weight [M, C/group, kernel], bias, factor, multiplier, shift [M]"
    )


class PackedFile(Record):
    """The file of all weights."""

    file: FileName
    bytes: Count
    sha256: Digest


class Manifest(Record):
    """Parts of an int8 model, and the tensors that are passed between them."""

    schema_version: Literal[1] = 1
    tool: Tool
    model: SplitSource
    target: SplitSource
    requantize: str = Field(description="from the accumulator to an output: float or shift, ...")
    padding: str
    preprocess: dict[str, Any] | None = Field(
        default=None,
        description="conversion of images to inputs, as in convert; null: it read none",
    )
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parts: tuple[PartEntry, ...]
    tensors: tuple[CrossingTensor, ...]
    layers: tuple[LayerEntry, ...]
    weights: PackedFile
