"""Arithmetic of kernels, strides and pads, one spatial axis at a time. Pure integers.

The formulas are those of the ONNX operator texts (Conv-11, ConvTranspose-11, pooling),
which every runtime follows also where Conv-1 and ConvTranspose-1 read differently.
"""

from __future__ import annotations

SAME = ("SAME_UPPER", "SAME_LOWER")


def effective_kernel(kernel: int, dilation: int) -> int:
    """Extent a dilated kernel covers: ``(k - 1) * d + 1``."""
    return (kernel - 1) * dilation + 1


def split_total(total: int, mode: str) -> tuple[int, int]:
    """Begin and end of a total padding; SAME_UPPER puts the odd cell at the end."""
    begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
    return begin, total - begin


def same_total(extent: int, kernel: int, stride: int, dilation: int) -> int:
    """Total padding for which the output has ``ceil(extent / stride)`` cells."""
    out = -(-extent // stride)
    return max((out - 1) * stride + effective_kernel(kernel, dilation) - extent, 0)


def conv_pads(
    mode: str, extent: int | None, kernel: int, stride: int, dilation: int
) -> tuple[int, int] | None:
    """Explicit pads of one axis of a convolution or pool with ``auto_pad``.

    Args:
        mode: SAME_UPPER, SAME_LOWER or VALID.
        extent: input extent, or None where unknown.
        kernel: kernel extent.
        stride: stride.
        dilation: dilation.

    Returns:
        (begin, end), or None where the extent is needed but unknown. With stride 1 the
        total is ``e - 1`` for every extent, so it is not needed.
    """
    if mode == "VALID":
        return 0, 0
    if extent is None:
        if stride != 1:
            return None
        return split_total(effective_kernel(kernel, dilation) - 1, mode)
    return split_total(same_total(extent, kernel, stride, dilation), mode)


def conv_output(extent: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
    """Output extent of a convolution with explicit pads."""
    return (extent + sum(pads) - effective_kernel(kernel, dilation)) // stride + 1


def pool_output(
    extent: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], *, ceil: bool
) -> int:
    """Output extent of a pool; a last window that would start behind the input is not counted."""
    count = conv_output(extent, kernel, stride, dilation, pads)
    partial = (extent + sum(pads) - effective_kernel(kernel, dilation)) % stride
    return count + (ceil and partial > 0 and count * stride < extent + pads[0])


def transpose_total(
    extent: int, kernel: int, stride: int, dilation: int, output_padding: int, output: int
) -> int:
    """Total padding that gives a transposed convolution the output extent asked for."""
    full = stride * (extent - 1) + output_padding + effective_kernel(kernel, dilation)
    return full - output


def transpose_pads(
    mode: str,
    extent: int | None,
    kernel: int,
    stride: int,
    dilation: int,
    output_padding: int = 0,
    output: int | None = None,
) -> tuple[int, int, int] | None:
    """Explicit pads of one axis of a ConvTranspose.

    Args:
        mode: NOTSET (with an output extent), SAME_UPPER, SAME_LOWER or VALID.
        extent: input extent, or None where unknown.
        kernel: kernel extent.
        stride: stride.
        dilation: dilation.
        output_padding: cells appended at the end.
        output: output extent asked for by ``output_shape``, or None.

    Returns:
        (begin, end, output_padding), or None where the extent is needed but unknown. A
        negative total means no pads; the missing cells are appended at the end.
    """
    if output is None and mode not in SAME:
        return 0, 0, output_padding
    if output is None:
        # extent * stride cells: the input extent cancels out of the formula.
        extent = extent or 1
        output = extent * stride
    if extent is None:
        return None
    total = transpose_total(extent, kernel, stride, dilation, output_padding, output)
    if total < 0:
        return 0, 0, output_padding - total
    begin, end = split_total(total, mode)
    return begin, end, output_padding


def transpose_output(
    extent: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], extra: int
) -> int:
    """Output extent of a transposed convolution with explicit pads."""
    return transpose_total(extent, kernel, stride, dilation, extra, 0) - sum(pads)
