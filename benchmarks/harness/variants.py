"""Variants to compare: the converter, without a step, in another version, and its peers.

Results are kept in a folder by a hash of source, options and samples: a second run skips finished
conversions. Sources are copied before the first conversion, so that edits during a run do not mix
versions.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import statistics
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import onnx

from harness.feeds import open_session, read_feeds, settle
from harness.process import measure
from harness.quantizers import Peer
from harness.samples import Entry
from harness.scores import Scores, decibels, from_json, score_apart

_SCORING = ("feeds.py", "scores.py")
_GIB = 20.0


@dataclass(frozen=True)
class Variant:
    """One way to convert every model.

    Attributes:
        label: name of the row or column.
        command: command that runs npuconv; empty for a peer.
        source: copy of the source folder, for the import path.
        arguments: options besides the options of the model.
        peer: another quantizer instead of npuconv.
        blind: whether the conversion has no calibration data.
    """

    label: str
    command: tuple[str, ...] = ()
    source: Path | None = None
    arguments: tuple[str, ...] = ()
    peer: Peer | None = None
    blind: bool = False

    def line(self, entry: Entry, work: Path, target: Path) -> list[str]:
        """Return the command line that converts a model."""
        if self.peer is not None:
            settled = settled_model(entry, work / "settled" / f"{entry.name}.onnx")
            return self.peer.line(settled, entry.calib, target)
        data = [] if self.blind else ["--calibration", str(entry.calib)]
        options = ["-o", str(target), *data, "-q"]
        start = ["env", f"PYTHONPATH={self.source}", *self.command, "-m", "npuconv", "convert"]
        return [*start, str(entry.model), *options, *entry.arguments, *self.arguments]

    def key(self, entry: Entry) -> str:
        """Return a hash of all inputs of a conversion."""
        stamps = [f"{path} {path.stat().st_mtime_ns}" for path in (entry.model, entry.calib)]
        source = self.source.name if self.source else ""
        peer = [str(self.peer.python), *self.peer.words] if self.peer else []
        parts = [source, *self.arguments, *entry.arguments, *peer, *stamps, *["blind"] * self.blind]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@dataclass
class Result:
    """Result of a variant on a model.

    Attributes:
        seconds: wall time of the conversion.
        mib: its peak memory.
        error: why there are no scores.
        scores: by role.
        scoring: hash of what scored it.
    """

    seconds: float = 0.0
    mib: float = 0.0
    error: str = ""
    scores: Scores = field(default_factory=dict)
    scoring: str = ""

    def mean_db(self, role: str, kind: str) -> float | None:
        """Return the mean over samples of the SQNR in dB; None without figures."""
        score = self.scores.get(role)
        if score is None or self.error:
            return None
        powers = score.plain if kind == "plain" else score.logits
        return statistics.fmean(decibels(*pair) for pair in powers)


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
        """Convert and score, or read the result of an earlier run."""
        key = variant.key(entry)
        path = self.work / "results" / entry.name / f"{key}.json"
        model = self.work / "int8" / entry.name / f"{key}.onnx"
        scoring, result = _digest(entry), None
        if path.exists():
            result = Result(**json.loads(path.read_text()))
            result.scores = from_json(result.scores)  # type: ignore[arg-type]
            if result.scoring == scoring and not (result.error and self.retry):
                return result
        if result is None or result.error or not model.exists():
            result = self._convert(variant, entry, model)
        result.scoring = scoring
        if not result.error:
            floats = self.work / "float" / entry.name
            scores = score_apart(entry.model, model, entry.scored, floats, entry.top1)
            if isinstance(scores, str):
                result.error = scores
            else:
                result.scores = scores
        if not self.keep:
            model.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(result)))
        return result

    def _convert(self, variant: Variant, entry: Entry, model: Path) -> Result:
        """Convert in a process of its own; only the model is kept."""
        model.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "int8.onnx"
            line = variant.line(entry, self.work, target)
            run = measure(line, seconds=self.seconds, gib=_GIB)
            error = run.error or ("" if target.exists() else "wrote no model")
            if not error:
                shutil.move(target, model)
        return Result(run.seconds, run.mib, error)


def settled_model(entry: Entry, path: Path) -> Path:
    """Write the model as peers need it, with fixed shapes, unless it exists; return its path."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        feed = next(read_feeds(open_session(entry.model), entry.calib))
        onnx.save(settle(entry.model, feed), path)
    return path


def _digest(entry: Entry) -> str:
    """Return a hash of the scoring and of the samples that are scored."""
    here = Path(__file__).parent
    contents = [(here / name).read_bytes() for name in _SCORING]
    stamps = [f"{path} {path.stat().st_mtime_ns}".encode() for path in entry.scored.values()]
    return hashlib.sha256(b"".join([*contents, *stamps])).hexdigest()[:24]


def copy_source(source: Path, work: Path) -> Path:
    """Copy a source folder to a folder that is named after its contents; return the copy."""
    files = sorted(
        path
        for path in (source / "npuconv").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
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


def known_steps(command: tuple[str, ...], source: Path) -> list[str]:
    """Return the steps that a version can leave out; none if it knows of no steps."""
    code = "from npuconv.quantize.settings import STEPS; print(*STEPS, sep='\\n')"
    line = ["env", f"PYTHONPATH={source}", *command, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []
