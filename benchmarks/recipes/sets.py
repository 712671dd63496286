"""Samples on disk: made once, written as .npz with the names of the model's inputs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from recipes.data import COUNTS, Role, fold
from recipes.feeds import open_session, read_feeds, settle
from recipes.models import Feeds, Recipe

# What samples, and the model the peers get, depend on.
_SOURCES = ("data.py", "feeds.py", "models.py", "sound.py", "text.py")
_ROLES: tuple[Role, ...] = ("calib", "score", "others")


@dataclass(frozen=True)
class Sets:
    """The sample files of one recipe.

    Attributes:
        model: the float model.
        settled: the same for the peers, with fixed shapes; made when they are measured.
        calib: calibration samples.
        score: samples for SQNR.
        others: samples for agreement besides those scored, or None.
    """

    model: Path
    settled: Path
    calib: Path
    score: Path
    others: Path | None


def prepare(name: str, recipe: Recipe, shared: Path, work: Path) -> Sets:
    """Write what is not there yet.

    Args:
        name: of the recipe, and of its folder in ``work``.
        recipe: the recipe.
        shared: folder with ``models`` and ``data``.
        work: where sample sets are kept; made by other recipes, they are made anew.
    """
    # Whole paths: they are handed to other processes.
    model = (shared / "models" / recipe.model / "model.onnx").resolve()
    folder = (work / name).resolve()
    fresh = _stamp(folder)
    if not fresh:
        (folder / "settled.onnx").unlink(missing_ok=True)
    for role in _ROLES:
        path, count = folder / f"{role}.npz", COUNTS.get(role, recipe.others)
        if count and not (fresh and path.exists()):
            write(path, recipe.make(shared / "data", model, role, count))
    (folder / "recipes.sha256").write_text(_digest())
    others = folder / "others.npz" if recipe.others else None
    return Sets(model, folder / "settled.onnx", folder / "calib.npz", folder / "score.npz", others)


def settle_model(sets: Sets) -> None:
    """Write the model as the peers need it, if it is not there yet."""
    if not sets.settled.exists():
        feed = next(read_feeds(open_session(sets.model), sets.calib))
        onnx.save(settle(sets.model, feed), sets.settled)


def write(path: Path, feeds: Feeds) -> None:
    """Write arrays by input name, whole or not at all."""
    part = path.with_suffix(".part.npz")
    np.savez(part, **feeds)  # type: ignore[arg-type]
    part.rename(path)


def _stamp(folder: Path) -> bool:
    """Return whether what lies in the folder was made by the recipes as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "recipes.sha256"
    return stamp.exists() and stamp.read_text() == _digest()


def _digest() -> str:
    here = Path(__file__).parent
    sources = [(here / name).read_bytes() for name in _SOURCES]
    return hashlib.sha256(b"".join([*sources, bytes([fold()])])).hexdigest()
