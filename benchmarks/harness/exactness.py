"""Integers of the simulator and of npuconv's arithmetic against onnxruntime, for all operators.

Each model is converted for a target that lists every operator, with few samples: only equality of
integers matters, not accuracy. Then every int8 tensor of the simulator is compared with the tensor
of onnxruntime, node by node as written, and ``npuconv.arithmetic`` computes every operator beside
convolutions from its inputs in onnxruntime. The exit code is 1 if a tensor of the simulator
differs, or an operator by more than one step.

onnxruntime does not shift: with ``--requantize shift`` the operators are computed from their
inputs in the simulator, and must be equal to the simulator.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import npuconv
from harness.commands import SHARED
from harness.listed_operators import COMPUTED, EXACT, write_target
from harness.models import recipes
from npuconv.arithmetic.rescaling import FLOAT
from npuconv.arithmetic.whole import WholeArray
from npuconv.config import Options
from npuconv.emit.int8_operators import listed_operators
from npuconv.errors import NpuconvError
from npuconv.evaluate.pairs import choose_samples, open_model
from npuconv.evaluate.simulator import as_float
from npuconv.evaluate.vectors import rescaling
from npuconv.executor import Session, with_outputs
from npuconv.target import Target


@dataclass
class Count:
    """Integers of one kind of operator: how many, how many differ, and by how much at most."""

    values: int = 0
    different: int = 0
    steps: int = 0

    def observe(self, ours: np.ndarray, theirs: np.ndarray) -> None:
        """Compare two int8 arrays."""
        apart = np.abs(ours.astype(np.int16) - theirs.astype(np.int16))
        self.values += apart.size
        self.different += int((apart > 0).sum())
        self.steps = max(self.steps, int(apart.max(initial=0)))


def integers(model: onnx.ModelProto) -> list[str]:
    """Return the int8 tensors that the model makes by rounding."""
    return [
        node.output[0]
        for node in model.graph.node
        if node.op_type == "QuantizeLinear" or node.op_type.startswith("QLinear")
    ]


def compare(model: onnx.ModelProto, target: Target, path: Path) -> dict[str, Count]:
    """Compare one int8 model; the simulator counts as ``simulator``."""
    path.write_bytes(model.SerializeToString())
    opened = open_model(path)
    samples, _ = choose_samples((opened, opened), None, Options(), 1, None)
    rounded, how = integers(model), rescaling(target.activations.requantize)
    operators = list(listed_operators(model, target))
    # Also what only moves integers makes, where an operator reads it.
    read = (name for op in operators for name in op.sources if name not in op.constants)
    names = list(dict.fromkeys((*rounded, *read)))
    ours = Session(as_float(model, names), optimize=False).run(samples[0], names)
    theirs = ours
    if how == FLOAT:
        theirs = Session(with_outputs(model, names), optimize=False).run(samples[0], names)
    counts: dict[str, Count] = defaultdict(Count)
    for name in rounded:
        counts["simulator"].observe(ours[name], theirs[name])  # with shifts this counts only
    for operator in operators:
        tensors = {**theirs, **operator.constants}
        kind = operator.op if not operator.steps or "+" not in operator.op else "table of several"
        inputs = [WholeArray.from_array(tensors[name]) for name in operator.sources]
        counts[kind].observe(operator.compute(inputs, how).values, theirs[operator.result])
    return counts


def main(arguments: list[str]) -> int:
    """Compare and print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(recipes()), default=list(recipes()))
    parser.add_argument("--format", choices=["qoperator", "qdq"], default="qoperator")
    parser.add_argument("--requantize", choices=["float", "shift"], default="float")
    parser.add_argument("--shared", type=Path, default=SHARED)
    options = parser.parse_args(arguments)
    total: dict[str, Count] = defaultdict(Count)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        listed = (*EXACT, *COMPUTED)
        target = write_target(folder / "everything.yaml", listed, options.requantize)
        for name in options.models:
            recipe = recipes()[name]
            try:
                result = npuconv.convert(
                    options.shared / "models" / recipe.model / "model.onnx",
                    str(target),
                    format=options.format,
                    max_samples=4,
                    verify=False,
                    input_shape={k: list(v) for k, v in recipe.shapes.items()},
                )
                counts = compare(result.model, Target.load(target), folder / "int8.onnx")
            except NpuconvError as error:
                print(f"{name}: {error}", flush=True)
                continue
            apart = {k: c.different for k, c in counts.items() if c.different}
            print(f"{name}: {counts['simulator'].values} integers, apart: {apart}", flush=True)
            for kind, count in counts.items():
                sums = total[kind]
                sums.values += count.values
                sums.different += count.different
                sums.steps = max(sums.steps, count.steps)
    print("\n| integers of | compared | different | steps at most |\n|---|---|---|---|")
    for kind, count in sorted(total.items()):
        print(f"| {kind} | {count.values} | {count.different} | {count.steps} |")
    allowed = 1 if options.requantize == "float" else 0
    bound = {"simulator": 0}
    return int(any(count.steps > bound.get(kind, allowed) for kind, count in total.items()))
