"""``npuconv explain``."""

from __future__ import annotations

import click

from npuconv.cli.help import printed_option


@click.command()
@click.argument("code", required=False)
@click.option("--all", "everything", is_flag=True, help="explain all rules and passes")
@printed_option("text", "json", "markdown")
def explain(code: str | None, everything: bool, form: str) -> int:
    """Explain a rule or a pass: what, why, how to fix.

    CODE is a rule's code (SHP002) or name (group-unsupported), or a pass's name
    (fuse-batchnorm). The beginning of several (SHP, fuse) lists these; without it, all
    are listed.
    """
    from npuconv.cli import catalog, screen

    if code:
        click.echo(catalog.explain(code, form, screen.terminal()), nl=False)
    elif everything or form != "text":  # a list to be read by people is no such document
        click.echo(catalog.explain_all(form), nl=False)
    else:
        click.echo(catalog.listing(screen.terminal()), nl=False)
    return 0
