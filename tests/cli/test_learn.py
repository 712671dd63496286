"""``npuconv target learn``: the file that is written, what stays in it, and resuming."""

from __future__ import annotations

import json

import pytest

from npuconv.cli import learn as learn_module
from npuconv.target import Target
from npuconv.vendors import tool
from npuconv.vendors.learn import Verdict
from npuconv.yamlio import dotted
from support.target_files import HEAD
from support.vendor_tools import environment

FILE = """# an invented chip
schema: 1
name: chip
operators:
  Conv:
    limits:
      kernel_h: "?"          # tall
      stride_h: {limit: "?", why: unknown}
      stride_w: [1, 2]
      dilation_h:
        limit: "?"
      bias_dtype: "?"
  MaxPool: {limits: {kernel_h: "?"}}

activations: {dtype: int8}  # stored
weights: {dtype: int8}
"""
WRITTEN = """# an invented chip
schema: 1
name: chip
operators:
  Conv:
    limits:
      kernel_h: {range: [1, 11], source: probed, why: '12: too large'}          # tall
      stride_h: {range: [1, 11], source: probed, why: '12: too large'}
      stride_w: [1, 2]
      dilation_h:
        {range: [1, 11], source: probed, why: '12: too large'}
      bias_dtype: "?"
  MaxPool: {limits: {kernel_h: {range: [1, 11], source: probed, why: '12: too large'}}}

activations: {dtype: int8}  # stored
weights: {dtype: int8}
sources: {probed: 'compile {model}, models of one operator in qdq (16 channels, 3x3 and
"""


@pytest.fixture
def chip(folder, monkeypatch):
    """A target file, and a compiler in this process that has at most 11 of everything."""
    (folder / "chip.yaml").write_text(FILE)
    asked = []

    def ask(command, models):
        assert command == "compile {model}"
        asked.extend(models)
        keys = ("kernel_h", "stride_h", "stride_w", "dilation_h")
        return [Verdict(max(case[key] for key in keys) <= 11, "too large") for _, case in models]

    monkeypatch.setattr("npuconv.cli.learn.ask_command", ask)
    return asked


def learn(cli, *more):
    """Learn the limits of the chip."""
    return cli("target", "learn", "chip.yaml", "--command", "compile {model}", *more)


def test_a_file_keeps_everything_else(cli, folder, chip):
    """Comments, order, documented limits, and limits that nobody can ask for."""
    done = learn(cli, "-o", "new.yaml")
    assert (done.code, done.err) == (0, "npuconv: wrote new.yaml\n")
    assert (folder / "new.yaml").read_text().startswith(WRITTEN[: WRITTEN.index("sources")])
    target = Target.load("new.yaml")
    assert target.sources["probed"].startswith("compile {model}, models of one operator in qdq (16")
    assert [dotted(path) for path, _ in target.unknown_limits()] == [
        "operators.Conv.limits.bias_dtype",
        "fused_activations",
    ]
    text = " ".join(done.out.split())
    assert "Conv.kernel_h {range: [1, 11]} 12: too large" in text
    assert "contradictions to documented limits" in text
    assert "Conv.stride_w 1 or 2 3, 4, 8" in text
    assert "not asked for: operators.Conv.limits.bias_dtype, fused_activations" in text
    assert chip


def test_a_source_that_is_there(cli, folder, chip):
    """The source joins the others, in either style."""
    styles = ("sources:\n  manual: a book  # old\n", "sources: {manual: a book}\n")
    for sources in (*styles, "sources: {}\n", "sources: {\n  manual: a book\n  }\n"):
        (folder / "chip.yaml").write_text(FILE.replace("operators:\n", f"{sources}operators:\n"))
        assert learn(cli, "-q", "-o", "new.yaml").code == 0
        assert (
            list(Target.load("new.yaml").sources) == ["probed", "manual"][: 1 + ("book" in sources)]
        )
    assert chip


def test_a_file_that_was_learnt(cli, folder, chip):
    """The sources of both runs have names."""
    assert learn(cli, "-q", "-o", "new.yaml").code == 0
    text = (folder / "new.yaml").read_text().replace("stride_w: [1, 2]", "stride_w: '?'")
    (folder / "chip.yaml").write_text(text)
    assert learn(cli, "-q", "-o", "again.yaml").code == 0
    target = Target.load("again.yaml")
    assert list(target.sources) == ["probed-1", "probed"]
    limits = target.operators["Conv"].limits
    assert [limits[name].source for name in ("stride_h", "stride_w")] == ["probed", "probed-1"]
    assert chip


def test_a_run_goes_on(cli, folder, chip):
    """Answers are kept beside the file; another tool does not take them."""
    assert learn(cli, "-q", "-o", "new.yaml").code == 0
    number, text = len(chip), (folder / "new.yaml").read_text()
    answers = json.loads((folder / "new.yaml.answers").read_text())
    assert len(answers["answers"]) == number
    answers["date"] = "2001-02-03"
    (folder / "new.yaml.answers").write_text(json.dumps(answers))
    assert learn(cli, "-q", "-o", "new.yaml").code == 0
    assert len(chip) == number
    assert (folder / "new.yaml").read_text() != text
    assert "2001-02-03" in (folder / "new.yaml").read_text()
    assert learn(cli, "-q", "-o", "new.yaml", "--format", "float").code == 0
    assert len(chip) == 2 * number


