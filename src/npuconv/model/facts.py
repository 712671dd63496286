"""Properties of a node that a target can limit, named as in ``npuconv.target.facts``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from npuconv.model import Node, Tensor, Window, query, window
from npuconv.model.conv import flat_pads
from npuconv.target.facts import DECIDED_LATER, FactValue

Measured = dict[str, FactValue | None]

_AXES = ("h", "w")
_DIMS = ("n", "c", "h", "w")


def measure(node: Node) -> Measured:
    """Return the facts of a node; ``None`` for an unknown dimension.

    Returns:
        All facts of a convolution or pool, and an empty dict if its rank is unknown; for
        other operators the rank, type and extents of their tensors.
    """
    if node.op not in query.CONVOLUTIONS + query.POOLS:
        return _of_tensors(node)
    win = window(node)
    if win is None or win.axes is None or not win.is_consistent:
        return {}
    layout = "nhwc" if node.domain == "com.ms.internal.nhwc" else "nchw"
    facts = dict(of_window(win))
    bias = query.input_of(node, 2) if node.op in query.CONVOLUTIONS else None
    facts |= {
        "layout": layout,
        "dtype": query.dtype_name(node.inputs[0]) or None,
        "weight_dtype": query.dtype_name(query.input_of(node, 1)) or None,
        "bias": bias is not None,
        "bias_dtype": query.dtype_name(bias) or None,
        "weight_constant": query.constant_input(node, 1) is not None,
    }
    if node.op in query.POOLS:
        facts["ceil_mode"] = bool(query.attribute(node, "ceil_mode", 0))
    if node.op == "AveragePool":
        facts["count_include_pad"] = bool(query.attribute(node, "count_include_pad", 0))
    return facts


def settled(node: Node) -> Measured:
    """Return the facts of a node that hold for the written model, too."""
    return {name: value for name, value in measure(node).items() if name not in DECIDED_LATER}


@lru_cache(maxsize=4096)  # a network has few different windows
def of_window(win: Window) -> Mapping[str, FactValue | None]:
    """Return the facts that do not depend on types, also for a candidate of a rewrite."""
    return {
        "rank": (win.axes or 0) + 2,
        "mode": win.mode,
        "auto_pad": win.auto_pad,
        "group": win.group,
        "pad_value": 0,
        **_windows(win),
        # The weights imply the rank of a tensor of unknown shape.
        **_named("in", win.input or (None,) * ((win.axes or 0) + 2)),
        **_named("out", win.output or (None,) * ((win.axes or 0) + 2)),
        **_named("weight", win.weight),
        **_channels(win),
    }


def _of_tensors(node: Node) -> Measured:
    """Return rank, extents and attributes of an operator without a kernel."""
    # The largest input determines the shape of an operator with broadcasting.
    operands = [t for t in node.inputs if not query.is_constant(t) and query.rank(t) is not None]
    source = max(operands, key=_size, default=None)
    dims = query.shape(source)
    if dims is None:
        return {}
    out = query.shape(node.outputs[0]) if len(node.outputs) else None
    facts: Measured = {"rank": len(dims), "dtype": query.dtype_name(source) or None}
    facts |= _named("in", dims) | _named("out", out) | _padding(node)
    return facts | _attributes(node, len(dims)) if query.is_standard(node) else facts


def considered(tensor: Tensor, attributes: Mapping[str, float | str]) -> Measured:
    """Return the facts of a candidate operator whose result has the shape of its input."""
    dims = query.shape(tensor)
    numbers: Measured = {
        name: value if isinstance(value, int) else f"{value:.4g}"
        for name, value in attributes.items()
        if not isinstance(value, str)
    }
    rank = None if dims is None else len(dims)
    return {"rank": rank, **_named("in", dims), **_named("out", dims), **numbers}


def _attributes(node: Node, rank: int) -> Measured:
    """Return the facts in attributes and constants of an operator of the standard domain."""
    facts: Measured = {}
    if node.op in ("Gemm", "MatMul"):
        facts["weight_constant"] = query.constant_input(node, 1) is not None
        dims = query.shape(node.inputs[0])
        depth = dims[0 if query.attribute(node, "transA", 0) else -1] if dims else None
        facts["depth"] = depth if isinstance(depth, int) else None
    for name in ("alpha", "beta"):
        if (number := query.attribute(node, name, _NUMBERS.get((node.op, name)))) is not None:
            facts[name] = f"{float(number):.4g}"
    if (blocksize := query.attribute(node, "blocksize")) is not None:
        facts["blocksize"] = int(blocksize)
    if (axis := query.attribute(node, "axis", _AXIS.get(node.op))) is not None:
        facts["axis"] = int(axis) % max(rank, 1)
    return facts | _axis_facts(node, rank)


# Default attributes of activations.
_NUMBERS = {
    ("HardSigmoid", "alpha"): 0.2, ("HardSigmoid", "beta"): 0.5, ("Elu", "alpha"): 1.0,
    ("LeakyRelu", "alpha"): 0.01, ("Swish", "alpha"): 1.0,
}  # fmt: skip


def _axis_facts(node: Node, rank: int) -> Measured:
    """Return the axes that an operator works along, and how."""
    facts: Measured = {}
    if node.op == "Transpose":
        perm = query.attribute(node, "perm") or range(rank)[::-1]
        facts |= _of_transpose(perm, query.shape(node.inputs[0]))
    elif node.op.startswith("Reduce"):
        axes = query.reduced_axes(node)
        facts["axes"] = None if axes is None else ",".join(map(str, axes))
    elif node.op == "Slice":
        steps = query.constant_input(node, 4)
        has_steps = query.input_of(node, 4) is not None
        facts["step_max"] = int(abs(steps).max()) if steps is not None else None if has_steps else 1
    elif node.op == "Gather":
        facts["indices_rank"] = query.rank(query.input_of(node, 1))
    elif node.op == "Resize":
        facts["resize_mode"] = str(query.attribute(node, "mode", "nearest"))
        how = query.attribute(node, "coordinate_transformation_mode", "half_pixel")
        facts["coordinate_mode"] = str(how)
    elif node.op in _BROADCASTING:
        facts["broadcast"] = _broadcast(node)
        facts["constant_operand"] = any(map(query.is_constant, node.inputs))
    return facts


# Operators with an axis, and its default.
_AXIS = {
    "Softmax": -1, "LogSoftmax": -1, "LayerNormalization": -1, "Split": 0, "Gather": 0,
    "ArgMax": 0, "ArgMin": 0,
}  # fmt: skip
_BROADCASTING = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")


def of_movement(
    source: tuple[int | str | None, ...],
    dims: tuple[int | str | None, ...],
    perm: Sequence[int] = (),
) -> Measured:
    """Return the facts of a candidate that moves data; ``perm`` of a Transpose."""
    facts: Measured = {"rank": len(source), **_named("in", source), **_named("out", dims)}
    return facts | (_of_transpose(perm, source) if perm else {})


def _of_transpose(perm: Sequence[int], dims: tuple[int | str | None, ...] | None) -> Measured:
    lengths = sorted(dim if isinstance(dim, int) else 1 for dim in dims or ())
    return {
        "perm": ",".join(str(int(axis)) for axis in perm),
        "all_but_two": None if dims is None else math.prod(lengths[2:]),
    }


def _broadcast(node: Node) -> str | None:
    """Return the axes of the result along which an input is broadcast; None above rank 4."""
    result = query.shape(node.outputs[0]) if len(node.outputs) else None
    shapes = [query.shape(tensor) for tensor in node.inputs]
    if result is None or None in shapes or len(result) > len(_DIMS):
        return None
    if any(len(dims or ()) > len(result) for dims in shapes):
        return None  # no broadcast: the shapes contradict each other
    names, broadcast = _DIMS[-len(result) :] if result else (), set[str]()
    for dims in shapes:
        aligned = (1,) * (len(result) - len(dims or ())) + (dims or ())
        extents = zip(names, aligned, result, strict=True)
        broadcast |= {name for name, dim, wide in extents if dim == 1 and wide != 1}
    return "".join(name for name in names if name in broadcast) or "none"


def _size(tensor: Tensor) -> tuple[int, int]:
    dims = query.shape(tensor) or ()
    return len(dims), math.prod(d for d in dims if isinstance(d, int))


def _padding(node: Node) -> Measured:
    """Return amounts and mode of a Pad; height and width are the last two axes."""
    if node.op != "Pad":
        return {}
    facts: Measured = {"pad_mode": str(query.attribute(node, "mode", "constant"))}
    pairs = query.pad_amounts(node)
    if pairs is None or len(pairs) != len(_DIMS):
        return facts
    names = ("pad_top", "pad_left", "pad_bottom", "pad_right")
    sides = dict(zip(names, flat_pads(pairs[2:]), strict=True))
    outside = max(abs(amount) for pair in pairs[:2] for amount in pair)
    return {**facts, **sides, "pad_max": max(sides.values()), "pad_outside_hw": outside}


def _windows(win: Window) -> Measured:
    """Return the facts of height and width, which are the last two axes."""
    facts: Measured = {"pad_max": max((max(p) for p in win.pads), default=0)}
    begin_end = (("pad_top", "pad_bottom"), ("pad_left", "pad_right"))
    axes = range((win.axes or 0) - 2, win.axes or 0)
    for name, (begin, end), axis in zip(_AXES, begin_end, axes, strict=True):
        if axis < 0 or win.kernel is None:
            continue
        kernel, dilation = win.kernel[axis], win.dilations[axis]
        facts |= {
            f"kernel_{name}": kernel,
            f"stride_{name}": win.strides[axis],
            f"dilation_{name}": dilation,
            f"dilated_kernel_{name}": (kernel - 1) * dilation + 1,
            f"output_padding_{name}": win.output_padding[axis],
            begin: win.pads[axis][0],
            end: win.pads[axis][1],
        }
    return facts


def _named(prefix: str, dims: tuple[int | str | None, ...] | None) -> Measured:
    """Return the extents of a tensor of rank 4 by name."""
    if dims is None or len(dims) != len(_DIMS):
        return {}
    pairs = zip(_DIMS, dims, strict=True)
    return {f"{prefix}_{name}": d if isinstance(d, int) else None for name, d in pairs}


def _channels(win: Window) -> Measured:
    facts: Measured = {"in_c": win.in_channels, "out_c": win.out_channels}
    if win.kernel is not None:
        facts["kernel_area"] = math.prod(win.kernel)
    if win.weight is None or win.group < 1:
        return facts
    per_group = (win.in_channels or 0) // win.group
    facts |= {
        "kernel_volume": math.prod(win.kernel or (1,)) * per_group,
        "in_c_per_group": per_group,
        "out_c_per_group": (win.out_channels or 0) // win.group,
    }
    if win.mode == "depthwise":
        facts["channel_multiplier"] = (win.out_channels or 0) // win.group
    return facts
