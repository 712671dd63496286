"""The sample sets of every model that is measured, shared or packaged, as folders.

A folder holds ``calib.npz``, ``score.npz``, where photographs are used ``foreign.npz``
(photographs of another collection), and ``meta.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from recipes.data import Role
from recipes.models import Recipe, recipes
from recipes.packages import HELD_OUT, Packaged, fetch, packaged
from recipes.sets import write

SAMPLES = 32
# Their weights are constants, or one inference takes more than 12 GMACs.
LEFT_OUT = frozenset({"light_densenet121", "lightshufflenet", "style_candy"})


@dataclass(frozen=True)
class Entry:
    """One model with its samples.

    Attributes:
        name: of the recipe.
        model: the float model.
        arguments: options of ``npuconv convert`` that the model needs.
        held: not looked at while steps are made.
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
        paths = {role: self.folder / f"{role}.npz" for role in ("score", "foreign")}
        return {role: path for role, path in paths.items() if path.exists()}


def read_entries(sets: Path) -> list[Entry]:
    """Read every folder of sample sets, sorted by name."""
    return [_read(path) for path in sorted(sets.glob("*/meta.json"))]


def _read(path: Path) -> Entry:
    values: dict[str, Any] = json.loads(path.read_text())
    values["model"] = Path(values["model"])
    return Entry(name=path.parent.name, folder=path.parent, **values)


def collect(sets: Path, shared: Path, packages: Path, foreign: Path | None) -> Iterator[Entry]:
    """Write the sample sets that do not exist yet.

    Args:
        sets: gets a folder for each model.
        shared: folder with ``models`` and ``data``.
        packages: keeps the models of packages.
        foreign: folder with ``photos`` of another collection, or None.
    """
    for name, recipe in recipes().items():
        model = (shared / "models" / recipe.model / "model.onnx").resolve()
        if name not in LEFT_OUT:
            entry = _entry(name, model, recipe, sets, source="shared", held=False)
            yield _fill(entry, recipe, shared / "data", foreign)
    for name, item in packaged().items():
        model = _free(fetch(item, packages), item).resolve()
        entry = _entry(name, model, item.recipe, sets, source="package", held=name in HELD_OUT)
        yield _fill(entry, item.recipe, shared / "data", foreign)


def _entry(name: str, model: Path, recipe: Recipe, sets: Path, *, source: str, held: bool) -> Entry:
    folder, arguments = (sets / name).resolve(), recipe.arguments
    return Entry(name, model, arguments, held, source, recipe.top1, recipe.synthetic, folder)


def _free(model: Path, item: Packaged) -> Path:
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


def _fill(entry: Entry, recipe: Recipe, data: Path, foreign: Path | None) -> Entry:
    """Write the samples of an entry, its meta file last."""
    meta = entry.folder / "meta.json"
    if not meta.exists():
        entry.folder.mkdir(parents=True, exist_ok=True)
        roles: dict[Role, Path] = {"calib": data, "score": data}
        if foreign and not recipe.synthetic:
            roles["foreign"] = foreign
        for role, source in roles.items():
            _make(entry, recipe, role, source)
        values = asdict(entry) | {"model": str(entry.model)}
        del values["name"], values["folder"]
        meta.write_text(json.dumps(values, indent=1) + "\n")
    return entry


def _make(entry: Entry, recipe: Recipe, role: Role, data: Path) -> None:
    """Write one sample set; labelled rows have no foreign photographs."""
    try:
        feeds = recipe.make(data, entry.model, role, SAMPLES)
    except FileNotFoundError:
        if role != "foreign":
            raise
        return
    write(entry.folder / f"{role}.npz", feeds)
