"""Outputs of float models, kept on disk, and the SQNR of int8 models sample by sample.

Run as a script it prints a line of JSON for one int8 model, so that a model that takes the
runtime down takes nothing else with it.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from recipes.feeds import Array, read_feeds
from recipes.measure import environment
from recipes.saturation import Logits, find_logits, with_outputs

HIGHEST, LOWEST = 60.0, -20.0
# role -> kind (``plain`` or ``logits``) -> dB of each sample
Scores = dict[str, dict[str, list[float]]]


def decibels(signal: float, noise: float) -> float:
    """Return the SQNR of one sample in dB, within -20..60."""
    if not math.isfinite(noise):
        return LOWEST
    if not noise:
        return HIGHEST
    return min(max(10 * math.log10(signal / noise), LOWEST), HIGHEST) if signal else LOWEST


def open_proto(model: onnx.ModelProto) -> ort.InferenceSession:
    """Open a model with onnxruntime's own settings, silent."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    content = model.SerializeToString()
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def write_reference(model: Path, samples: Path, folder: Path) -> None:
    """Run the float model and keep each tensor as an array of samples, once.

    Args:
        model: the float model.
        samples: inputs.
        folder: gets ``plain.npz`` and, where something saturates, ``logits.npz``.
    """
    stamp = folder / "stamp"
    wanted = f"{model} {model.stat().st_mtime_ns} {samples.stat().st_mtime_ns}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    proto = onnx.load(model)
    names = tuple(output.name for output in proto.graph.output)
    logits = find_logits(proto)
    for kind, tensors in (("plain", names), ("logits", logits.tensors)):
        for old in folder.glob(f"{kind}.*.npy"):
            old.unlink()
        if kind == "plain" or logits.any:
            _keep(open_proto(with_outputs(proto, tensors)), samples, folder, kind)
    stamp.write_text(wanted)


def _keep(session: ort.InferenceSession, samples: Path, folder: Path, kind: str) -> None:
    """Write one array of samples for each output."""
    rows = [session.run(None, feed) for feed in read_feeds(session, samples)]
    for k in range(len(rows[0])):
        np.save(folder / f"{kind}.{k}.npy", np.stack([row[k] for row in rows]))


def _kept(folder: Path, kind: str) -> list[Array]:
    paths = sorted(folder.glob(f"{kind}.*.npy"), key=lambda path: int(path.suffixes[-2][1:]))
    return [np.load(path, mmap_mode="r") for path in paths]


def score_model(model: Path, quantized: Path, sets: dict[str, Path], work: Path) -> Scores:
    """Score an int8 model on every sample set.

    Args:
        model: the float model.
        quantized: the int8 model.
        sets: sample files by role.
        work: keeps the float outputs, in a folder for each role.
    """
    float_proto, proto = onnx.load(model), onnx.load(quantized)
    logits = find_logits(float_proto)
    candidates = [tuple(output.name for output in float_proto.graph.output)]
    candidates += same_tensors(proto, logits) if logits.any else []
    names = tuple(dict.fromkeys(name for tensors in candidates for name in tensors))
    session = open_proto(with_outputs(proto, names))
    found: Scores = {}
    for role, samples in sets.items():
        write_reference(model, samples, work / role)
        exact = [_kept(work / role, "plain"), *[_kept(work / role, "logits")] * 2]
        rows: list[list[float | None]] = []
        for k, feed in enumerate(read_feeds(session, samples)):
            values = dict(zip(names, session.run(None, feed), strict=True))
            sides = zip(candidates, exact[: len(candidates)], strict=True)
            rows.append([_sample([values[n] for n in tensors], e, k) for tensors, e in sides])
        found[role] = _pick([list(column) for column in zip(*rows, strict=True)])
    return found


def same_tensors(proto: onnx.ModelProto, logits: Logits) -> list[tuple[str, ...]]:
    """Return where an int8 model may have the logits of the float model, best guess first.

    They are found by the same walk, or by their names.
    """
    own = find_logits(proto)
    there = {name for node in proto.graph.node for name in node.output}
    found = [own.tensors] if own.kinds == logits.kinds else []
    return found + ([logits.tensors] if there.issuperset(logits.tensors) else [])


def _pick(columns: list[list[float | None]]) -> dict[str, list[float]]:
    """Return the scores of the outputs, and of the first candidate that fits every sample."""
    whole = [[value for value in column if value is not None] for column in columns]
    fitting = [
        part for part, column in zip(whole, columns, strict=True) if len(part) == len(column)
    ]
    if not fitting or fitting[0] is not whole[0]:
        raise ValueError("outputs have other types or shapes than those of the float model")
    return {"plain": fitting[0], "logits": fitting[1] if len(fitting) > 1 else fitting[0]}


def _sample(found: list[Array], expected: list[Array], k: int) -> float | None:
    """Return the SQNR of sample k over all tensors; None if types or shapes differ."""
    signal = noise = 0.0
    for array, b in zip(expected, found, strict=True):
        a = array[k]
        if a.shape != b.shape or b.dtype.kind != a.dtype.kind:
            return None
        exact = np.asarray(a, np.float64)
        signal += float(np.square(exact).sum())
        noise += float(np.square(exact - b).sum())
    return decibels(signal, noise)


def score_apart(model: Path, quantized: Path, sets: dict[str, Path], work: Path) -> Scores | str:
    """Score in a process of its own; return why there are no figures if it fails."""
    roles = [f"{role}={path}" for role, path in sets.items()]
    module = [sys.executable, "-m", "recipes.reference"]
    command = [*module, str(model), str(quantized), str(work), *roles]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"scoring: {lines[-1][:200] if lines else f'exit code {done.returncode}'}"
    found: Scores = json.loads(done.stdout)
    return found


def _roles(arguments: list[str]) -> Iterator[tuple[str, Path]]:
    for argument in arguments:
        role, _, path = argument.partition("=")
        yield role, Path(path)


def main() -> None:
    """Print the scores of one int8 model as JSON."""
    model, quantized, work = map(Path, sys.argv[1:4])
    print(json.dumps(score_model(model, quantized, dict(_roles(sys.argv[4:])), work)))


if __name__ == "__main__":
    main()