@pytest.mark.parametrize(
    "junk",
    [b"", b"[" * 100_000, b"\xff", b'{"tool": 1}',
     b'{"tool": "x", "date": "", "answers": {"a": 1}}',
     b'{"tool": "x", "date": "", "answers": {"a": [true, ' + b"9" * 5000 + b"]}}"],
)  # fmt: skip
def test_answers_that_are_none(cli, folder, chip, junk):
    """One line, and nothing is asked or written."""
    (folder / "new.yaml.answers").write_bytes(junk)
    done = learn(cli, "-o", "new.yaml")
    assert done.code == 2
    assert "new.yaml.answers: is no file of answers (delete it)" in done.error
    assert not (folder / "new.yaml").exists()
    assert chip == []


def test_nothing_to_learn(cli, folder, chip):
    """Documented limits alone: contradictions, and no empty table."""
    (folder / "chip.yaml").write_text(f"{HEAD}  Conv: {{limits: {{stride_w: [1, 2]}}}}\n")
    done = learn(cli)
    assert "no undocumented limit can be asked for" in done.out
    assert "answer" not in done.out
    assert chip


def test_without_an_output(cli, folder, chip):
    """The table alone; a height and a width that are refused together."""
    (folder / "chip.yaml").write_text(FILE.replace("stride_w: [1, 2]", "stride_w: '?'"))
    done = learn(cli)
    assert done.code == 0
    assert "stride_w" in done.out
    assert sorted(path.name for path in folder.iterdir()) == ["chip.yaml"]
    assert chip


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "give either --vendor or --command"),
        (("--vendor", "qnn", "--command", "x"), "give either --vendor or --command"),
        (("--vendor", "vela", "--vendor-python", "python"), "--vendor vela: cannot be asked"),
        (("--vendor", "qnn", "--vendor-python", "absent"), "not installed"),
        (("--command", "x {model}", "-o", "absent/new.yaml"), "absent"),
        (("--command", "x '{model}"), "--command x '{model}: No closing quotation"),
        (("--command", "x {model}", "--vendor-python", "python"), "needs --vendor"),
        (("--vendor", "qnn", "--vendor-python", "."), "there is no file ."),
    ],
)
def test_wrong_flags(cli, folder, flags, message):
    (folder / "python").touch()
    done = cli("target", "learn", "npu-int8", *flags)
    assert done.code == 2
    assert message in done.error


@pytest.mark.e2e
def test_a_tool_is_asked(cli, folder, monkeypatch):
    """The version is in the source."""
    body = (
        "    size = len(Path(question['model']).read_bytes())\n"
        "    layers = [['a', 'Slice', 'NPU', ''], ['b', 'Conv', 'NPU', '']][size < 50_000 :]\n"
        "    return {'accepted': True, 'layers': layers}, None\n"
    )
    monkeypatch.setattr(tool, "_SCRIPTS", folder)  # the interpreter brings its own
    python = environment(folder, body)
    limits = "  Conv: {limits: {kernel_h: '?'}}\n"
    (folder / "chip.yaml").write_text(
        f"{FILE[: FILE.index('  Conv')]}{limits}{FILE[FILE.index('activations') :]}"
    )
    done = cli("target", "learn", "chip.yaml", "--vendor", "rknn", "--vendor-python", python)
    assert done.code == 0
    assert "asked rknn 1.2.3, models of one operator in float" in done.out
    assert "{range: [1, 1]}  2: Slice, Conv" in done.out


def test_an_interrupted_run_keeps_answers(cli, folder, chip, monkeypatch):
    """Each answer of a command is stored at once; the next run asks the others only."""
    (folder / "chip.yaml").write_text(FILE)
    ask, asked = learn_module.ask_command, []

    def ask_three(command, models):
        for verdict, model in zip(ask(command, models), models, strict=True):
            asked.append(model)
            if len(asked) == 4:
                raise KeyboardInterrupt
            yield verdict

    monkeypatch.setattr(learn_module, "ask_command", ask_three)
    done = learn(cli, "-o", "new.yaml")
    stored = json.loads((folder / "new.yaml.answers").read_text())["answers"]
    assert (done.code, len(stored)) == (130, 3)
    chip.clear()
    assert sorted(path.name for path in folder.iterdir()) == ["chip.yaml", "new.yaml.answers"]
    monkeypatch.setattr(learn_module, "ask_command", ask)
    assert learn(cli, "-q", "-o", "new.yaml").code == 0
    stored_too = json.loads((folder / "new.yaml.answers").read_text())["answers"]
    assert len(chip) == len(stored_too) - 3
