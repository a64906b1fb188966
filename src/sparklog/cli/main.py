"""``sparklog``: the group of commands, and what becomes of their errors.

A command's module is imported when the command is run, so that ``--help`` and ``broker`` start at once.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from itertools import pairwise
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from sparklog import __version__, not_compiled
from sparklog.cli.exit_status import BROKEN_PIPE, INTERRUPTED
from sparklog.cli.guesses import GuessingGroup
from sparklog.errors import SparklogError

_log = logging.getLogger(__name__)

ROOMS: dict[str, dict[str, str]] = {
    "serve": {
        "up": "Start a cluster on this machine: ZooKeeper and some brokers.",
        "demo": "The guided tour: a year of flights through a log and Spark.",
        "broker": "Run one broker until SIGTERM or Ctrl-C; see how brokers do.",
        "zookeeper": "Run one ZooKeeper, of an ensemble, until SIGTERM or Ctrl-C.",
    },
    "data": {
        "produce": "Write the lines of a file, or of standard input, to a topic.",
        "consume": "Print the records of topics.",
        "load": "Load files into a topic, by Spark.",
        "offload": "Move the records of topics into a table, by Spark.",
    },
    "watch": {
        "web": "Show the cluster in a browser.",
        "doctor": "Say what is wrong with the cluster, and what to type.",
        "top": "Show brokers, topics and groups as they go on, live.",
        "perf": "Measure how fast the cluster takes, gives and passes on records.",
    },
    "cluster": {
        "topic": "Create, list, describe, alter, trim and delete topics.",
        "group": "See consumer groups and their lag; set where they read on.",
        "cluster": "See how brokers and partitions do; elect leaders; move replicas.",
        "config": "See and change settings while the cluster runs.",
        "compact": "See how far compacted topics are cleaned; clean them now.",
        "erase": "Remove every record of some keys, for good; prove it.",
        "txn": "See and end open transactions.",
        "writes": "See and finish what Spark jobs left half-written.",
        "log": "Look into log directories, check their files; move partitions.",
    },
    "security": {
        "user": "See, add and delete the users that authenticate by SCRAM.",
        "token": "Make, see, renew and end delegation tokens.",
        "acl": "See, add and remove entries of access control lists.",
        "quota": "See, set and remove how much clients may have.",
        "cert": "Make certificates for TLS; see whose one is, and until when.",
    },
    "safety": {
        "backup": "Back topics up; list backups, read them again.",
        "restore": "Make topics of a backup.",
        "takeover": "See whether a running cluster of Kafka's can be taken over.",
    },
    "shell": {
        "completion": "Let bash, zsh or fish complete commands, options and names.",
    },
}
"""Commands and their summaries by room, in the order of the help.

The command NAME of ROOM is ``sparklog.cli.commands.ROOM.NAME.NAME``.
"""
COMMANDS = {name: summary for room in ROOMS.values() for name, summary in room.items()}
_ROOM_OF = {name: room for room, commands in ROOMS.items() for name in commands}

_OF_BYTES = ("-k", "--key-separator", "-f", "--format")
"""Options whose value is what is read or printed between texts: any bytes."""
_FORM = f"not compiled: {not_compiled}" if not_compiled else "compiled"


class LazyGroup(GuessingGroup):
    """Knows the summaries of its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"sparklog.cli.commands.{_ROOM_OF[cmd_name]}.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=COMMANDS[name]) for name in COMMANDS if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            _drop_output()  # the reader has gone
            ctx.exit(BROKEN_PIPE)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        widest = max(map(len, COMMANDS))
        for room, commands in ROOMS.items():
            with formatter.section(f"{room.capitalize()} commands"):
                formatter.write_dl([(name.ljust(widest), summary) for name, summary in commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sparklog", message=f"%(prog)s, version %(version)s ({_FORM})")
def cli() -> None:
    """A streaming log for people who live in PySpark: Kafka's format, Python brokers, format("sparklog").

    Start with "sparklog up" in one terminal; it says what to type in another. "sparklog COMMAND --help" has examples.
    """


def main() -> NoReturn:
    """Run a command, then exit: 0 done, 1 failed (one line on standard error says why), 2 misuse."""
    _open_standard_streams()
    try:
        _check_text(sys.argv[1:])
        status = cli(prog_name="sparklog", standalone_mode=False)
    except click.ClickException as misuse:
        misuse.show()
        status = misuse.exit_code
    except (click.Abort, KeyboardInterrupt):
        # The signal may have come between the making of a coroutine and its start.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        status = INTERRUPTED
    except (SparklogError, OSError) as error:
        from sparklog.cli.display import in_words

        status = _failed(in_words(error))
    except Exception as error:
        status = _failed(_unexpected(error))
    sys.exit(status if isinstance(status, int) else 0)


def _open_standard_streams() -> None:
    """Put /dev/null in place of those with which we were started closed, as by ``>&-``.

    Otherwise the next file or socket would get such a number, and what a library or a child prints would go there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: that of the stream
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _check_text(arguments: list[str]) -> None:
    """Names are sent as UTF-8. Raises UsageError for what is none, unless it may be the name of a file or is bytes."""
    for before, each in pairwise(["", *arguments]):
        is_bytes = before in _OF_BYTES or each.startswith(_OF_BYTES)
        if not (each.isascii() or is_bytes or "/" in each or os.path.exists(each)):
            try:
                each.encode()
            except UnicodeEncodeError:
                from sparklog.cli.display import path_text

                raise click.UsageError(
                    f"'{path_text(each)}' is not UTF-8, as a name must be; write a new file's as ./NAME"
                ) from None


def _failed(text: str) -> int:
    from sparklog.cli.display import printable_lines

    click.echo(f"sparklog: {printable_lines(text)}", err=True)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    return 1


def _drop_output() -> None:
    """What is still buffered must not fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unexpected(error: Exception) -> str:
    """A bug of ours: its traceback goes to the log of a command that keeps one (the broker), or is had by asking."""
    if logging.getLogger().hasHandlers() or os.environ.get("SPARKLOG_DEBUG"):
        _log.critical("unexpected error", exc_info=error)
    return f"unexpected {type(error).__name__}: {error} (SPARKLOG_DEBUG=1 shows where; please report it)"


if __name__ == "__main__":
    main()
