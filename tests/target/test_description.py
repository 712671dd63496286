"""Targets: what a chip can do, and what is not known."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from npuconv import yamlio
from npuconv.errors import TargetError
from npuconv.target import Target, builtin_names
from npuconv.target.limit import PREDICATES
from npuconv.target.lint import lint
from npuconv.yamlio import dotted
from support.target_files import HEAD, chip, described, document

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "configs" / "targets" / "my_chip.yaml"
KNOWN = "ethos-u55, horizon-x3, mediatek-mdla2, npu-int8, qnn-htp, rknn"


# relations


# targets


def test_builtin():
    """The built-in target says what the notes say, and no more."""
    assert "npu-int8" in builtin_names()
    target = Target.load("npu-int8")
    assert (target.name, target.file) == ("npu-int8", "npu-int8")
    conv = target.operator("Conv").limits_for("plain")
    assert conv["auto_pad"].text() == "NOTSET"
    assert conv["group"].text({"in_c": 32}) == "1 or C (=32)"
    assert conv["rank"].text() == "4"
    assert conv["pad_value"].text() == "0"
    assert conv["layout"].text() == "nchw"
    assert conv["dtype"].text() == conv["weight_dtype"].text() == "int8"
    assert target.unlisted_operators == "undocumented"
    assert all(
        limit.source.startswith("notes/")
        for path, limit in target.limits()
        if path[0] != "activations"
    )


def test_builtin_unknowns():
    """Limits that the owner marked ``?`` are unknown, and assumptions are listed."""
    target = Target.load("npu-int8")
    sides = ["dilation", "kernel", "stride"]
    expected = {f"{name}_{axis}" for name in sides for axis in "hw"}
    expected |= {f"pad_{side}" for side in ("top", "left", "bottom", "right")}
    expected |= {f"{tensor}_{axis}" for tensor in ("in", "weight") for axis in "nchw"}
    expected |= {"bias", "bias_dtype"}
    unknown = [dotted(path) for path, _ in target.unknown_limits()]
    assert unknown[-1] == "fused_activations"
    assert {path.removeprefix("operators.Conv.limits.") for path in unknown[:-1]} == expected
    assumptions = dict(target.assumptions())
    assert assumptions["fused_activations"] == "Relu, Clip"
    assert assumptions["bias.dtype"] == "int32"
    assert assumptions["weights.range"] == "-127..127"
    assert assumptions["activations.zero_point"] == "0"
    assert assumptions["operators.Conv.limits.bias"] == "true, false"
    assert target.bias.used == "int32"


def test_every_limit_of_the_notes_is_cited():
    """No limit of the built-in target without a document, and no document without a limit."""
    target = Target.load("npu-int8")
    cited = {part.source for _, part in target.cited()}
    # zero_point has the source of its block; output Y has nothing to set
    assert cited - {""} == set(target.sources) - {"notes/Y"}


def test_example_is_complete():
    """The example uses every predicate, every mode of writing, and is clean."""
    target = Target.load(EXAMPLE)
    assert lint(yamlio.load(EXAMPLE, error=TargetError)) == []
    used = {limit.predicate for _, limit in target.limits()}
    assert used == set(PREDICATES)
    assert target.operators["Conv"].modes
    assert target.file == str(EXAMPLE)


def test_modes_override():
    """The limits of a mode replace the general ones, fact by fact."""
    conv = Target.load(EXAMPLE).operator("Conv")
    assert conv.limits_for("plain")["kernel_h"].text() == "1..11"
    assert conv.limits_for("depthwise")["kernel_h"].text() == "1..8"
    assert conv.limits_for("depthwise")["stride_h"].text() == "1, 2 or 4"
    special = conv.limits_for("depthwise")["kernel_h"]
    assert " operators.Conv.modes.depthwise.kernel_h (" in special.cite()


def test_what_holds_for_all_operators():
    """An operator's own limits replace the common ones, its relations stand beside them."""
    text = """  Conv: {limits: {rank: {equals: 4}}, require: [{then: group == 1}]}
  Add: {}
all_operators:
  limits: {rank: {max: 4}, in_n: {equals: 1, source: manual}}
  require: [{then: in_h == in_w}]
"""
    target = described(text)
    conv, add = target.operator("Conv"), target.operator("Add")
    assert {k: v.text() for k, v in conv.limits.items()} == {"rank": "4", "in_n": "1"}
    assert {k: v.text() for k, v in add.limits.items()} == {"rank": "at most 4", "in_n": "1"}
    assert [r.then for r in conv.require] == ["in_h == in_w", "group == 1"]
    assert add.limits["in_n"].cite() == "t.yaml:10 all_operators.limits.in_n (manual)"
    assert target.operators["Add"].limits == {}
    assert target.operator("Add", "com.microsoft") is None


