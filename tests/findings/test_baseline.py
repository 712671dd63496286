"""Files of accepted findings: read, written, renewed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npuconv.errors import ConfigError
from npuconv.findings import baseline, fingerprint
from npuconv.findings.baseline import (
    Baseline,
    Entry,
    entry,
    orphans,
    read,
    relative_name,
    updated,
    write,
)

TARGET = "npu-int8"
UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def one(model="m.onnx", code="SHP001", node="n", why=""):
    made = entry(model, TARGET, code, "a-name", node)
    return made.model_copy(update={"why": why})


def test_a_fingerprint_tells_findings_apart():
    """Every part counts, and none can be taken for the next."""
    parts = ("m", "t", "SHP001", "n")
    assert len(fingerprint(*parts)) == 16
    others = [(*parts[:at], "x", *parts[at + 1 :]) for at in range(4)]
    assert len({fingerprint(*p) for p in (parts, *others, ("m", "tSHP001", "", "n"))}) == 6
    assert one().fingerprint == fingerprint("m.onnx", TARGET, "SHP001", "n")


@settings(suppress_health_check=UNCHECKED)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_what_is_written_is_read(tmp_path, names):
    """Whatever a node is called; a finding is a line, and no character is hidden."""
    made = Baseline(findings=tuple(one(node=name) for name in names))
    path = tmp_path / "b.json"
    write(path, made)
    assert read(path) == made
    text = path.read_text("utf-8")
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text.splitlines()) == (5 + len(names) if names else 4)


def test_names_stay_readable(tmp_path):
    """Letters of any language are no escapes."""
    write(tmp_path / "b.json", Baseline(findings=(one(node="层/卷积"),)))
    assert "层/卷积" in (tmp_path / "b.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", ":1:2: is not JSON"),
        ("[]", "b.json: "),
        ('{"version": 2}', "version: 2 is not 1"),
        ('{"findings": [{"model": "m"}]}', "findings.0.target: this key is required"),
        ('{"findings": [{"model": 1, "target": "t", "code": "c"}]}', "findings.0.model"),
        ('{"finding": []}', "finding: unknown key"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_what_is_no_baseline(tmp_path, text, said):
    """The line says what and where."""
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert said in str(caught.value)
    assert "b.json" in str(caught.value)


def test_what_cannot_be_read(tmp_path):
    """A file that is not there says how to make one; bytes are no text."""
    with pytest.raises(ConfigError, match=r"cannot read.*--write-baseline"):
        read(tmp_path / "b.json")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read(tmp_path / "b.json")


@pytest.mark.parametrize("start", [".", "models", ".."])
def test_models_are_called_by_their_way_from_the_file(tmp_path, monkeypatch, start):
    """The same from wherever the command is run, and never absolute."""
    (tmp_path / "repo" / "models").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repo" / start)
    root = tmp_path / "repo"
    there = Path(start)
    relative = {".": Path(), "models": Path(".."), "..": Path("repo")}[str(there)]
    for model in (root / "models/a.onnx", relative / "models/a.onnx"):
        for path in (root / "b.json", relative / "b.json"):
            assert relative_name(path, model) == "models/a.onnx"
    assert relative_name(root / "b.json", tmp_path / "a.onnx") == "../a.onnx"


def test_a_model_on_another_drive(monkeypatch):
    """No relative path leads to another drive."""

    def refuse(*_):
        raise ValueError

    monkeypatch.setattr(baseline.os.path, "relpath", refuse)
    assert relative_name("b.json", "models/a.onnx") == "a.onnx"


def test_what_is_accepted_of_a_model():
    """Acceptance holds for this target only."""
    other = one().model_copy(update={"target": "other"})
    made = Baseline(findings=(one(), one(node="b"), one("x.onnx"), other))
    assert set(made.accepted_counts("m.onnx", TARGET)) == {("SHP001", "n"), ("SHP001", "b")}
    assert made.accepted_counts("m.onnx", "other") == {("SHP001", "n"): 1}


def test_updated(tmp_path):
    """Models looked at are replaced and keep their reasons; other existing ones stay."""
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
    old = Baseline(
        findings=(
            one("a.onnx", node="kept", why="known"),
            one("a.onnx", node="gone"),
            one("b.onnx"),
            one("c.onnx"),
        )
    )
    found = [one("a.onnx", node="kept"), one("a.onnx", node="added"), one("a.onnx", node="added")]
    new = updated(old, found, {("a.onnx", TARGET)}, tmp_path)
    assert [(e.model, e.node, e.why, e.count) for e in new.findings] == [
        ("a.onnx", "added", "", 2),
        ("a.onnx", "kept", "known", 1),
        ("b.onnx", "n", "", 1),
    ]


def test_orphans(tmp_path):
    """Models that are no longer there."""
    (tmp_path / "a.onnx").touch()
    made = Baseline(findings=(one("a.onnx"), one("c.onnx"), one("c.onnx", node="b")))
    assert orphans(made, tmp_path) == {"c.onnx": 2}


def test_an_entry_written_by_hand(tmp_path):
    """Model, target and code are enough; it may say why."""
    text = json.dumps({"findings": [{"model": "m", "target": "t", "code": "MDL001", "why": "w"}]})
    (tmp_path / "b.json").write_text(text)
    (made,) = read(tmp_path / "b.json").findings
    assert made == Entry(model="m", target="t", code="MDL001", why="w")
