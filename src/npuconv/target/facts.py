"""Facts of a node, to which a target file can refer.

Only names and kinds; the ``model`` package measures them on a node. A fact that is not
known (a dynamic extent, weights that are not constant) is ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from npuconv.records import dataclass

Kind = Literal["int", "str", "bool"]
Mode = Literal["plain", "grouped", "depthwise", "transposed"]
FactValue = bool | int | str
Facts = Mapping[str, FactValue | None]

DTYPES = (
    "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64",
)  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """One thing that can be measured on a node."""

    name: str
    help: str
    kind: Kind = "int"
    choices: tuple[str, ...] = ()  # allowed values of a str fact; empty: any text
    alias_of: str = ""

    @property
    def least(self) -> int:
        """Smallest value of a number; 0 if the fact is false."""
        return 0 if self.kind == "bool" or "pad" in self.name else 1


def _sides(prefix: str, text: str, sides: tuple[str, ...]) -> list[Fact]:
    return [Fact(f"{prefix}_{side}", text.format(_WORDS[side])) for side in sides]


_WORDS = {
    "h": "height", "w": "width", "n": "batch", "c": "channels",
    "top": "top", "left": "left", "bottom": "bottom", "right": "right",
}  # fmt: skip
_HW, _NCHW = ("h", "w"), ("n", "c", "h", "w")

_ALL = [
    Fact("rank", "number of dimensions of the input"),
    Fact("mode", "what kind of convolution it is", "str",
         ("plain", "grouped", "depthwise", "transposed")),
    Fact("layout", "order of the dimensions", "str", ("nchw", "nhwc")),
    Fact("dtype", "element type of input and output", "str", DTYPES),
    Fact("weight_dtype", "element type of the weights", "str", DTYPES),
    Fact("bias", "whether there is a bias", "bool"),
    Fact("bias_dtype", "element type of the bias", "str", DTYPES),
    Fact("auto_pad", "the attribute auto_pad", "str",
         ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")),
    Fact("group", "the attribute group"),
    Fact("pad_value", "the stored integer that padding fills in"),
    *_sides("kernel", "{} of the kernel", _HW),
    *_sides("stride", "stride along the {}", _HW),
    *_sides("dilation", "dilation along the {}", _HW),
    *_sides("pad", "padding at the {}", ("top", "left", "bottom", "right")),
    Fact("pad_max", "the largest of the four paddings"),
    *_sides("output_padding", "output_padding of ConvTranspose along the {}", _HW),
    *_sides("in", "{} of the input", _NCHW),
    *_sides("out", "{} of the output", _NCHW),
    *_sides("weight", "{} of the weights, in the order of the attribute W of Conv", _NCHW),
    *_sides("dilated_kernel", "{} of the dilated kernel: (k - 1) * dilation + 1", _HW),
    Fact("kernel_area", "kernel_h * kernel_w"),
    Fact("kernel_volume", "kernel_h * kernel_w * input channels per group"),
    Fact("in_c_per_group", "input channels per group"),
    Fact("out_c_per_group", "output channels per group"),
    Fact("channel_multiplier", "output channels per input channel of a depthwise convolution"),
    Fact("weight_constant", "whether the weights are constant", "bool"),
    Fact("weight_abs_sum_max", "largest sum of |int8 weight| of one output channel"),
    Fact("ceil_mode", "whether a pool rounds the extents of its output up", "bool"),
    Fact("count_include_pad", "whether an average pool counts its padding as values", "bool"),
    Fact("pad_mode", "what Pad fills in", "str", ("constant", "reflect", "edge", "wrap")),
    Fact("pad_outside_hw", "the largest amount by which Pad pads batch or channels"),
    Fact("blocksize", "the attribute blocksize of DepthToSpace and SpaceToDepth"),
    Fact("axis", "the attribute axis of Concat, Softmax and others, counted from the front"),
    Fact("axes", "axes that a reduction goes over, as 2,3", "str"),
    Fact("perm", "order of the axes behind a Transpose, as 0,2,3,1", "str"),
    Fact("all_but_two", "largest product of the lengths of all axes of a Transpose but two; "
         "an open length counts as 1"),
    Fact("broadcast", "axes along which an Add or the like repeats one value of an input, as hw, "
         "or none", "str"),
    Fact("constant_operand", "whether an input of an Add or the like is constant", "bool"),
    Fact("depth", "values that a Gemm or MatMul adds up for one of its result"),
    Fact("alpha", "the attribute alpha of an activation, in four digits, as 0.1667", "str"),
    Fact("beta", "the attribute beta of an activation, in four digits", "str"),
    Fact("indices_rank", "number of dimensions of the indices of a Gather"),
    Fact("step_max", "the largest step of a Slice"),
    Fact("resize_mode", "the attribute mode of Resize", "str", ("nearest", "linear", "cubic")),
    Fact("coordinate_mode", "the attribute coordinate_transformation_mode of Resize", "str",
         ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
          "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize")),
    Fact("C", "the channels of the input, as ONNX writes them", alias_of="in_c"),
]  # fmt: skip

FACTS: dict[str, Fact] = {fact.name: fact for fact in _ALL}

# These facts are float in the float graph; quantization decides their types on the device.
DECIDED_LATER = frozenset({"bias_dtype", "dtype", "weight_dtype"})


def lookup(facts: Facts, name: str) -> FactValue | None:
    """Return the value of a fact or of the fact that it is an alias of; None if not known."""
    value = facts.get(name)
    alias = FACTS[name].alias_of if name in FACTS else ""
    return facts.get(alias) if value is None and alias else value


def value_text(value: object) -> str:
    """Return a value of a target file for people: a limit as its text, a pair as ``lo..hi``."""
    if isinstance(value, tuple):
        return "..".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
