"""Text of check and convert: names, the next command, and the verdict once more."""

from __future__ import annotations

import re
import shutil

from click import BOOL

from npuconv.cli.convert import convert
from npuconv.cli.options import command_words
from npuconv.cli.verdict import after_convert
from npuconv.config import Options
from npuconv.schemas.quality import QuantizationInfo
from report.factory import make_clean


def test_one_screen(cli, model, refused):
    """check and convert fit a screen of 80 x 40, with all that they print on stderr."""
    for command in (["check", model], ["check", refused], ["convert", model]):
        done = cli(*command)
        lines = (done.out + done.err).splitlines()
        assert len(lines) <= 40
        assert max(map(len, done.out.splitlines())) <= 80


def test_next_command_has_the_flags(cli, model):
    """The command to run next has the flags of this one, and works."""
    done = cli("check", model, "--method", "minmax", "--no-offload", "--seed", "7")
    shown = done.out.partition("next: ")[2].replace("\\\n", " ")
    words = shown.split()
    assert words[:3] == ["npuconv", "convert", "model.onnx"]
    assert sorted(words[3:]) == ["--method", "--no-offload", "--seed", "7", "minmax"]
    assert cli(*words[1:3], "--format", "float").code == 0


def test_next_command_of_a_refusal(cli, refused):
    """A refusal is explained."""
    done = cli("check", refused)
    found = re.search(r"next: npuconv (explain \w+)\n", done.out)
    assert found is not None
    assert cli(*found[1].split()).code == 0


def test_next_command_after_data(cli, model, folder):
    """A conversion on data is followed by a verification on other data of the same kind."""
    import numpy as np

    np.savez(folder / "s.npz", x=np.random.default_rng(0).normal(size=(12, 1, 8, 8)).astype("f4"))
    done = cli("convert", model, "--calibration", "s.npz")
    shown = " ".join(done.out.partition("next: npuconv ")[2].replace("\\\n", " ").split())
    assert shown.startswith("verify model.onnx model.npu.onnx --data SAMPLES")
    (folder / "s.npz").rename(folder / "SAMPLES.npz")
    words = shown.replace("SAMPLES", "SAMPLES.npz").split()
    assert cli(*words[:5]).code == 0


def test_next_command_leaves_preprocessing_to_the_model():
    """The model keeps it; with a configuration, which may say another, it is repeated."""
    flags = {"calibration": "photos", "preprocess__preset": "unit"}
    quantized = QuantizationInfo(
        format="qdq", method="auto", samples=8, source="photos", synthetic=False
    )
    report = make_clean().model_copy(update={"quantization": quantized})
    words = [after_convert(report, "m.onnx", "o.onnx", one, flags) for one in (None, "c.yaml")]
    assert words[0] == "npuconv verify m.onnx o.onnx --data SAMPLES"
    assert words[1].endswith("--config c.yaml --preprocess unit --data SAMPLES")


def test_command_words():
    """Flags as they were written."""
    given = {"method": None, "offload": False, "keep_float": ("a", "b"), "preprocess__layout": "x"}
    assert command_words("c.yaml", given) == [
        "--config", "c.yaml", "--no-offload", "--keep-float", "a", "--keep-float", "b",
        "--input-layout", "x",
    ]  # fmt: skip


def test_command_words_of_switches_parse_to_the_same_values():
    """Every switch of convert, on and off, under its own name."""
    switches = [p for p in convert.params if p.name in Options.model_fields and p.type is BOOL]
    assert {"offload", "keep_scales", "standard_ops"} <= {p.name for p in switches}
    for param in switches:
        for flag in (*param.opts, *param.secondary_opts):
            flags = convert.make_context("convert", ["m.onnx", flag]).params
            given = {param.name: flags[param.name]}
            assert command_words(None, given) == [flag]


def test_verdict_comes_last_where_it_scrolled_away(cli, model):
    """-v is longer than a screen, so that the verdict is repeated at its end."""
    long, short = cli("check", model, "-v").out.splitlines(), cli("check", model).out.splitlines()
    assert len(long) > 40
    assert long[-1] == short[0] == "OK"
    assert short[-1] != short[0]


def test_several(cli, model, refused, folder):
    """Several models are a table, with details of those that fail."""
    (folder / "zoo" / "good").mkdir(parents=True)
    shutil.copy(model, folder / "zoo" / "good" / "model.onnx")
    shutil.copy(refused, folder / "zoo" / "bad.onnx")
    done = cli("check", "zoo")
    lines = done.out.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["bad.onnx", "REFUSED"], ["good", "OK"]]
    assert any(line.startswith("bad.onnx: REFUSED: ") for line in lines)
    assert lines[-1] == "2 models, 1 failed"


def test_clean_report_has_no_warning():
    """The factory's clean report stays clean: the tests of colour rest on it."""
    assert not make_clean().is_doubtful
