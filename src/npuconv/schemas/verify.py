"""Schema of the report of ``npuconv verify``."""

from typing import Literal

from npuconv.schemas.quality import Agreement
from npuconv.schemas.report import Tool
from npuconv.validated import Field, Record


class VerifiedModel(Record):
    """One of the two models."""

    path: str
    sha256: str


class Errors(Record):
    """Errors of values of the int8 model against the float model, over all samples."""

    sqnr_db: float | None = Field(
        description="10 log10(sum f^2 / sum (f-q)^2); null: exact where the cosine is a number"
    )
    cosine: float | None = Field(description="null where one side is all zeros or not finite")
    max_abs_error: float | None

    @property
    def rank(self) -> float:
        """Sort key for worst first: unknown errors, then low SQNR, then exact."""
        if self.sqnr_db is None:
            return float("-inf") if self.cosine is None else float("inf")
        return self.sqnr_db


class VerifiedPart(Errors):
    """A tensor of both models that an output is concatenated from."""

    name: str


class VerifiedOutput(Agreement, VerifiedPart):
    """An output of both models."""

    @property
    def rank(self) -> float:
        """Sort key for worst first; indices, which have no error, come last."""
        return float("inf") if self.holds_indices else super().rank

    parts: tuple[VerifiedPart, ...] = Field(
        default=(), description="tensors that it is concatenated from, as boxes and scores"
    )


class VerifiedLayer(Errors):
    """The output of one layer, errors of earlier layers included."""

    name: str = Field(description="its name in the float model")
    tensor: str = Field(description="its output in the float model")
    note: str = ""
    module: str = Field(default="", description="module of the training code; empty: not known")
    float_range: tuple[float, float] | None = Field(
        default=None,
        description="lowest and highest value in the float model; null: none is finite",
    )
    int8_range: tuple[float, float] | None = Field(
        default=None, description="lowest and highest value in the int8 model; null: none is finite"
    )


class Labelled(Record):
    """Top-1 accuracy of both models against labels."""

    output: str
    samples: int
    float_top1: float = Field(description="share of the samples with the right class")
    int8_top1: float


class VendorLayer(Record):
    """A node or layer that the vendor's tool names."""

    name: str = Field(description="name of the node in the file, or the tool's own name")
    op_type: str
    device: str = Field(description="NPU, CPU, GPU")
    reason: str = Field(default="", description="reason of the tool why it is not on the NPU")


class VendorOutput(Errors):
    """An output of the tool's simulator: errors against the float model, steps against ours."""

    name: str
    step: float | None = Field(
        description="scale of the output, the largest of its channels; null: none"
    )
    differences: tuple[int, int, int, int, int] | None = Field(
        description="values that differ from the int8 model by 0, 1, 2, 3 and more steps"
    )
    largest: int | None = Field(description="largest difference, in steps")


class VendorReport(Record):
    """Verdict of a vendor's tool, and errors of its simulator."""

    name: str
    version: str
    title: str
    chip: str = Field(default="", description="chip it compiles for; empty: the default")
    verdict: Literal["accepted", "refused", "failed"] = Field(
        description="failed: the tool crashed, took too long, or gave no readable answer"
    )
    message: str = Field(default="", description="reason of the tool for the model as a whole")
    devices: dict[str, int] = Field(description="number of nodes or layers by device")
    layers: tuple[VendorLayer, ...] = ()
    outputs: tuple[VendorOutput, ...] = Field(default=(), description="empty without a simulator")
    total: Errors | None = Field(
        default=None, description="errors of all values against the float model"
    )
    figures: dict[str, float] = Field(
        default_factory=dict, description="estimates of the tool, by its own names"
    )
    notes: tuple[str, ...] = ()


class VerifyReport(Record):
    """Error of an int8 model against the float model it was made from."""

    schema_version: Literal[1] = 1
    tool: Tool
    float_model: VerifiedModel
    int8_model: VerifiedModel
    samples: int
    source: str = Field(description="origin of the samples")
    synthetic: bool
    warnings: tuple[str, ...] = ()
    total: Errors = Field(description="errors of all values of all outputs")
    outputs: tuple[VerifiedOutput, ...]
    layers: tuple[VerifiedLayer, ...] = ()
    layer_samples: int = Field(description="samples on which the layers were compared")
    unmatched: tuple[str, ...] = Field(
        default=(), description="layers of the int8 model that the float model lacks"
    )
    labelled: Labelled | None = None
    min_sqnr_db: float | None = None
    vendor: VendorReport | None = Field(default=None, description="null without --vendor")
    passed: bool = Field(
        description="false where min_sqnr_db is given and missed, or the vendor does not accept"
    )
