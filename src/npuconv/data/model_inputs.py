"""Inputs of a model: the samples that they take, and the nodes up to the first convolution."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv import executor
from npuconv.config import Preprocess
from npuconv.data import InputSpec, Source, open_samples
from npuconv.errors import ModelError
from npuconv.model import Model, Node, Tensor, query
from npuconv.records import replace

# Heights and widths that trained models take, most common first; 48 x 320 is a line of text.
_EXTENTS: tuple[tuple[int, ...], ...] = (
    (224, 224), (256, 256), (320, 320), (48, 320), (32, 320), (128, 128), (64, 64), (32, 32),
    (16, 16), (1, 1),
)  # fmt: skip
_LENGTHS = ((512,), (1024,), (16000,))  # lengths of a piece of sound: one open axis only
_BATCH = 1
_AFFINE = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
_QUANTITATIVE = {
    *("Add", "Sub", "Mul", "Div", "Conv", "Resize"),
    *("DequantizeLinear", "QLinearConv", "ConvInteger"),
}
# Operators that may stand between an input and its first convolution.
_BEFORE_FIRST_CONV = {
    *("Transpose", "Pad", "Cast", "Add", "Sub", "Mul", "Div", "Reshape", "Identity"),
    *("Slice", "Squeeze", "Unsqueeze", "Relu", "Clip"),
}


def sample_inputs(
    model: Model, proto: onnx.ModelProto, source: Source
) -> tuple[list[InputSpec], str]:
    """Return the inputs that samples are made for.

    Returns:
        The specs, and a sentence on extents that were assumed: only for synthetic
        samples, and only where the model leaves more than the batch open.

    Raises:
        ModelError: an input of a type that no sample can be made for.
    """
    shapes = [query.shape(t) for t in model.graph.inputs]
    # A name of the first axis of an input is the batch on every axis.
    batches: set[int | str | None] = {d[0] for d in shapes if d and isinstance(d[0], str)}
    batches = batches if source is None else set()
    specs = []
    for tensor, dims in zip(model.graph.inputs, shapes, strict=True):
        if dims is not None:  # samples are stacked on the first axis, and have 1 along another
            dims = (*dims[:1], *(_BATCH if dim in batches else dim for dim in dims[1:]))
        quantity = is_quantity(tensor)
        specs.append(InputSpec(tensor.name, _kind(model, tensor), dims, is_quantity=quantity))
    if source is not None or not any(_open_axes(s) for s in specs):
        return specs, ""
    with suppress(executor.RuntimeRefusedError):
        # It runs once for each size: optimizing it takes longer.
        session = executor.Session(proto, threads=1, optimize=False)
        is_sound = all(len(_open_axes(spec)) < 2 for spec in specs)
        for extents in (*_EXTENTS, *(_LENGTHS if is_sound else ())):
            candidate = [_filled(spec, extents) for spec in specs]
            try:
                session.run(open_samples(None, candidate, Preprocess(), limit=1)[0])
            except executor.RuntimeRefusedError:
                continue
            lengths = [
                f"{new.name}={','.join(str(d) for d in new.shape or ())}"
                for old, new in zip(specs, candidate, strict=True)
                if _open_axes(old)
            ]
            assumed = f"the model leaves its input shape open, assumed is {'; '.join(lengths)}"
            return candidate, f"{assumed}: give --input-shape"
    return specs, ""


def is_quantity(tensor: Tensor) -> bool:
    """Return whether the model computes with the values of a tensor: they are no indices."""
    return all(
        node.op in _QUANTITATIVE
        or (node.op in _BEFORE_FIRST_CONV and is_quantity(node.outputs[0]))
        or (node.op == "Cast" and query.dtype_name(node.outputs[0]).startswith("float"))
        for node in query.consumers(tensor)
    )


def check_types(model: Model) -> None:
    """Refuse inputs and outputs of a type that no sample has.

    Raises:
        ModelError: there is one.
    """
    for tensor in model.graph.inputs:
        _kind(model, tensor)
    for tensor in model.graph.outputs:
        _kind(model, tensor, "output", "it cannot be compared")


def _kind(
    model: Model, tensor: Tensor, place: str = "input", so: str = "no samples can be given"
) -> np.dtype[Any]:
    if isinstance(tensor.dtype, int):
        kind = query.dtype_name(tensor)
        text = f"{place} {tensor.name!r} is {kind}, which numpy has no type for, so {so}"
        raise ModelError(f"{model.name}: {text}", hint="export the model in float32")
    return np.dtype(np.float32 if tensor.dtype is None else tensor.dtype)


def _open_axes(spec: InputSpec) -> list[int]:
    dims = spec.shape or ()
    return [axis for axis, dim in enumerate(dims) if axis > 0 and not isinstance(dim, int)]


def _filled(spec: InputSpec, extents: tuple[int, ...]) -> InputSpec:
    if spec.shape is None:
        return spec
    open_axes = _open_axes(spec)
    # Two open axes are height and width; of others, all get the last extent.
    values = extents if len(open_axes) == len(extents) else (extents[-1],) * len(open_axes)
    lengths = dict(zip(open_axes, values, strict=True))
    dims = [d if isinstance(d, int) else lengths.get(i, _BATCH) for i, d in enumerate(spec.shape)]
    return replace(spec, shape=tuple(dims))


def first_convolution(model: Model) -> Node | None:
    """Return the first convolution that reads an input of the model, if its weights are known."""
    for node in model.nodes("Conv"):
        name, _ = path_from_input(node.inputs[0])
        if name and query.constant_input(node, 1) is not None:
            return node
    return None


def path_from_input(tensor: Tensor) -> tuple[str, list[Node]]:
    """Return the input that a tensor comes from, and the nodes on the way, first to last.

    The name is empty if the tensor is not an input but for scale, offset and order.
    """
    path: list[Node] = []
    while (node := query.producer(tensor)) is not None:
        varying = [t for t in node.inputs if t.name and not query.is_constant(t)]
        if node.op not in _BEFORE_FIRST_CONV or len(varying) != 1:
            return "", path
        path.insert(0, node)
        tensor = varying[0]
    return "" if query.is_constant(tensor) else str(tensor.name), path


def apply_affine(array: NDArray[Any], path: Sequence[Node]) -> NDArray[Any] | None:
    """Return the output of nodes on a path; None if a node does more than move and scale."""
    for node in path:
        if node.op == "Transpose" and query.attribute(node, "perm"):
            array = np.transpose(array, query.attribute(node, "perm"))
        elif node.op == "Cast":
            array = array.astype(np.float32)
        elif node.op in _AFFINE and len(node.inputs) == 2:
            first, second = (query.value(t) if query.is_constant(t) else array for t in node.inputs)
            with np.errstate(all="ignore"):  # calibration raises for values that are not finite
                array = np.asarray(_AFFINE[node.op](first, second))  # type: ignore[arg-type]
        elif node.op not in ("Pad", "Identity"):
            return None
    return array if array.dtype.kind in "fui" else None
