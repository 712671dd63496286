"""Steps, versions and options compared over models, and what a second run does."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import ablation
import onnx
import pytest
from harness import variants
from harness.samples import read_entries
from harness.scores import Score, score_model
from harness.variants import Result, copy_source, known_steps
from small_models import classifier, write_converter, write_sets

PYTHON = (sys.executable,)
pytestmark = pytest.mark.e2e  # each of its conversions is a process


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """A converter that copies, and two models with samples; scored in this process."""
    monkeypatch.setattr(variants, "score_apart", score_model)
    model = tmp_path / "float.onnx"
    onnx.save(classifier(), model)
    for name in ("a", "b"):
        write_sets(tmp_path / "sets", model, name, held=name == "b")
    source = write_converter(tmp_path / "src")
    options = {"sets": tmp_path / "sets", "work": tmp_path / "work", "base-src": source}
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return ablation.parse([*arguments, "--json", str(tmp_path / "out.json"), "--steps", "gptq"])


def _run(given: Namespace) -> ablation.Results:
    return ablation.run(given, ablation.choose(given), list(ablation.variants(given)))


def _calls(given: Namespace) -> list[str]:
    path = next(given.work.glob("sources/*")).parent / "calls.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_each_model_is_converted_by_each_variant_once(given: Namespace) -> None:
    found = _run(given)
    assert list(found) == ["default", "without gptq"]
    assert found["default"]["a"].mean_db("foreign", "logits") == 60
    calls = _calls(given)
    assert len(calls) == 4
    assert sum("--without gptq" in call for call in calls) == 2
    assert _run(given) == found
    assert _calls(given) == calls
    assert not list(given.work.rglob("int8/*/*.onnx"))


def test_a_changed_source_is_another_version(given: Namespace) -> None:
    _run(given)
    (given.base_src / "npuconv" / "more.py").write_text("")
    _run(given)
    assert len(_calls(given)) == 8


def test_failures_are_reported(given: Namespace, capsys: pytest.CaptureFixture[str]) -> None:
    given.variants = ["--fail"]
    found = _run(given)
    ablation.show(found, ablation.choose(given))
    assert "- a, --fail: asked to fail" in capsys.readouterr().out


def test_failures_can_be_tried_again(given: Namespace, tmp_path: Path) -> None:
    log = tmp_path / "tried.txt"
    main = given.base_src / "npuconv" / "__main__.py"
    main.write_text(f"open({str(log)!r}, 'a').write('x')\nraise SystemExit('no luck')\n")
    given.steps = []
    for given.retry, tries in ((False, 2), (False, 2), (True, 4)):
        _run(given)
        assert len(log.read_text()) == tries


def test_slow_models_can_be_skipped(given: Namespace) -> None:
    given.under = 0
    found = _run(given)
    assert len(found["default"]) == 2
    assert not found["without gptq"]


def test_everything_is_written(given: Namespace) -> None:
    _run(given)
    written = json.loads(given.json.read_text())
    assert written["models"]["b"] == {"held": True, "source": "package"}
    assert written["results"]["without gptq"]["b"]["mean"]["score"]["plain"] == 60.0


def test_models_can_be_chosen(given: Namespace) -> None:
    given.no_held = True
    assert [entry.name for entry in ablation.choose(given)] == ["a"]
    given.models = ["c"]
    with pytest.raises(SystemExit, match="has no c"):
        ablation.choose(given)


def test_other_versions_have_names(given: Namespace, tmp_path: Path) -> None:
    other = write_converter(tmp_path / "other")
    (other / "npuconv" / "__init__.py").write_text("# older\n")
    given.src, given.steps = [f"old={other}"], []
    labels = [variant.label for variant in ablation.variants(given)]
    assert labels == ["default", "old"]


def test_steps_are_asked_of_the_version(tmp_path: Path) -> None:
    source = write_converter(tmp_path)
    assert known_steps(PYTHON, source) == []
    steps = source / "npuconv" / "quantize"
    steps.mkdir()
    (steps / "__init__.py").write_text("")
    (steps / "settings.py").write_text("STEPS = ('gptq', 'range-margin')\n")
    assert known_steps(PYTHON, source) == ["gptq", "range-margin"]


def test_copies_are_named_after_their_contents(tmp_path: Path) -> None:
    source = write_converter(tmp_path / "src")
    first = copy_source(source, tmp_path)
    assert copy_source(source, tmp_path) == first
    (source / "npuconv" / "__init__.py").write_text("x = 1\n")
    assert copy_source(source, tmp_path) != first
    with pytest.raises(FileNotFoundError, match="no package npuconv"):
        copy_source(tmp_path / "nowhere", tmp_path)


def power(db: float) -> tuple[float, float]:
    """Signal and noise of a sample with this SQNR."""
    return 1.0, 10 ** (-db / 10)


def _results(**values: float) -> dict[str, Result]:
    return {
        name: Result(1.0, scores={"score": Score([power(db)], [power(db), power(db + 1)])})
        for name, db in values.items()
    }


def test_changes_are_counted(tmp_path: Path) -> None:
    model = tmp_path / "float.onnx"
    onnx.save(classifier(), model)
    for name in "abcd":
        write_sets(tmp_path / "sets", model, name)
    every, held, *_ = [*ablation.groups(read_entries(tmp_path / "sets")), None]
    assert every is not None
    assert held is not None
    assert held.role == "foreign"
    base, other = _results(a=30, b=30, c=30, d=30), _results(a=31, b=30.2, c=27)
    other["d"] = Result(error="no luck")
    change = ablation.compare(base, other, every, "logits")
    assert change is not None
    assert (change.models, change.wins, change.losses) == (3, 1, 1)
    assert change.mean == pytest.approx(-0.6)
    assert (change.best[1], change.worst[1]) == ("a", "c")
    assert (change.best[0], change.worst[0]) == pytest.approx((1, -3))
    row = ablation.table(every, base, {"step": other}).splitlines()[-1]
    assert row == "| step | -0.60 | -0.60 | 1 / 1 | +1.0 a | -3.0 c | 3 | x 1.00 |"
    assert ablation.compare(base, other, held, "logits") is None
