"""Distance of int8 models from the float model, sample by sample; onnxruntime runs both.

Tensors before a final Softmax, Sigmoid or the like are compared as well: behind a Softmax one
sample that is nearly even between two classes decides the SQNR of a set, and samples that are
sure show no error. Outputs of float models are kept on disk. Run as a script it prints a line
of JSON for one int8 model, so that a model that ends the runtime ends nothing else.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from harness.feeds import Array, read_feeds
from harness.process import environment

HIGHEST, LOWEST = 60.0, -20.0  # bounds of the SQNR of a sample, in dB
Powers = tuple[float, float]  # signal and noise of a sample
SATURATING = frozenset({"Softmax", "Sigmoid", "LogSoftmax", "HardSigmoid", "Tanh"})
_PASSED = frozenset(
    {
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat"),
        *("Cast", "QuantizeLinear", "DequantizeLinear"),
    }
)


@dataclass
class Score:
    """Figures of an int8 model on one set of samples.

    Attributes:
        plain: signal and noise of each sample, over all outputs.
        logits: signal and noise before saturation; of the outputs if nothing saturates.
        agreed: number of answers that agree with the float model.
        answers: number of answers; 0 if the model does not classify.
    """

    plain: list[Powers] = field(default_factory=list)
    logits: list[Powers] = field(default_factory=list)
    agreed: int = 0
    answers: int = 0


Scores = dict[str, Score]  # score by role


def decibels(signal: float, noise: float) -> float:
    """Return the SQNR of one sample in dB, within -20..60."""
    if not math.isfinite(noise):
        return LOWEST
    if not noise:
        return HIGHEST
    return min(max(10 * math.log10(signal / noise), LOWEST), HIGHEST) if signal else LOWEST


def pooled(powers: Iterable[Powers]) -> float:
    """Return the SQNR of all samples together in dB; infinite without any noise."""
    signal, noise = (math.fsum(part) for part in zip(*powers, strict=True))
    if not math.isfinite(noise):
        return -math.inf
    return 10 * math.log10(signal / noise) if noise and signal else math.inf


@dataclass(frozen=True)
class Logits:
    """Tensors to score a model on before saturation.

    Attributes:
        tensors: names, in the order of the outputs.
        kinds: operator that saturates each of them, or an empty string.
    """

    tensors: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def any(self) -> bool:
        """Return whether anything saturates."""
        return any(self.kinds)


def find_logits(model: onnx.ModelProto) -> Logits:
    """Walk back from every output to its saturating nodes; without any, the output itself."""
    producers = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    tensors: dict[str, str] = {}
    for output in model.graph.output:
        branches = dict(_walk(output.name, producers, constants))
        tensors |= branches if any(branches.values()) else {output.name: ""}
    return Logits(tuple(tensors), tuple(tensors.values()))


def _walk(
    name: str, producers: dict[str, onnx.NodeProto], constants: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield the tensors that feed a tensor unchanged, with the operator that saturates them."""
    node = producers.get(name)
    if node is not None and node.op_type in SATURATING:
        yield node.input[0], node.op_type
    elif node is not None and node.op_type in _PASSED:
        sources = node.input if node.op_type == "Concat" else node.input[:1]
        for source in sources:
            if source not in constants:
                yield from _walk(source, producers, constants)
    else:
        yield name, ""


