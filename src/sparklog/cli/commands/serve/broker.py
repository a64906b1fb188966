"""``sparklog broker``: run one broker, see how brokers do, empty one.

To run a broker was the whole command before it was a group, and the units, images and scripts of many machines say so:
options that follow ``sparklog broker`` at once are those of ``run``, and nothing that follows it runs a broker too. A
broker has no arguments without a dash, so that no command line means both.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from sparklog.cli.commands.cluster.brokers import describe, list_
from sparklog.cli.commands.cluster.reassign import drain
from sparklog.cli.commands.serve.broker_run import run
from sparklog.cli.guesses import GuessingGroup


class RunUnlessNamed(GuessingGroup):
    """Runs ``run`` where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asks_for_help = bool(args) and args[0] in self.get_help_option_names(ctx)
        names_none = args[0].startswith("-") if args else not ctx.resilient_parsing
        return super().parse_args(ctx, [RUN, *args] if names_none and not asks_for_help else args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if not incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return run.shell_complete(click.Context(run, parent=ctx, resilient_parsing=True), incomplete)


RUN = "run"


@click.group(cls=RunUnlessNamed)
def broker() -> None:
    """Run one broker, see how the brokers of a cluster do, empty one.

    Without the name of a command it runs a broker: "sparklog broker --config FILE" is "sparklog broker run --config
    FILE", whose options "sparklog broker run --help" tells. "drain" is "sparklog cluster drain".

    \b
    Examples:
      sparklog broker --config server.properties
      sparklog broker list
      sparklog broker describe 1
      sparklog broker describe 1 --output json | jq '.directories'
      sparklog broker drain 1
    """


for _command in (run, list_, describe, drain):
    broker.add_command(_command)
