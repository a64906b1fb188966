"""``docs/cli.md``: every command, told by its own help.

``python -m sparklog.cli.page > docs/cli.md`` writes it anew.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

import click

from sparklog.cli.jobs import JobCommand
from sparklog.cli.main import COMMANDS, ROOMS, cli

_HEAD = """\
# The command line

Each command has `--help`. What needs more than that is in [tools.md](tools.md). This page is made from the code:
`python -m sparklog.cli.page`.

**The cluster.** A command that asks a cluster takes `-b`, `--bootstrap HOST:PORT,...` (or `SPARKLOG_BOOTSTRAP`, or else
127.0.0.1:9092). Kafka's tools call it `--bootstrap-server`, which is the same here. The command takes `--command-config
FILE` (or `SPARKLOG_COMMAND_CONFIG`): a file with the settings of the client, those of TLS and SASL among them
([security.md](security.md)).

**The output.** A person gets a table; a program that reads a pipe gets lines divided by tabs. `-o json`, `--output
json` gives one JSON document, or an object a line where the command says so. A command that changes something says what
it did as an object on a line. Results go to standard output. Progress and what went wrong go to standard error.

**The exit code.** 0: done. 1: it failed; one line on standard error says why and what to do. 2: the command line is
wrong. 130: ended by Ctrl-C. 141: what read the output has gone. Where a command has codes of its own, its text says so.

A topic that does not exist is refused at once, with a name that is like it, where that is certain: every broker says
so, and knows other topics. Else it is asked for again for some seconds, for it may just have been created, or the
broker just started.

On a cluster that asks for rights, a command that lists or counts all topics, groups or transactions says on standard
error if the user lacks `DESCRIBE` of the cluster: then there are only those that it may describe. To such a user "no
partition is under-replicated" says little. Brokers do not tell what they leave out, so a user with that right and
without one for some topic is told nothing.

**Names.** A name that is no command is answered with the command that was probably meant. Names of Kafka's tools and of
rpk are known, such as *topics*, *topic ls* and *group seek*. `sparklog completion` completes names in a shell.
"""
_SHARED = ("--bootstrap", "--command-config", "--output")
_TITLES = {
    "serve": "Run a cluster",
    "data": "Write and read records",
    "watch": "Look on",
    "cluster": "Administer a cluster",
    "security": "Users, rights, quotas, certificates",
    "safety": "Copies, and clusters of Kafka's",
    "shell": "The shell",
}


def page() -> str:
    """The whole page."""
    root = click.Context(cli, info_name="sparklog")
    lines = [_HEAD]
    for room, names in ROOMS.items():
        lines.append(f"## {_TITLES[room]}\n")
        for name in names:
            command = cli.get_command(root, name)
            assert command is not None
            lines += _command(command, click.Context(command, info_name=name, parent=root), COMMANDS[name])
    return "\n".join(lines)


def _command(command: click.Command, ctx: click.Context, summary: str = "") -> Iterator[str]:
    """A command, or a group and then its commands."""
    level = "###" if summary else "####"
    yield f"{level} {ctx.command_path}\n"
    if isinstance(command, click.Group):
        yield from _help(command)
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None
            yield from _command(child, click.Context(child, info_name=name, parent=ctx))
        return
    yield _block("text", f"{ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}")
    yield from _help(command)
    if isinstance(command, JobCommand):
        yield f"Its options are those of the job `jobs/{ctx.info_name}.py`: `{ctx.command_path} --help`.\n"
        return
    yield from _options(command, ctx)


def _help(command: click.Command) -> Iterator[str]:
    """Paragraphs of the help; those that are not to be wrapped are blocks."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        verbatim = paragraph.removeprefix("\b\n")
        if verbatim == paragraph:
            yield f"{_plain(paragraph)}\n"
            continue
        yield _verbatim(verbatim.splitlines())


def _verbatim(lines: list[str]) -> str:
    """Examples are commands, and so is what begins with one of ours; anything else is text."""
    rest = lines[1:] if lines[0].strip() in ("Example:", "Examples:") else lines
    is_commands = rest is not lines or rest[0].strip().startswith("sparklog ")
    return _block("sh" if is_commands else "text", inspect.cleandoc("\n".join(["", *rest])))


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n"


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    options = [each for each in command.params if isinstance(each, click.Option)]
    own = [each for each in options if not set(_SHARED) & set(each.opts)]
    records = [record for each in own if (record := each.get_help_record(ctx)) is not None]
    if records:
        rows = [f"| {_code(spelling)} | {_plain(meaning)} |" for spelling, meaning in records]
        yield "\n".join(["| option | meaning |", "| --- | --- |", *rows]) + "\n"
    shared = [name for name in _SHARED for each in options if name in each.opts]
    if shared:
        yield f"And {', '.join(f'`{each}`' for each in shared)}, [as everywhere](#the-command-line).\n"


def _code(text: str) -> str:
    return "`" + text.replace("|", r"\|") + "`"


def _plain(text: str) -> str:
    """Nothing in it is Markdown."""
    return re.sub(r"([*_<>|`\\])", r"\\\1", text)


if __name__ == "__main__":
    sys.stdout.write(page())