def open_proto(model: onnx.ModelProto, names: tuple[str, ...]) -> ort.InferenceSession:
    """Open a model with other outputs and onnxruntime's own settings, silent."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    outputs = {output.name: output for output in model.graph.output}
    empty = onnx.helper.make_empty_tensor_value_info
    del changed.graph.output[:]
    changed.graph.output.extend(outputs.get(name, empty(name)) for name in names)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    content = changed.SerializeToString()
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def write_reference(model: Path, samples: Path, folder: Path) -> None:
    """Run the float model and keep each tensor as an array of samples, once.

    Args:
        model: the float model.
        samples: inputs.
        folder: gets ``plain.K.npy`` and, if something saturates, ``logits.K.npy``.
    """
    stamp = folder / "stamp"
    key = f"{model} {model.stat().st_mtime_ns} {samples.stat().st_mtime_ns}"
    if stamp.exists() and stamp.read_text() == key:
        return
    folder.mkdir(parents=True, exist_ok=True)
    proto = onnx.load(model)
    logits = find_logits(proto)
    kinds = {"plain": tuple(output.name for output in proto.graph.output)}
    kinds |= {"logits": logits.tensors} if logits.any else {}
    for path in folder.glob("*.npy"):
        path.unlink()
    for kind, names in kinds.items():
        session = open_proto(proto, names)
        rows = [session.run(None, feed) for feed in read_feeds(session, samples)]
        for k in range(len(rows[0])):
            np.save(folder / f"{kind}.{k}.npy", np.stack([row[k] for row in rows]))
    stamp.write_text(key)


def _reference(folder: Path, kind: str) -> list[Array]:
    paths = sorted(folder.glob(f"{kind}.*.npy"), key=lambda path: int(path.suffixes[-2][1:]))
    return [np.load(path, mmap_mode="r") for path in paths]


def score_model(
    model: Path, quantized: Path, sets: dict[str, Path], work: Path, top1: int | None = None
) -> Scores:
    """Score an int8 model on every sample set.

    The logits of the int8 model are found by the same walk, or by the names of the float model.

    Args:
        model: the float model.
        quantized: the int8 model.
        sets: sample files by role.
        work: folder of the float outputs, with a folder for each role.
        top1: axis of the classes of the first output, whose answers are compared; or None.

    Raises:
        ValueError: outputs have other types or shapes than in the float model.
    """
    float_proto, proto = onnx.load(model), onnx.load(quantized)
    logits, int8_logits = find_logits(float_proto), find_logits(proto)
    produced = {name for node in proto.graph.node for name in node.output}
    candidates = [tuple(output.name for output in float_proto.graph.output)]
    if logits.any and int8_logits.kinds == logits.kinds:
        candidates.append(int8_logits.tensors)
    if logits.any and produced.issuperset(logits.tensors):
        candidates.append(logits.tensors)
    names = tuple(dict.fromkeys(name for tensors in candidates for name in tensors))
    session = open_proto(proto, names)
    scores: Scores = {}
    for role, samples in sets.items():
        write_reference(model, samples, work / role)
        expected = [_reference(work / role, kind) for kind in ("plain", "logits", "logits")]
        columns: list[list[Powers | None]] = [[] for _ in candidates]
        score = scores[role] = Score()
        for k, feed in enumerate(read_feeds(session, samples)):
            values = dict(zip(names, session.run(None, feed), strict=True))
            for column, tensors, arrays in zip(columns, candidates, expected, strict=False):
                column.append(_powers([values[name] for name in tensors], arrays, k))
            if top1 is not None and columns[0][-1] is not None:
                pair = expected[0][0][k], values[candidates[0][0]]
                answers = [np.argmax(output, top1) for output in pair]
                score.agreed += int((answers[0] == answers[1]).sum())
                score.answers += answers[0].size
        fitting = [column for column in columns if None not in column]
        if not fitting or fitting[0] is not columns[0]:
            raise ValueError("outputs have other types or shapes than those of the float model")
        score.plain, score.logits = fitting[0], fitting[min(1, len(fitting) - 1)]  # type: ignore[assignment]
    return scores


def _powers(outputs: list[Array], expected: list[Array], k: int) -> Powers | None:
    """Return signal and noise of sample k over all tensors; None if types or shapes differ."""
    signal = noise = 0.0
    for array, output in zip(expected, outputs, strict=True):
        if array[k].shape != output.shape or output.dtype.kind != array.dtype.kind:
            return None
        exact = np.asarray(array[k], np.float64)
        signal += float(np.square(exact).sum())
        noise += float(np.square(exact - output).sum())
    return signal, noise


def score_apart(
    model: Path, quantized: Path, sets: dict[str, Path], work: Path, top1: int | None = None
) -> Scores | str:
    """Score in a process of its own; return why there are no figures if it fails."""
    roles = [f"{role}={path}" for role, path in sets.items()]
    module = [sys.executable, "-m", "harness.scores", "" if top1 is None else str(top1)]
    command = [*module, str(model), str(quantized), str(work), *roles]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"scoring: {lines[-1][:200] if lines else f'exit code {done.returncode}'}"
    return from_json(json.loads(done.stdout))


def from_json(values: dict[str, dict[str, Any]]) -> Scores:
    """Return scores from what ``asdict`` and JSON have made of them."""
    for score in values.values():
        score |= {kind: [tuple(pair) for pair in score[kind]] for kind in ("plain", "logits")}
    return {role: Score(**score) for role, score in values.items()}


def main() -> None:
    """Print the scores of one int8 model as JSON."""
    top1, model, quantized, work, *roles = sys.argv[1:]
    sets = {role: Path(path) for role, _, path in (text.partition("=") for text in roles)}
    axis = int(top1) if top1 else None
    scores = score_model(Path(model), Path(quantized), sets, Path(work), axis)
    print(json.dumps({role: asdict(score) for role, score in scores.items()}))


if __name__ == "__main__":
    main()