def test_operator_lookup():
    """An operator is found in its own domain only."""
    target = Target.load(EXAMPLE)
    assert target.operator("Conv") is target.operator("Conv", "ai.onnx")
    assert target.operator("Conv", "com.microsoft") is None
    assert target.operator("QLinearAdd", "com.microsoft") is not None
    assert target.operator("QLinearAdd") is None
    assert target.operator("Gemm") is None


def test_formats():
    """Zero points are a list, a range or unknown; the bias has a type to use."""
    assert described("  Conv: {}").activations.allows_zero_point(0) is True
    assert described("  Conv: {}").activations.allows_zero_point(3) is False
    free = described("  Conv: {}\nbias: {dtype: int16}")
    assert (free.bias.used, free.weights.range) == ("int16", (-127, 127))
    assert free.assumptions() == []
    text = (HEAD + "  Conv: {}").replace(
        "activations: {dtype: int8}", 'activations: {dtype: int8, zero_point: "?"}'
    )
    assert Target.from_document(document(text)).activations.allows_zero_point(0) is None
    assert Target.load(EXAMPLE).activations.allows_zero_point(-128) is True


def test_sha256(tmp_path):
    """The digest is that of the bytes of the file."""
    path = tmp_path / "t.yaml"
    path.write_bytes((HEAD + "  Conv: {}\r\n").encode())
    assert Target.load(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert Target.load(str(path)).yaml.endswith("\r\n")


def test_pickle():
    """A target goes to another process with its places, even after its relations were used."""
    target = Target.load(EXAMPLE)
    assert target.operators["Conv"].require[1].holds({"pad_top": 1, "pad_bottom": 1})
    copy = pickle.loads(pickle.dumps(target))
    assert copy == target
    assert copy.sha256 == target.sha256
    assert copy.operators["Conv"].limits["group"].cite().startswith(f"{EXAMPLE.name}:")


def test_file_without_a_suffix(tmp_path):
    """A file may have any name."""
    path = tmp_path / "chip"
    path.write_text(HEAD + "  Conv: {}")
    assert Target.load(path).name == "t"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("npu-in8", f"unknown target 'npu-in8'; known: {KNOWN} (did you mean 'npu-int8'?)"),
        ("zzz", f"unknown target 'zzz'; known: {KNOWN} (or give a .yaml file)"),
        ("zzz.yaml", "zzz.yaml: no such file"),
    ],
)
def test_unknown_target(name, message):
    """An unknown name lists the known ones and suggests one."""
    with pytest.raises(TargetError) as caught:
        Target.load(name)
    assert str(caught.value) == message


@pytest.mark.e2e
def test_operator_table_is_fresh():
    """The committed table is what the tool would write."""
    tool = ROOT / "tools" / "gen_operators.py"
    assert subprocess.run([sys.executable, tool, "--check"], check=False).returncode == 0


def test_operator_table():
    """The operators that the converter reads are known, each with its versions."""
    text = (ROOT / "src/npuconv/target/operators.json").read_text()
    table = json.loads(text)
    assert table[""]["Conv"]["since"] == [1, 11, 22]
    assert "activation_params" in table["com.ms.internal.nhwc"]["Conv"]["attributes"]
    assert set(table[""]["ConvTranspose"]["attributes"]) >= {"output_padding", "group"}


@pytest.mark.parametrize(("container", "form"), [("tflite", "tflite"), ("onnx", None)])
def test_container_is_the_older_key_of_format(container: str, form: str | None) -> None:
    """Files of users have it."""
    assert chip(also={"container": container}).format == form


def test_both_keys_of_format():
    """The older key is no suggestion for itself."""
    with pytest.raises(TargetError, match="container: unknown key") as caught:
        chip(also={"container": "onnx", "format": "tflite"})
    assert caught.value.hint == ""
