"""Variants to compare: the converter as it is, without a step, of another version, and peers.

Results are kept in a folder by a hash of source, options and samples: a second run only does
what is new. Sources are copied before the first conversion, so that changing them meanwhile
does not mix versions.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from recipes.contenders import Contender
from recipes.measure import Measured, measure
from recipes.reference import Scores, score_apart
from recipes.sets import Sets, settle_model
from recipes.zoo import Entry

_SCORING = ("feeds.py", "reference.py", "saturation.py")
_GIB = 20.0


@dataclass(frozen=True)
class Variant:
    """One way to convert every model.

    Attributes:
        label: name of the row or column.
        command: what runs npuconv; empty for a peer.
        source: folder on the path, as a copy.
        arguments: options besides those of the model.
        peer: another quantizer instead.
        blind: without calibration data.
    """

    label: str
    command: tuple[str, ...] = ()
    source: Path | None = None
    arguments: tuple[str, ...] = ()
    peer: Contender | None = None
    blind: bool = False

    def line(self, entry: Entry, work: Path, target: Path) -> list[str]:
        """Return the command line that converts a model."""
        if self.peer is not None:
            settled = work / "settled" / f"{entry.name}.onnx"
            settled.parent.mkdir(parents=True, exist_ok=True)
            sets = Sets(entry.model, settled, entry.calib, entry.calib, None)
            settle_model(sets)
            return self.peer.line([], sets, target)
        data = [] if self.blind else ["--calibration", str(entry.calib)]
        options = ["-o", str(target), *data, "-q"]
        start = ["env", f"PYTHONPATH={self.source}", *self.command, "-m", "npuconv", "convert"]
        return [*start, str(entry.model), *options, *entry.arguments, *self.arguments]

    def key(self, entry: Entry) -> str:
        """Return what a conversion depends on, as a hash."""
        stamps = [f"{path} {path.stat().st_mtime_ns}" for path in (entry.model, entry.calib)]
        source = self.source.name if self.source else ""
        peer = [*self.peer.command, *(self.peer.tail or ())] if self.peer else []
        parts = [source, *self.arguments, *entry.arguments, *peer, *stamps, *["blind"] * self.blind]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@dataclass
class Result:
    """Result of a variant on a model.

    Attributes:
        seconds: wall time of the conversion.
        mib: its peak memory.
        error: why there are no scores.
        scores: dB of each sample, by role and kind.
        scoring: hash of what scored it.
    """

    seconds: float = 0.0
    mib: float = 0.0
    error: str = ""
    scores: Scores = field(default_factory=dict)
    scoring: str = ""


@dataclass(frozen=True)
class Bench:
    """Folder of results, and how conversions are run.

    Attributes:
        work: folder of results, float outputs and copies of sources.
        seconds: a conversion is ended after that.
        keep: keep the int8 models.
        retry: try again what failed in an earlier run.
    """

    work: Path
    seconds: int = 900
    keep: bool = False
    retry: bool = False

    def run(self, variant: Variant, entry: Entry) -> Result:
        """Convert and score, or read what an earlier run found."""
        key = variant.key(entry)
        path = self.work / "results" / entry.name / f"{key}.json"
        model = self.work / "int8" / entry.name / f"{key}.onnx"
        known = Result(**json.loads(path.read_text())) if path.exists() else None
        if known and known.scoring == _digest(entry) and not (known.error and self.retry):
            return known
        if known and not known.error and model.exists():
            found = known
        else:
            found = self._convert(variant, entry, model)
        if not found.error:
            self._score(found, entry, model)
        if not self.keep:
            model.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(found)))
        return found

    def _convert(self, variant: Variant, entry: Entry, model: Path) -> Result:
        """Convert in a process of its own; only the model is kept."""
        model.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "int8.onnx"
            line = variant.line(entry, self.work, target)
            done: Measured = measure(line, seconds=self.seconds, gib=_GIB)
            error = done.error or ("" if target.exists() else "wrote no model")
            if not error:
                shutil.move(target, model)
        return Result(done.seconds, done.mib, error, scoring=_digest(entry))

    def _score(self, found: Result, entry: Entry, model: Path) -> None:
        scores = score_apart(entry.model, model, entry.scored, self.work / "float" / entry.name)
        found.scoring = _digest(entry)
        if isinstance(scores, str):
            found.error = scores
        else:
            found.scores = scores


def _digest(entry: Entry) -> str:
    """Return a hash of the scoring and of the samples that are scored."""
    here = Path(__file__).parent
    contents = [(here / name).read_bytes() for name in _SCORING]
    stamps = [f"{path} {path.stat().st_mtime_ns}".encode() for path in entry.scored.values()]
    return hashlib.sha256(b"".join([*contents, *stamps])).hexdigest()[:24]


def copy_source(source: Path, work: Path) -> Path:
    """Copy a source folder to one that is named after its contents, and return that."""
    files = sorted(path for path in (source / "npuconv").rglob("*") if _is_source(path))
    if not files:
        raise FileNotFoundError(f"{source}: no package npuconv in it")
    whole = hashlib.sha256()
    for path in files:
        whole.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes())
    target = work / "sources" / whole.hexdigest()[:16]
    if not target.exists():
        part = target.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        for path in files:
            copy = part / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        part.rename(target)
    return target


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def known_steps(command: tuple[str, ...], source: Path) -> list[str]:
    """Return the steps that a version can leave out; none if it knows of no steps."""
    code = "from npuconv.quantize.settings import STEPS; print(*STEPS, sep='\\n')"
    line = ["env", f"PYTHONPATH={source}", *command, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def count_lines(step: str, source: Path) -> int | None:
    """Return the lines of code of the module or folder named after a step, or None."""
    name = step.replace("-", "_")
    found = [path for path in source.rglob(f"{name}.py") if path.is_file()]
    found += [path for folder in source.rglob(name) for path in folder.rglob("*.py")]
    lines = (line for path in set(found) for line in path.read_text().splitlines())
    return sum(1 for line in lines if line.strip()) if found else None
