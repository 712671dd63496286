"""Partition export: the parts of an int8 model as files, with a manifest and packed weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npuconv import executor, files
from npuconv.arithmetic import gemmlowp
from npuconv.arithmetic.device import shifts
from npuconv.arithmetic.encoding import decimals
from npuconv.data import preparation
from npuconv.emit import keys
from npuconv.errors import ModelError
from npuconv.evaluate.integer_form import in_integers
from npuconv.evaluate.matching import scales as boundary_scales
from npuconv.evaluate.pairs import Opened, open_model
from npuconv.evaluate.subgraphs import (
    EIGHT_BITS,
    ModelPart,
    cut,
    element_types,
    with_own_conversions,
)
from npuconv.evaluate.vectors import device_layers, geometry, target_of
from npuconv.model import save
from npuconv.model.proto import Links, metadata_of, reads
from npuconv.ops.qlinear_conv import IntegerConv
from npuconv.records import replace
from npuconv.schemas import split as schema
from npuconv.schemas.report import Tool
from npuconv.target.description import Requantize
from npuconv.version import __version__

WEIGHTS = "weights.bin"
_ALIGNMENT = 16  # bytes; each array begins at a multiple, for vector loads
_FLOAT_BITS = 31  # bits of the multipliers that represent float factors
# Operator -> places of the scales of its input and of its output among its inputs.
_QPARAMS = {"QuantizeLinear": (None, 1), "DequantizeLinear": (1, None), "QLinearConv": (1, 6)}
Array = NDArray[Any]
Qparams = tuple[Array, Array]  # scale and zero point


def split(
    model: str | Path | onnx.ModelProto, directory: str | Path, *, target: str | None = None
) -> schema.Manifest:
    """Write the parts of the device and of the host as models of their own, and a manifest.

    Args:
        model: model in the form ``qoperator`` or ``qdq``; the parts are in integer operators.
        directory: destination; made if it does not exist.
        target: the device; by default the target of the conversion.

    Returns:
        The content of ``manifest.json``.

    Raises:
        NpuconvError: a model, target or destination that cannot be used.
    """
    opened = in_integers(open_model(model))
    chip = target_of(opened, target)
    opened = replace(opened, proto=with_own_conversions(opened.proto, chip))
    proto, how = opened.proto, chip.activations.requantize
    layers = list(device_layers(proto))
    if not layers:
        raise ModelError(
            f"{opened.name}: has no int8 convolution with constant scales, "
            "so no part for the device",
            hint="npuconv convert writes one with --format qoperator or qdq",
        )
    parts, types = cut(proto, chip), element_types(proto)
    folder = files.make_folder(directory)
    with files.together():
        entries = [_write_part(opened, folder, k, part, types) for k, part in enumerate(parts)]
        owner = {proto.graph.node[n].output[0]: e.file for p, e in zip(parts, entries, strict=True)
                 for n in p.nodes}  # fmt: skip
        rows, data = _pack(layers, owner, how)
        files.write(folder / WEIGHTS, data)
        prepared = preparation.read_entry(proto, opened.name)
        manifest = schema.Manifest(
            tool=Tool(version=__version__),
            model=schema.SplitSource(name=opened.name, sha256=opened.sha256),
            target=schema.SplitSource(name=chip.name, sha256=chip.sha256),
            requantize=str(how),
            padding=chip.padding,
            preprocess=None if prepared is None else prepared.plain(),
            inputs=tuple(opened.inputs),
            outputs=tuple(opened.outputs),
            parts=tuple(entries),
            tensors=_crossing_tensors(opened, parts, types),
            layers=tuple(rows),
            weights=schema.PackedFile(
                file=WEIGHTS, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
            ),
        )
        files.write(folder / schema.MANIFEST, manifest.model_dump_json(indent=1) + "\n")
    return manifest


def _pack(
    layers: Sequence[IntegerConv], owner: Mapping[str, str], how: Requantize
) -> tuple[list[schema.LayerEntry], bytes]:
    """Pack weights, biases, factors, multipliers and shifts of all layers.

    Returns:
        A row for each layer, and the content of the file.

    Raises:
        ModelError: a factor that the shifts of the device cannot express.
    """
    data, rows = bytearray(), []
    for layer in layers:
        places = {}
        for name, array in _arrays(layer, how).items():
            data += bytes(-len(data) % _ALIGNMENT)
            places[name] = schema.Packed(
                dtype=cast("Any", array.dtype.name),
                shape=array.shape,
                offset=len(data),
                bytes=array.nbytes,
            )
            data += array.astype(array.dtype.newbyteorder("<")).tobytes()
        row = schema.LayerEntry(
            name=layer.name,
            part=owner[layer.result],
            input=layer.source,
            output=layer.result,
            **geometry(layer),
            input_scale=decimals(layer.x_scale.reshape(())),
            input_zero_point=decimals(layer.x_zero.reshape(())),
            output_scale=decimals(layer.y_scale.reshape(())),
            output_zero_point=decimals(layer.y_zero.reshape(())),
            arrays=places,
        )
        rows.append(row)
    return rows, bytes(data)


def _arrays(layer: IntegerConv, how: Requantize) -> dict[str, Array]:
    """Return the integers of a layer: weight [M, C/group, kernel], the others [M].

    ``factor`` is the float32 multiplier of the accumulator; ``multiplier / 2**shift`` is the same
    in integers: the integers of the device if it multiplies by integers, else the nearest of 31
    bits. For a device that multiplies in float, a factor that is not positive has multiplier 0.
    """
    weight, factors = layer.weight, layer.factors
    if how.kind == "gemmlowp":
        pair = gemmlowp.multipliers(*layer.scales)
        multiplier, shift = pair.multiplier, gemmlowp.MULTIPLIER_BITS - pair.exponent
    else:
        bits = how.multiplier_bits if how.kind == "shift" else _FLOAT_BITS
        usable = factors > 0 if how.kind == "float" else np.ones(len(factors), bool)
        rounded = shifts(np.where(usable, factors, 1), bits=bits, max_shift=how.max_shift)
        multiplier, shift = np.where(usable, rounded.multiplier, 0), rounded.shift
    by_channel = {
        "weight_zero_point": layer.w_zero.reshape(-1),
        "bias": layer.offsets.astype(np.int32),
        "factor": factors,
        "multiplier": np.asarray(multiplier, np.int32),
        "shift": np.asarray(shift, np.int32),
    }
    rows = {key: np.broadcast_to(values, len(weight)) for key, values in by_channel.items()}
    return {"weight": weight, **rows}


def _write_part(
    opened: Opened,
    folder: Path,
    number: int,
    part: ModelPart,
    types: Mapping[str, onnx.TypeProto.Tensor],
) -> schema.PartEntry:
    """Write the nodes of a part as a model.

    Raises:
        ModelError: the type of an input or output of the part is unknown.
    """
    proto = opened.proto
    boundary = (*part.inputs, *part.outputs)
    kinds = {n: onnx.TypeProto(tensor_type=types[n]) for n in boundary if n in types}
    unknown = [name for name in boundary if name not in kinds]
    if unknown:
        raise ModelError(
            f"{opened.name}: nothing tells the type of {unknown[0]!r}, where it would be cut",
            hint="convert the model again: npuconv writes the types of tensors",
        )
    nodes = [proto.graph.node[number] for number in part.nodes]
    names = {*part.outputs, *(name for node in nodes for name in reads(node))}
    graph = helper.make_graph(
        nodes,
        f"{proto.graph.name or 'model'}/{part.side}",
        [helper.make_value_info(name, kinds[name]) for name in part.inputs],
        [helper.make_value_info(name, kinds[name]) for name in part.outputs],
        [tensor for tensor in proto.graph.initializer if tensor.name in names],
    )
    model = helper.make_model(
        graph,
        opset_imports=list(proto.opset_import),
        functions=list(proto.functions),
        ir_version=proto.ir_version,
    )
    model.producer_name, model.producer_version = "npuconv", __version__
    # Sums of other parts are left out when the entry is read.
    sums = metadata_of(proto).get(keys.INT32_SUMS, "")
    places = executor.random_places(proto.graph, set(part.nodes))
    save.add_metadata(model, {keys.INT32_SUMS: sums, executor.RANDOM_PLACES: places})
    file = folder / f"{number:03}_{part.side}.onnx"
    files.check_writable(file)
    save.save(model, file)
    digest = hashlib.sha256(save.to_bytes(model)).hexdigest()
    return schema.PartEntry.from_attributes(
        part, file=file.name, sha256=digest, nodes=len(part.nodes)
    )


def _crossing_tensors(
    opened: Opened, parts: Sequence[ModelPart], types: Mapping[str, onnx.TypeProto.Tensor]
) -> tuple[schema.CrossingTensor, ...]:
    """Return a row for each tensor between parts, or between a part and the caller."""
    names = [*opened.inputs, *(n for p in parts for n in (*p.inputs, *p.outputs)), *opened.outputs]
    units = boundary_scales(opened.proto, opened.name)
    qparams = _qparams(opened.proto)
    qparams |= {name: (np.float32(unit), np.int8(0)) for name, unit in units.items()}  # type: ignore[misc]
    rows = []
    for name, kind in ((name, types[name]) for name in dict.fromkeys(names) if name in types):
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        shape: tuple[int | None, ...] | None = None
        if kind.HasField("shape"):
            dims = kind.shape.dim
            extents = (d.dim_value if d.HasField("dim_value") else -1 for d in dims)
            # Some exporters write -1.
            shape = tuple(size if size >= 0 else None for size in extents)
        sizes = [size for size in shape or () if size is not None]
        complete = shape is not None and len(sizes) == len(shape)
        scale, zero = (
            qparams.get(name, (None, None)) if kind.elem_type in EIGHT_BITS else (None, None)
        )
        row = schema.CrossingTensor(
            name=name,
            dtype=dtype.name,
            shape=shape,
            bytes=int(np.prod(sizes, dtype=np.int64)) * dtype.itemsize if complete else None,
            scale=None if scale is None else decimals(np.squeeze(scale)),
            zero_point=None if zero is None else decimals(np.squeeze(zero)),
        )
        rows.append(row)
    return tuple(rows)


def _qparams(model: onnx.ModelProto) -> dict[str, Qparams]:
    """Return scale and zero point of 8-bit tensors, by the nodes that make or read them.

    Input and output of nodes that only move or compare integers have the same.
    """
    links = Links(model.graph)
    qparams: dict[str, Qparams] = {}
    for node in model.graph.node:
        # The scale of the input, and of the output, and the zero points behind them.
        places = _QPARAMS.get(node.op_type, (None, None))
        for name, place in zip((*node.input[:1], *node.output[:1]), places, strict=False):
            pair = [] if place is None else node.input[place : place + 2]
            scale, zero = (*map(links.constant, pair), None, None)[:2]
            if scale is not None and zero is not None:
                qparams.setdefault(name, (scale, zero))
    for node in (*model.graph.node, *reversed(model.graph.node)):
        if node.op_type in ("Relu", "Clip", "MaxPool", "NhwcMaxPool") and node.input:
            edge = (node.input[0], node.output[0])
            for name, source in (edge, edge[::-1]):
                if source in qparams:
                    qparams.setdefault(name, qparams[source])
    return qparams
