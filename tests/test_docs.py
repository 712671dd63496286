"""The documentation against the tool: links, commands, flags, codes, generated pages."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from npuconv.cli import cli
from npuconv.legalize.registry import PASSES
from npuconv.rules import RULES

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
WRITTEN += sorted((ROOT / "samples").rglob("*.md")) + sorted((ROOT / "docs").glob("*.md"))
PAGES = WRITTEN + sorted((ROOT / "docs/reference").glob("*.md"))
GUIDES = (
    "tutorial",
    "report",
    "accuracy",
    "verify",
    "batch",
    "targets",
    "writing_rules",
    "writing_passes",
    "ci",
)
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"\b(?:MDL|OPS|SHP|DTY|QNT|MEM|CAL)\d{3}\b")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
each_written = pytest.mark.parametrize(
    "page", WRITTEN, ids=lambda p: p.relative_to(ROOT).as_posix()
)


def prose(page: Path) -> str:
    """The text of a page without its fenced blocks."""
    return FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """Return the links of a page that stay on this host."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    found = re.findall(r"\]\(\s*<?([^)\s>]+)", text)
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    """Names that the headings of a page get on GitHub."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", head.lower()) for head in heads)
    return {head.strip().replace(" ", "-") for head in plain}


def commands(text: str) -> Iterator[list[str]]:
    """Words of every ``npuconv`` command in the fenced blocks, up to a pipe or a comment."""
    for block in FENCE.findall(text):
        for line in re.sub(r" *\\\n *", " ", block).splitlines():
            found = re.match(r"^[\s\-#$]*(?:run: )?(npuconv .*)$", line)
            if found and not re.match(r"npuconv: |npuconv \d", found[1]):
                yield _words(found[1])


def _words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|;&<>"):
            break
        words.append(word)
    return words[1:-1] if words[-1:] == ["2"] else words[1:]


def parse(words: list[str]) -> click.Command:
    """The command of a line of documentation, its flags looked up.

    Raises:
        AssertionError: no such command, or no such flag of it.
    """
    command: click.Command = cli
    rest = list(words)
    ctx = click.Context(cli, **cli.context_settings)  # commands keep the flags of help they see
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        inner = command.get_command(ctx, name)
        assert inner is not None, f"no command {name!r} in {words}"
        command = inner
    known = {flag for option in command.get_params(ctx) for flag in option.opts}
    known |= {flag for option in command.get_params(ctx) for flag in option.secondary_opts}
    for word in rest:
        flag = word.partition("=")[0]
        if re.match(r"^--?[a-zA-Z]", flag):
            assert flag in {*known, "--help", "-h"}, f"no flag {flag!r}: npuconv {words}"
    return command


def described(text: str) -> set[str]:
    """Codes and names that a page makes itself, as the worked examples do."""
    codes = re.findall(r'@rule\(\s*"(\w+)"', text)
    names = re.findall(r"@(?:rule|register_pass)\(.*?\ndef (\w+)", text, re.DOTALL)
    return {*codes, *(name.replace("_", "-") for name in names)}


def test_every_guide_is_there():
    """The README leads to every guide."""
    found = links(ROOT / "README.md")
    assert [g for g in GUIDES if not (ROOT / f"docs/{g}.md").is_file()] == []
    assert [g for g in GUIDES if g != "ci" and f"docs/{g}.md" not in found] == []


@each_page
def test_links_lead_somewhere(page: Path):
    """Files are there, and so are the headings in them."""
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


@each_written
def test_commands_exist(page: Path):
    """Every command line in a block: the command and all of its flags."""
    found = list(commands(page.read_text("utf-8")))
    for words in found:
        parse(words)
    assert found or page.stem not in GUIDES


def test_commands_in_comments_exist():
    """Configurations say how they are used."""
    for path in sorted((ROOT / "configs").rglob("*.yaml")):
        for words in commands(f"```\n{path.read_text('utf-8')}```\n"):
            parse(words)


@pytest.mark.parametrize(
    "line", ["npuconv frobnicate", "npuconv check m.onnx --frob", "npuconv target frob x"]
)
def test_a_command_that_does_not_exist_is_found(line: str):
    """The test above can fail."""
    (words,) = commands(f"```\n$ {line} | head\n```\n")
    with pytest.raises(AssertionError):
        parse(words)


def test_a_command_over_several_lines():
    """A command ends at the pipe, the redirection or the comment."""
    text = "```\n$ npuconv convert m.onnx \\\n    --method mse \\\n    2> log | head --frob\n```\n"
    assert list(commands(text)) == [["convert", "m.onnx", "--method", "mse"]]


@each_written
def test_flags_in_the_text_exist(page: Path):
    """Flags are those of any command; those of other programs stand in blocks only."""
    known = {"--help", "--check"}
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        inner = command.commands.values() if isinstance(command, click.Group) else [command]
        known |= {
            flag for each in inner for p in each.params for flag in (*p.opts, *p.secondary_opts)
        }
    found = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", prose(page)))
    assert found <= known


@each_written
def test_codes_exist(page: Path):
    """Every code of a rule; the worked examples make their own."""
    text = page.read_text("utf-8")
    assert set(CODE.findall(text)) <= {rule.code for rule in RULES} | described(text)


@each_written
def test_explained_names_exist(page: Path):
    """Arguments of ``npuconv explain`` exist."""
    text = page.read_text("utf-8")
    known = {rule.code for rule in RULES} | set(RULES.names()) | set(PASSES.names())
    for name in re.findall(r"npuconv explain ([\w-]+)", text):
        assert name in known | described(text) | {"CODE", "NAME"}


@each_written
def test_a_code_and_its_name_belong_together(page: Path):
    """Pairs are like ``SHP002 group-unsupported``; cut output may end inside a name."""
    names = {rule.code: rule.name for rule in RULES}
    pairs = re.findall(r"\b([A-Z]{3}\d{3}) ([a-z]+(?:-[a-z]+)+)", page.read_text("utf-8"))
    assert [pair for pair in pairs if not names.get(pair[0], pair[1]).startswith(pair[1])] == []


@each_written
def test_benchmarks_exist(page: Path):
    """Every benchmark that a page names is a file, and has the command that follows."""
    for name, command in re.findall(r"benchmarks/(\w+)\.py(?: +(\w+))?", page.read_text("utf-8")):
        source = (ROOT / f"benchmarks/{name}.py").read_text("utf-8")
        assert not command or f'"{command}": ' in source or page.stem == "CHANGELOG", command


def test_paths_of_the_architecture_exist():
    """Every file and folder that the page names is there."""
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    named = re.findall(r"`([\w/*]+(?:\.(?:py|yaml|toml)|/))`", text)
    roots = (ROOT / "src/npuconv", ROOT)
    assert len(named) > 30
    assert [name for name in named if not any(any(root.glob(name)) for root in roots)] == []


def test_generated_pages_are_fresh(monkeypatch: pytest.MonkeyPatch):
    """``make docs`` writes them anew."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("gendocs", ROOT / "tools/gendocs.py")
    assert spec is not None
    assert spec.loader is not None
    gendocs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gendocs)
    stale = [
        path.relative_to(ROOT).as_posix()
        for path, text in gendocs.pages().items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]
    assert stale == []


def test_options_are_shown_as_yaml():
    """Defaults as a file has them, and the words that a key takes."""
    page = (ROOT / "docs/reference/options.md").read_text("utf-8")
    assert not re.search(r"`(None|True|False|\(.*?\))`", page)
    assert "| verify | `true` |" in page
    assert "| fail_on | `error` | `error`, `warning`, `unknown`, `never` |" in page
    assert "`--quiet`" in page


@pytest.mark.parametrize("name", GUIDES)
def test_guides_are_narrow(name: str):
    """80 columns, tables, links and the output of programs aside."""
    page = ROOT / f"docs/{name}.md"
    long = [line for line in prose(page).splitlines() if len(line) > 80 and line[0] != "|"]
    assert [line for line in long if "](" not in line] == []
