"""The pads of resolve-auto-pad against the formula, over the whole range of geometries."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuconv.model import conv, save
from support.asserts import context, read, run, run_pass
from support.builders import Net

pytestmark = pytest.mark.e2e

LAWS = settings(derandomize=True)
MODES = st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"])


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a window."""

    kernel: int
    stride: int
    dilation: int
    extent: int

    @property
    def reach(self) -> int:
        """Cells the dilated kernel covers."""
        return (self.kernel - 1) * self.dilation + 1


def windows(longest: int = 40) -> st.SearchStrategy[list[Axis]]:
    """One to three axes; three short ones, so that nothing takes long."""
    return st.one_of(_axes(1, longest), _axes(2, longest), _axes(3, min(longest, 12)))


def _axes(count: int, longest: int) -> st.SearchStrategy[list[Axis]]:
    axis = st.builds(
        Axis, st.integers(1, 7), st.integers(1, 4), st.integers(1, 3), st.integers(1, longest)
    )
    return st.lists(axis, min_size=count, max_size=count)


def build(op: str, mode: str, axes: list[Axis]) -> onnx.ModelProto:
    """A model of this one node, with as few channels as it can have."""
    net = Net(opset=19, ir_version=9, x=(1, 1, *(a.extent for a in axes)))
    kernel = tuple(a.kernel for a in axes)
    attrs = {
        "auto_pad": mode,
        "strides": [a.stride for a in axes],
        "dilations": [a.dilation for a in axes],
    }
    if op.startswith("Conv"):
        return net.conv("x", (1, 1, *kernel), op=op, **attrs).model()
    return net.op(op, kernel_shape=kernel, **attrs).model()


def split(total: int, mode: str) -> tuple[int, int]:
    """The smaller half first for SAME_UPPER, last for SAME_LOWER."""
    halves = (total // 2, (total + 1) // 2)
    return halves if mode == "SAME_UPPER" else halves[::-1]


def conv_law(axis: Axis, mode: str) -> tuple[int, int, int]:
    """Begin, end and output extent of a convolution or pool."""
    if mode == "VALID":
        return 0, 0, (axis.extent - axis.reach) // axis.stride + 1
    out = (axis.extent + axis.stride - 1) // axis.stride
    needed = (out - 1) * axis.stride + axis.reach
    return (*split(max(0, needed - axis.extent), mode), out)


def transpose_law(axis: Axis, mode: str) -> tuple[int, int, int, int]:
    """Begin, end, output padding and output extent of a transposed convolution."""
    full = (axis.extent - 1) * axis.stride + axis.reach
    if mode == "VALID":
        return 0, 0, 0, full
    wanted = axis.extent * axis.stride
    if full < wanted:
        return 0, 0, wanted - full, wanted
    return (*split(full - wanted, mode), 0, wanted)


def resolved(proto: onnx.ModelProto) -> tuple[dict, onnx.ModelProto]:
    """Attributes of the node after the pass, and the whole model."""
    model, ctx = read(proto), context()
    ctx.log.measures = False  # the comparison here is at the real extents
    assert run_pass("resolve-auto-pad", model, ctx) == 1
    assert run_pass("resolve-auto-pad", model, ctx) == 0
    return model.nodes()[0].attrs, save.to_proto(model)


def has_reference(op: str, mode: str, axes: list[Axis]) -> bool:
    """Return true if onnxruntime runs the original as ONNX means it.

    It refuses a dilated SAME convolution, pads a dilated SAME pool for the kernel without
    dilation, and pads by a negative number where a stride steps over cells.
    """
    slack = 1 if op == "Conv" else 0
    fits = all(a.dilation == 1 and a.stride - a.reach <= slack for a in axes)
    return mode == "VALID" or fits


def check(before: onnx.ModelProto, after: onnx.ModelProto, extents: list[int]) -> None:
    """Both run, give these extents, and the same numbers."""
    old, new = run(before)[0], run(after)[0]
    assert list(new.shape[2:]) == extents
    assert old.shape == new.shape
    assert abs(old - new).max() <= 1e-5 * max(1.0, abs(old).max())


@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_windows_get_the_pads_of_the_formula(op):
    """Pads, output extents, and the numbers where onnxruntime is a reference."""

    @LAWS
    @given(MODES, windows())
    def law(mode, axes):
        if mode == "VALID":
            axes = [Axis(a.kernel, a.stride, a.dilation, max(a.extent, a.reach)) for a in axes]
        proto = build(op, mode, axes)
        attrs, after = resolved(proto)
        begins, ends, extents = zip(*(conv_law(a, mode) for a in axes), strict=True)
        assert list(attrs["pads"]) == [*begins, *ends]
        assert attrs["auto_pad"] == "NOTSET"
        if has_reference(op, mode, axes):
            check(proto, after, list(extents))
        elif op == "Conv":  # onnxruntime refuses the original, not the result
            assert list(run(after)[0].shape[2:]) == list(extents)

    law()


def test_every_axis_there_is():
    """All of kernel 1-7, stride 1-4, dilation 1-3 and extent 1-40: axes do not meet."""
    ranges = range(1, 8), range(1, 5), range(1, 4), range(1, 41)
    for kernel, stride, dilation, extent in itertools.product(*ranges):
        axis = Axis(kernel, stride, dilation, extent)
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
            found = conv.conv_pads(mode, extent, kernel, stride, dilation)
            assert found == conv_law(axis, mode)[:2], (axis, mode)
            full = conv.transpose_pads(mode, extent, kernel, stride, dilation)
            assert full == transpose_law(axis, mode)[:3], (axis, mode)


@LAWS
@given(MODES, windows(longest=20))
def test_transposed_convolutions_get_the_pads_of_the_formula(mode, axes):
    """Pads, output padding and extents; the numbers where onnxruntime runs the original."""
    proto = build("ConvTranspose", mode, axes)
    attrs, after = resolved(proto)
    begins, ends, extra, extents = zip(*(transpose_law(a, mode) for a in axes), strict=True)
    assert list(attrs["pads"]) == [*begins, *ends]
    assert list(attrs.get("output_padding", [0] * len(axes))) == list(extra)
    if has_reference("ConvTranspose", mode, axes):
        check(proto, after, list(extents))
