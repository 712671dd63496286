"""``npuconv check`` with a baseline: what is accepted passes, what is new fails."""

from __future__ import annotations

import json
import os
from pathlib import Path

import onnx
import pytest

from support.builders import Net

BASELINE = "npuconv-baseline.json"


def volume(*names):
    """A model with these convolutions, none of which the target takes."""
    net = Net(x=(1, 4, 8, 8, 8))
    for name in names:
        net.conv(net.last or "x", (4, 4, 3, 3, 3), pads=[1] * 6, name=name)
    return net.model()


@pytest.fixture
def bad(folder):
    """Writes a model with these bad nodes."""

    def write(*names, path="bad.onnx"):
        onnx.save(volume(*names), folder / path)
        return path

    return write


def accepted(folder, path=BASELINE):
    return [(e["model"], e["node"]) for e in json.loads((folder / path).read_text())["findings"]]


def test_accept_then_pass_then_fail_anew(cli, bad, folder):
    """The way a repository goes."""
    path = bad("a", "b")
    assert cli("check", path).code == 1
    done = cli("check", path, "--write-baseline")
    assert done.code == 0
    assert done.err == f"npuconv: wrote {BASELINE}: 2 findings accepted, 2 of them new; 0 gone\n"
    assert accepted(folder) == [("bad.onnx", "a"), ("bad.onnx", "b")]
    done = cli("check", path, "--baseline", BASELINE)
    assert (done.code, done.err) == (0, "")
    said = "2 accepted errors: rank-unsupported x 2; it still cannot be converted"
    assert said in " ".join(done.out.split())
    assert "2 findings accepted by the baseline; -v shows them" in done.out
    assert "Conv of rank 5" not in done.out
    assert "Conv of rank 5" in cli("check", path, "--baseline", BASELINE, "-v").out
    bad("a", "b", "c")
    done = cli("check", path, "--baseline", BASELINE)
    assert done.code == 1
    assert "1 error: rank-unsupported x 1" in done.out
    assert "\n  c: " in done.out


def test_stale_entries_are_named(cli, bad, folder):
    """Every format names stale entries; a new file has none."""
    path = bad("a", "b")
    cli("check", path, "--write-baseline")
    bad("a")
    done = cli("check", path, "--baseline", BASELINE)
    assert done.code == 0
    assert "an entry of the baseline can go: SHP001 b" in done.out
    done = cli("check", path, "--write-baseline")
    assert "1 finding accepted, 0 of them new; 1 gone" in done.err
    assert accepted(folder) == [("bad.onnx", "a")]


def test_models_that_went_are_named(cli, bad, model, folder):
    """Entries of models that are gone are named, as only then they are removed."""
    bad("a", "b"), bad("a", path="other.onnx")
    cli("check", "bad.onnx", "other.onnx", "--write-baseline")
    (folder / "bad.onnx").unlink()
    (folder / "other.onnx").unlink()
    done = cli("check", model, "--baseline", BASELINE)
    assert done.code == 0
    assert done.err.splitlines() == [
        f"npuconv: {BASELINE}: bad.onnx is not there any more: its 2 entries can go",
        f"npuconv: {BASELINE}: other.onnx is not there any more: its entry can go",
    ]
    assert cli("check", model, "--baseline", BASELINE, "-q").err == ""


def test_other_models_keep_their_entries(cli, bad, folder):
    """A run of one model renews that model alone; a reason given by hand stays."""
    bad("a"), bad("a", path="other.onnx")
    cli("check", "bad.onnx", "other.onnx", "--write-baseline")
    data = json.loads((folder / BASELINE).read_text())
    data["findings"][0]["why"] = "the host runs it"
    (folder / BASELINE).write_text(json.dumps(data))
    bad("b", "a")
    cli("check", "bad.onnx", "--write-baseline", "--baseline", BASELINE)
    assert accepted(folder) == [("bad.onnx", "a"), ("bad.onnx", "b"), ("other.onnx", "a")]
    assert '"why": "the host runs it"' in (folder / BASELINE).read_text()


def test_no_absolute_path(cli, bad, folder, monkeypatch):
    """Wherever the command is run, and however the model is named."""
    (folder / "ci").mkdir()
    cli("check", folder / bad("a"), "--write-baseline", "--baseline", folder / "ci/b.json")
    assert accepted(folder, "ci/b.json") == [("../bad.onnx", "a")]
    assert str(folder) not in (folder / "ci/b.json").read_text()
    monkeypatch.chdir(folder / "ci")
    assert cli("check", "../bad.onnx", "--baseline", "b.json").code == 0
    assert cli("check", folder / "bad.onnx", "--baseline", folder / "ci/b.json").code == 0


def test_only_what_fails_is_written(cli, model, folder):
    """Unknown limits are accepted where they fail, and nowhere else."""
    cli("check", model, "--write-baseline")
    assert accepted(folder) == []
    cli("check", model, "--write-baseline", "--fail-on", "unknown")
    assert accepted(folder)
    assert cli("check", model, "--fail-on", "unknown").code == 1
    assert cli("check", model, "--fail-on", "unknown", "--baseline", BASELINE).code == 0
    done = cli("check", model, "--write-baseline", "--fail-on", "never")
    assert done.code == 2
    assert "give the --fail-on that you want to pass" in done.error


