"""Distance of int8 models from the float one; all are run by onnxruntime as it comes.

Run as a script it scores files one after the other and prints a line of JSON each, so that
a model that takes the runtime down takes nothing else with it.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recipes.feeds import Array, open_session, read_feeds
from recipes.measure import environment


@dataclass
class Sums:
    """Sums that SQNR and cosine need, added up sample by sample in float64."""

    signal: float = 0.0
    noise: float = 0.0
    other: float = 0.0
    dot: float = 0.0

    def add(self, expected: Array, found: Array) -> None:
        """Count one array in."""
        a, b = (np.asarray(value, np.float64).ravel() for value in (expected, found))
        self.signal += float(a @ a)
        self.other += float(b @ b)
        self.dot += float(a @ b)
        self.noise += float(np.square(a - b).sum())

    @property
    def sqnr(self) -> float:
        """10 log10 of signal by noise, in dB."""
        if not math.isfinite(self.noise):
            return -math.inf
        return 10 * math.log10(self.signal / self.noise) if self.noise and self.signal else math.inf

    @property
    def cosine(self) -> float:
        """Cosine of the two vectors; 1 is the same direction."""
        length = math.sqrt(self.signal * self.other)
        return self.dot / length if length else math.nan


@dataclass
class Score:
    """Figures of one int8 model.

    Attributes:
        whole: over all outputs together.
        outputs: by output.
        many: of the first output, over all samples whose answers are compared.
        agreed: how many answers are those of the float model.
        answers: how many answers there are; none where the model does not classify.
        error: why there are no figures.
    """

    whole: Sums = field(default_factory=Sums)
    outputs: dict[str, Sums] = field(default_factory=dict)
    many: Sums = field(default_factory=Sums)
    agreed: int = 0
    answers: int = 0
    error: str = ""

    @property
    def agreement(self) -> float | None:
        """Share of the same answers."""
        return self.agreed / self.answers if self.answers else None

    @classmethod
    def read(cls, line: str) -> Score:
        """Back from JSON."""
        values: dict[str, Any] = json.loads(line)
        values["whole"], values["many"] = Sums(**values["whole"]), Sums(**values["many"])
        values["outputs"] = {name: Sums(**sums) for name, sums in values["outputs"].items()}
        return cls(**values)


class Reference:
    """A float model and what it says of some samples.

    Args:
        model: the float model.
        scored: samples for SQNR; their answers are compared, too.
        others: samples of which only the first output is compared.
        top1: axis of the classes of the first output; None compares no answers.
    """

    def __init__(self, model: Path, scored: Path, others: Path | None, top1: int | None) -> None:
        self._top1 = top1
        session = open_session(model)
        self.names = [output.name for output in session.get_outputs()]
        self._scored = [(f, session.run(self.names, f)) for f in read_feeds(session, scored)]
        rest = read_feeds(session, others) if others and top1 is not None else ()
        self._others = [(f, session.run(self.names[:1], f)[0]) for f in rest]

    def score(self, model: Path) -> Score:
        """Run an int8 model on the same samples."""
        session, score = open_session(model), Score()
        score.outputs = {name: Sums() for name in self.names}
        for feed, expected in self._scored:
            found = session.run(self.names, feed)
            for name, a, b in zip(self.names, expected, found, strict=True):
                score.outputs[name].add(a, b)
                score.whole.add(a, b)
            if self._top1 is not None:
                self._compare(score, expected[0], found[0])
        for feed, first in self._others:
            self._compare(score, first, session.run(self.names[:1], feed)[0])
        return score

    def _answers(self, output: Array) -> Array:
        assert self._top1 is not None
        return np.argmax(output, self._top1)

    def _compare(self, score: Score, expected: Array, output: Array) -> None:
        answers = self._answers(expected)
        score.agreed += int((answers == self._answers(output)).sum())
        score.answers += answers.size
        score.many.add(expected, output)


def score_files(
    model: Path, scored: Path, others: Path | None, top1: int | None, files: Sequence[Path]
) -> list[Score]:
    """Score files in a process of their own; one that takes it down gets an error.

    Args:
        model: the float model.
        scored: samples for SQNR.
        others: samples of which only the first output is compared.
        top1: axis of the classes, or None.
        files: int8 models.
    """
    fixed = [str(model), str(scored), str(others or ""), "" if top1 is None else str(top1)]
    found: list[Score] = []
    while len(found) < len(files):
        rest = list(map(str, files[len(found) :]))
        command = [sys.executable, "-m", "recipes.scoring", *fixed, *rest]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment()
        )
        found += map(Score.read, done.stdout.splitlines())
        if done.returncode:
            found.append(Score(error=f"onnxruntime ended with {done.returncode}"))
    return found


def main() -> None:
    """Print a line of JSON for each file."""
    model, scored, others, top1 = sys.argv[1:5]
    rest = Path(others) if others else None
    reference = Reference(Path(model), Path(scored), rest, int(top1) if top1 else None)
    for file in sys.argv[5:]:
        try:
            score = reference.score(Path(file))
        except Exception as error:  # onnxruntime's have no common base
            score = Score(error=str(error).splitlines()[0][:200])
        print(json.dumps(asdict(score)), flush=True)


if __name__ == "__main__":
    main()
