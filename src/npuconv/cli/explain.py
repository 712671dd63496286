"""``npuconv explain``: rules and passes as text, also for the reference pages.

Derived from the decorators and docstrings alone; nothing here names a rule or a pass.
"""

from __future__ import annotations

import difflib
import json
import textwrap
from collections.abc import Iterable
from typing import Any

import click

from npuconv.cli import screen
from npuconv.cli.help import output_format_option
from npuconv.errors import UsageError
from npuconv.legalize.registry import PASSES, Pass, Phase
from npuconv.rules import RULES, SECTIONS, Rule, find

MIN_SUMMARY = 20  # characters, on a screen of any width
_CHECKED = {
    "source": "on the model as it comes",
    "float": "on the float graph, before and after rewriting",
    "planned": "on the rewritten float graph, once it is known where every node runs",
    "form": "on the rewritten float graph, in the form of the output",
    "calibrated": "on the float graph with the results of calibration, by convert alone",
    "lowered": "on the written int8 graph",
    "measured": "on the measured error of the int8 model, by convert alone",
}


@click.command()
@click.argument("code", required=False)
@click.option("--all", "everything", is_flag=True, help="explain all rules and passes")
@output_format_option("text", "json", "markdown")
def explain(code: str | None, everything: bool, output_format: str) -> int:
    """Explain a rule or a pass: its check, its reason, its fix.

    CODE is a rule's code (SHP002) or name (group-unsupported), or a pass's name
    (fuse-batchnorm). The beginning of several (SHP, fuse) lists these; without it, all
    are listed.
    """
    if everything and not code:
        text = describe_all(output_format)
    else:
        text = describe(code or "", output_format, screen.terminal())
    click.echo(text, nl=False)
    return 0


def describe(code_or_name: str, form: str = "text", width: int | None = None) -> str:
    """Return one rule or pass, or all that begin so.

    Args:
        code_or_name: ``SHP002``, ``group-unsupported`` or ``fuse-batchnorm``; ``SHP`` and
            ``fuse-`` match several, an empty text all.
        form: text, json or markdown.
        width: columns that a line of a list may have; None for whole lines.

    Raises:
        UsageError: there is none of that name; suggests the nearest.
    """
    entry = None
    if rule := find(code_or_name):
        entry = _rule_entry(rule)
    elif item := PASSES.get(code_or_name):
        entry = _pass_entry(item)
    if entry is not None:
        return json.dumps(entry, indent=2) + "\n" if form == "json" else _RENDERERS[form](entry)
    start = code_or_name.lower()
    matches = [
        entry
        for entry in (*rules(), *passes())
        if any(str(entry.get(key, "")).lower().startswith(start) for key in ("code", "name"))
    ]
    if matches:
        return list_entries(matches, width) if form == "text" else _document(matches, form)
    names = [r.code for r in RULES] + RULES.names() + PASSES.names()
    words = (code_or_name, code_or_name.upper())
    near = [name for word in words for name in difflib.get_close_matches(word, names, 1)]
    hint = f"did you mean {near[0]}?" if near else "npuconv explain lists them"
    raise UsageError(f"no rule or pass is called {code_or_name!r}", hint=hint)


def describe_all(form: str = "text") -> str:
    """Return all rules and passes, one after the other."""
    return _document([*rules(), *passes()], form)


def _document(entries: list[dict[str, Any]], form: str) -> str:
    if form != "json":
        return "\n".join(map(_RENDERERS[form], entries))
    kinds = {"rules": "rule", "passes": "pass"}
    groups = {key: [e for e in entries if e["kind"] == kind] for key, kind in kinds.items()}
    return json.dumps(groups, indent=2) + "\n"


def list_entries(entries: Iterable[dict[str, Any]], width: int | None = None) -> str:
    """Return a line for each rule and pass.

    Args:
        entries: of ``rules`` and ``passes``.
        width: columns that a line may have; None for whole lines.
    """
    lines = []
    for entry in entries:
        head = f"{entry.get('code') or entry['phase']:<12} {entry['name']:<29} "
        text = str(entry["summary"])
        if width is not None:
            text = textwrap.shorten(text, max(width - len(head), MIN_SUMMARY), placeholder=" ...")
        lines.append(head + text)
    return "\n".join([*lines, "", "npuconv explain CODE tells more.", ""])


def rules() -> list[dict[str, Any]]:
    """Return all rules, by code."""
    return [_rule_entry(rule) for rule in sorted(RULES, key=lambda r: r.code)]


def passes() -> list[dict[str, Any]]:
    """Return all passes, by phase and name."""
    phases = list(Phase)
    return [_pass_entry(p) for p in sorted(PASSES, key=lambda p: (phases.index(p.phase), p.name))]


def _rule_entry(rule: Rule) -> dict[str, Any]:
    example = rule.example
    return {
        "kind": "rule",
        "code": rule.code,
        "name": rule.name,
        "severity": str(rule.severity),
        "summary": rule.summary,
        "sections": {title: rule.section(title) for title in SECTIONS},
        "example": {
            "fires": {"model": example.fires, "target": example.device},
            "silent": {"model": example.silent, "target": example.silent_device or example.device},
        },
        "message": rule.message,
        "limits": list(rule.limits),
        "checked": _CHECKED[rule.stage],
    }


def _pass_entry(item: Pass) -> dict[str, Any]:
    summary, _, details = item.doc.partition("\n\n")
    return {
        "kind": "pass",
        "name": item.name,
        "phase": str(item.phase),
        "summary": " ".join(summary.split()),
        "text": details.strip(),
        "after": list(item.after),
    }


def _text(entry: dict[str, Any]) -> str:
    if entry["kind"] == "pass":
        head = f"{entry['name']} (pass, {entry['phase']})"
        body = [_fill(p) for p in entry["text"].split("\n\n") if p]
        return "\n\n".join([head, _fill(entry["summary"]), *body]) + "\n"
    head = f"{entry['code']} {entry['name']} ({entry['severity']})"
    parts = [head, _fill(entry["summary"])]
    parts += [f"{title}:\n{_fill(text, '  ')}" for title, text in entry["sections"].items()]
    parts += [f"{title}:\n{textwrap.indent(text, '  ')}" for title, text in _examples(entry)]
    parts.append(f"Message:\n{_fill(entry['message'], '  ')}")
    if entry["limits"]:
        parts.append(f"Limits of the target file:\n{_fill(', '.join(entry['limits']), '  ')}")
    return "\n\n".join([*parts, f"Checked {entry['checked']}."]) + "\n"


def _examples(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """Return title and text of both examples, with the keys of the target as comments."""
    titles = {"fires": "An example that it finds", "silent": "One that it does not"}
    examples = []
    for kind, example in entry["example"].items():
        device = "".join(f"# target: {line}\n" for line in example["target"].splitlines())
        if example["model"]:
            examples.append((titles[kind], device + example["model"]))
    return examples


def _fill(text: str, indent: str = "") -> str:
    plain = " ".join(text.replace("``", "`").split())
    return textwrap.fill(plain, 79, initial_indent=indent, subsequent_indent=indent)


def _markdown(entry: dict[str, Any]) -> str:
    if entry["kind"] == "pass":
        text = f"*{entry['phase']}*: {entry['summary']}\n\n{entry['text'].replace('``', '`')}"
        return f"## {entry['name']}\n\n{text.rstrip()}\n"
    lines = [f"## {entry['code']} {entry['name']}", f"*{entry['severity']}*: {entry['summary']}"]
    lines += [f"**{title}.** {text}" for title, text in entry["sections"].items()]
    for title, text in _examples(entry):
        lines.append(f"{title}:\n\n```text\n{text}\n```")
    lines.append(f"**Message.** `{entry['message']}`")
    if entry["limits"]:
        names = ", ".join(f"`{name}`" for name in entry["limits"])
        lines.append(f"**Limits of the target file.** {names}")
    lines.append(f"Checked {entry['checked']}.")
    return "\n\n".join(lines) + "\n"


_RENDERERS = {"text": _text, "markdown": _markdown}
