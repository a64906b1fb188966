"""``sparklog completion``: what a shell is told, so that it completes commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "sparklog"
VARIABLE = "_SPARKLOG_COMPLETE"
"""Click asks for completions by it: of a program's name in capitals."""

_CUT_AT_COMMAS, _CUT_ONCE = 'string split "," $completion', 'string split --max 1 "," $completion'
"""What click says to fish would end a description at its first comma."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options, and the names of topics and groups that the cluster has.

    Names are those of the cluster that the line names by --bootstrap, or else SPARKLOG_BOOTSTRAP.

    \b
    Examples:
      sparklog completion bash > ~/.local/share/bash-completion/completions/sparklog
      sparklog completion zsh > ~/.zfunc/_sparklog
      sparklog completion fish > ~/.config/fish/completions/sparklog.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source()
    click.echo(source.replace(_CUT_AT_COMMAS, _CUT_ONCE))
