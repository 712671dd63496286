"""``npuconv init`` writes a configuration that the other commands find."""

from __future__ import annotations

import json

import pytest

from npuconv.cli.init import starting_config
from npuconv.config import Options, make_options
from npuconv.config_files import read_config


def test_found_and_named(cli, model, folder):
    """The file is used from its folder and below, and named on stderr unless -q."""
    done = cli("init")
    assert done.code == 0
    assert done.err == "npuconv: wrote npuconv.yaml, npuconv.schema.json\n"
    assert "seed" in json.loads((folder / "npuconv.schema.json").read_text())["properties"]
    (folder / "npuconv.yaml").write_text("target: nowhere\n")
    done = cli("check", model)
    assert done.code == 2
    assert "options of npuconv.yaml" in done.err
    assert "nowhere" in done.err
    assert cli("check", model, "--config", "none").code == 0
    (folder / "npuconv.yaml").write_text("ignore: [OPS001]\n")
    assert cli("check", model, "-q") == type(done)(0, "", "")


@pytest.mark.usefixtures("in_process")
def test_every_command_runs_on_the_new_file(cli, model, folder):
    """The file holds only comments, and every command that reads options takes it."""
    assert cli("init", "-q").code == 0
    (folder / "jobs.yaml").write_text(f"version: 1\njobs: [{{model: {model}}}]\n")
    done = [
        cli("check", model),
        cli("convert", model),
        cli("verify", model, "model.npu.onnx"),
        cli("vectors", "model.npu.onnx", "-o", "vectors"),
        cli("batch", "jobs.yaml"),
        cli("target", "explore", model),
    ]
    assert [command.code for command in done] == [0] * 6
    assert "options of npuconv.yaml" in done[0].err


def test_not_over_another(cli, folder):
    """An existing file stays, unless --force is given."""
    (folder / "npuconv.yaml").write_text("seed: 1\n")
    assert "is there already" in cli("init").error
    assert (folder / "npuconv.yaml").read_text() == "seed: 1\n"
    assert cli("init", "--force", "-q").code == 0
    assert (folder / "npuconv.yaml").read_text() == starting_config()


def test_every_key_can_be_uncommented(tmp_path):
    """Each key has its default once its # is removed."""
    lines = starting_config().splitlines()
    assert lines[0].startswith("# yaml-language-server: $schema=")
    keys = [line[2:] for line in lines if line[2:].partition(":")[0] in Options.model_fields]
    assert len(keys) == 9
    path = tmp_path / "npuconv.yaml"
    path.write_text("\n".join(keys) + "\n")
    assert make_options(read_config(path)) == Options()
