"""The int8 model in a vendor's tool: its verdict, and its outputs beside ours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from npuconv.data import Feed
from npuconv.errors import ModelError, UsageError
from npuconv.evaluate.comparison import Comparison, Stats
from npuconv.evaluate.matching import quantized
from npuconv.evaluate.pairs import TFLITE, Opened
from npuconv.model.proto import Links
from npuconv.schemas import verify as schema
from npuconv.vendors.tool import Question, VendorTool

_BINS = 4  # differences of 0, 1, 2 and 3 steps are counted, then all larger ones
_REORDERING = frozenset(
    {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "DepthToSpace"}
)
_WORD = re.compile(r"[^\s'\"`,;()\[\]]+")


def open_tool(text: str, python: str | Path | None, model: Opened) -> VendorTool:
    """Return the tool ``NAME`` or ``NAME:CHIP``.

    Raises:
        UsageError: the tool does not exist, is not installed, or reads other files.
    """
    tool = VendorTool.find(text, python)
    if (tool.vendor.suffix == TFLITE) != (model.tflite is not None):
        form = "tflite" if tool.vendor.suffix == TFLITE else "qdq"
        raise UsageError(
            f"--vendor {text} reads {tool.vendor.suffix} files, not {model.name}",
            hint=f"npuconv convert --format {form} writes them",
        )
    return tool


def judge(
    tool: VendorTool,
    model: Opened,
    source: str | Path | onnx.ModelProto,
    samples: Sequence[tuple[Feed, Feed, Feed]],
    comparison: Comparison,
) -> schema.VendorReport:
    """Compile the int8 model, run it on the samples, and compare the outputs.

    Args:
        tool: the vendor's tool.
        model: the int8 model.
        source: its file or model.
        samples: inputs, outputs of the float model, outputs of the int8 model.
        comparison: the two models.

    Raises:
        UsageError: the tool cannot be started.
        ModelError: the model is too large for one file.
    """
    feeds = [quantized(feed, comparison.scales) for feed, *_ in samples]
    notes = []
    if model.tflite is not None:
        data, feeds = Path(str(source)).read_bytes(), [model.tflite.stored(feed) for feed in feeds]
    else:
        data, open_inputs = _with_shapes(model, feeds[0])
        notes += [f"open extents are those of the samples: {open_inputs}"] if open_inputs else []
    if calibrates := not model.is_int8:
        notes.append("the file is float: a tool that quantizes takes these samples for calibration")
    question = Question(data, list(model.inputs), feeds, len(model.outputs), calibrates)
    version, (reply,) = tool.ask([question])
    answer = reply.answer
    results = [dict(zip(model.outputs, arrays, strict=True)) for arrays in reply.outputs]
    if model.tflite is not None:
        results = [model.tflite.restored(result) for result in results]
    results = [comparison.dequantized(result) for result in results]
    steps = output_steps(model.proto, comparison.scales) if model.is_int8 else {}
    total, outputs = Stats(), []
    for name in model.outputs if results else ():
        stats, gaps = Stats(), [np.zeros(0)]
        for (_, floats, ours), result in zip(samples, results, strict=True):
            stats.observe_comparable(floats[name], result[name])
            total.observe_comparable(floats[name], result[name])
            if name in steps and np.size(ours[name]) == np.size(result[name]):
                values = np.reshape(result[name], np.shape(ours[name])).astype(np.float64)
                gaps.append(np.rint(np.abs(values - ours[name]) / steps[name]).ravel())
        step = float(np.max(steps[name])) if name in steps else None
        differences, largest, sizes = None, None, np.concatenate(gaps)
        if sizes.size and np.isfinite(sizes).all():
            zero, single, double, triple = (int(np.sum(sizes == number)) for number in range(_BINS))
            more = sizes.size - zero - single - double - triple
            differences, largest = (zero, single, double, triple, more), int(sizes.max())
        output = schema.VendorOutput(
            name=name, step=step, differences=differences, largest=largest, **stats.errors()
        )
        outputs.append(output)
    protos = model.proto.graph.node  # a tool may name a node by its output
    nodes = {output: node.name for node in protos for output in node.output if output}
    nodes |= {node.name: node.name for node in protos if node.name}
    layers = tuple(
        schema.VendorLayer(name=_nearest(name, nodes), op_type=op, device=device, reason=reason)
        for name, op, device, reason in answer.layers
    )
    devices = Counter(answer.devices or (layer.device for layer in layers))
    if answer.default_device:
        listed = {layer.name for layer in layers}
        devices[answer.default_device] += sum(node.name not in listed for node in protos)
    words = [word.rstrip(".:!") for word in _WORD.findall(answer.message)]
    names = ", ".join(dict.fromkeys(nodes[w] for w in words if nodes.get(w, w) != w))
    return schema.VendorReport(
        name=tool.vendor.name,
        version=version,
        title=tool.vendor.title,
        chip=tool.chip,
        verdict=reply.verdict,
        message=f"{answer.message} (node {names})" if names else answer.message,
        devices=dict(sorted(devices.items())),
        layers=layers,
        outputs=tuple(outputs),
        total=schema.Errors(**total.errors()) if results else None,
        figures=answer.figures,
        notes=tuple(notes),
    )


def output_steps(model: onnx.ModelProto, scales: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Return the step from a value to the next of each output, perhaps by channel.

    ``scales`` has int8 outputs; other outputs come from a DequantizeLinear with a single scale,
    perhaps reordered, multiplied by constants, or moved by them.
    """
    links, steps = Links(model.graph), dict[str, np.ndarray]()
    for output in model.graph.output:
        node, factor, is_reordered = links.producers.get(output.name), np.ones(()), False
        while node is not None:
            constants = {n: c for n in node.input if (c := links.constant(n)) is not None}
            if node.op_type == "Mul" and len(constants) == 1:
                (multiplier,) = constants.values()
                if is_reordered and multiplier.size > 1:  # its channels are elsewhere by then
                    break
                factor = factor * abs(multiplier)
            elif node.op_type in _REORDERING:
                is_reordered = True
            elif node.op_type != "Add" or len(constants) != 1:
                break
            node = links.producers.get(next((n for n in node.input if n not in constants), ""))
        if output.name in scales:
            steps[output.name] = np.asarray(scales[output.name])
        elif node is not None and node.op_type == "DequantizeLinear":
            scale = links.constant(node.input[1])
            if scale is not None and scale.size == 1 and (scale * factor > 0).all():
                steps[output.name] = np.reshape(scale, ()) * factor
        elif node is not None and node.op_type == "QuantizeLinear":
            steps[output.name] = np.ones(())
    return steps


def _with_shapes(model: Opened, feed: Feed) -> tuple[bytes, str]:
    """Return the file with the shapes of a sample, and the inputs whose extents were open."""
    proto, open_inputs = onnx.ModelProto(), []
    proto.CopyFrom(model.proto)
    for info in proto.graph.input:
        dims = info.type.tensor_type.shape.dim
        if info.name in feed and not all(dim.dim_value > 0 for dim in dims):
            lengths = np.shape(feed[info.name])
            open_inputs.append(f"{info.name} {list(lengths)}")
            kind = info.type.tensor_type.elem_type
            info.CopyFrom(onnx.helper.make_tensor_value_info(info.name, kind, lengths))
            del proto.graph.value_info[:]  # these were inferred from open extents
    try:
        return proto.SerializeToString(deterministic=True), ", ".join(open_inputs)
    except ValueError:
        raise ModelError(f"{model.name}: over 2 GiB, too large for one file") from None


def _nearest(name: str, nodes: Mapping[str, str]) -> str:
    """Return the node of a name, to which tools append, as in ``conv1_token_12``."""
    begins = [n for n in nodes if name.startswith(n) and re.match(r"[/_:.-]|$", name[len(n) :])]
    return nodes[max(begins, key=len)] or name if begins else name