def test_in_a_configuration(cli, bad, folder):
    """``baseline:`` is a key like others."""
    (folder / "c.yaml").write_text("baseline: accepted.json\n")
    path = bad("a")
    assert cli("check", path, "--config", "c.yaml", "--write-baseline").code == 0
    assert accepted(folder, "accepted.json") == [("bad.onnx", "a")]
    assert cli("check", path, "--config", "c.yaml").code == 0


def test_the_same_baseline_twice(cli, bad, folder):
    """The same bytes."""
    cli("check", bad("b", "a"), "--write-baseline")
    first = (folder / BASELINE).read_bytes()
    cli("check", "bad.onnx", "--write-baseline")
    assert (folder / BASELINE).read_bytes() == first


def test_a_baseline_that_cannot_be_used(cli, bad, folder):
    """Code 2, before a model is looked at or after; nothing is overwritten."""
    path = bad("a")
    done = cli("check", path, "--baseline", "gone.json")
    assert (done.code, done.out) == (2, "")
    assert "gone.json: cannot read" in done.error
    (folder / BASELINE).write_text("mine")
    done = cli("check", path, "--write-baseline")
    assert done.code == 2
    assert "is not JSON" in done.error
    assert (folder / BASELINE).read_text() == "mine"
    assert cli("check", path, "--write-baseline", "--baseline", "no/where.json").code == 2


def test_broken_among_accepted(cli, bad, folder):
    """An unreadable model gives code 2, and the others are accepted."""
    (folder / "broken.onnx").write_bytes(b"\x00\x01")
    assert cli("check", bad("a"), "broken.onnx", "--write-baseline").code == 2
    assert accepted(folder) == [("bad.onnx", "a")]


def test_convert_refuses_what_is_accepted(cli, bad, folder):
    """No model that the device cannot run, whatever a baseline says."""
    cli("check", bad("a"), "--write-baseline")
    done = cli("convert", "bad.onnx", "--baseline", BASELINE)
    assert done.code == 1
    assert "it still cannot be converted" in " ".join(done.out.split())
    assert not (folder / "bad.npu.onnx").exists()


@pytest.mark.parametrize("form", ["sarif", "junit", "github", "markdown", "json"])
def test_formats(cli, bad, form):
    """Accepted findings are listed and are no failure."""
    cli("check", bad("a"), "--write-baseline")
    out = cli("check", "bad.onnx", "--baseline", BASELINE, "--output-format", form).out
    if form == "sarif":
        (result,) = [r for r in json.loads(out)["runs"][0]["results"] if r["ruleId"] == "SHP001"]
        assert result["suppressions"][0]["status"] == "accepted"
        (entry,) = json.loads(Path(BASELINE).read_text())["findings"]
        print_ = result["partialFingerprints"]["primaryLocationLineHash"]
        assert print_ == f"{entry['fingerprint']}:1"
    elif form == "junit":
        assert 'failures="0"' in out
        assert "accepted by the baseline" in out
    elif form == "github":
        assert out.startswith("::notice")
        assert "; 1 finding accepted" in out
        assert "::error" not in out
    elif form == "markdown":
        assert "1 finding accepted by the baseline" in out
    else:
        assert json.loads(out)["summary"]["accepted"] == 1


def test_severity(cli, bad, folder):
    """A flag and a key; a flag that says nothing is refused."""
    path = bad("a")
    assert cli("check", path, "--severity", "SHP001=warning").code == 0
    assert (
        cli("check", path, "--severity", "SHP001=warning,OPS=note", "--severity", "DTY=note").code
        == 0
    )
    (folder / "c.yaml").write_text("severity: {rank-unsupported: note}\n")
    assert cli("check", path, "--config", "c.yaml").code == 0
    assert cli("check", path, "--config", "c.yaml", "--severity", "SHP001=error").code == 0
    assert (
        cli("check", path, "--config", "c.yaml", "--severity", "rank-unsupported=error").code == 1
    )
    assert "is not CODE=LEVEL" in cli("check", path, "--severity", "SHP001").err
    assert "'fatal' is not one of" in cli("check", path, "--severity", "SHP001=fatal").error


def test_rules_of_some_models(cli, bad, model, folder):
    """The pattern fits the model of that folder alone."""
    (folder / "old").mkdir()
    bad("a", path="old/bad.onnx"), bad("a")
    (folder / "c.yaml").write_text("rules:\n  old/*.onnx: {ignore: [rank-unsupported]}\n")
    assert cli("check", "old", "--config", "c.yaml").code == 0
    assert cli("check", folder / "old", "--config", "c.yaml").code == 0
    assert cli("check", "old", "bad.onnx", model, "--config", "c.yaml").code == 1
    (folder / "c.yaml").write_text("rules:\n  old/*.onnx: {ignored: [SHP]}\n")
    done = cli("check", "old", "--config", "c.yaml")
    assert done.code == 2
    assert f"c.yaml:2:{16}" in done.error
    assert os.fspath(folder) not in done.error
