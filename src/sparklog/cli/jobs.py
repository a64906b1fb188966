"""Commands that start a job of ``jobs/`` in this process; the job's own parser reads the options.

The jobs are files, as spark-submit wants them: in a checkout, or where an installed package keeps its data. Each has
``arguments()``, which makes that parser: for ``--help``, and for a shell that completes what is typed.
"""

from __future__ import annotations

import importlib.util
import site
import sys
from argparse import Action, ArgumentParser, _AppendAction
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from sparklog.cli.connection import bootstrap_option
from sparklog.cli.names import TOPIC
from sparklog.errors import ConfigError, SparklogError
from sparklog.local.extras import checkout, install_line
from sparklog.local.java import find_java

_NEEDED = ("pyspark", "delta")
_FILES = ("FILE", "PATH")
"""What the name of a value says that a shell can complete from the disk."""


class JobCommand(click.Command):
    """Starts the job of its name. ``--help`` shows this command's text, and the options that the job's parser knows."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(
            name,
            callback=lambda arguments: start(name, arguments),
            params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]")],
            context_settings={"ignore_unknown_options": True},
            help=text,
            options_metavar="",
        )

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The job's options where a shell completes them, which is all that click reads so; else what it is given."""
        params = super().get_params(ctx)
        if not ctx.resilient_parsing or not _is_installed(str(self.name)):
            return params
        return [*_completed(str(self.name)), *(each for each in params if isinstance(each, click.Option))]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        formatter.write(f"\n{_options_of(str(self.name))}")


def start(name: str, arguments: Sequence[str]) -> None:
    """Run the job to its end, as ``python jobs/NAME.py ARGUMENTS`` would; it ends with SystemExit.

    Raises ConfigError where Spark is not installed, or the job is not.
    """
    if missing := _missing():
        raise ConfigError(missing)
    before = sys.argv, sys.modules["__main__"]
    try:
        sys.argv = [f"sparklog {name}", *arguments]
        _execute(name, "__main__")
    finally:
        sys.argv, sys.modules["__main__"] = before


def hindrance(name: str) -> str:
    """Why the job cannot be started here, and what to type; empty where it can."""
    try:
        path_of(name)
        find_java()
    except SparklogError as error:
        return str(error)
    return _missing()


def path_of(name: str) -> Path:
    """The file of a job. Raises ConfigError if it is not installed."""
    found = [path for each in _directories() if (path := each / f"{name}.py").is_file()]
    if not found:
        raise ConfigError(f"the job {name!r} is not in {', '.join(map(str, _directories()))}; install sparklog again")
    return found[0]


def _directories() -> list[Path]:
    """Where jobs may be: in the checkout, or where pip puts a wheel's data (with ``--target`` beside the package)."""
    root = checkout()
    if root is not None:
        return [root / "jobs"]
    prefixes = (Path(__file__).parents[2], Path(sys.prefix), Path(site.getuserbase()))
    return [each / "share" / "sparklog" / "jobs" for each in prefixes]


def _is_installed(name: str) -> bool:
    try:
        path_of(name)
    except ConfigError:
        return False
    return not _missing()


def _missing() -> str:
    """What to type where Spark is not installed; empty where it is."""
    missing = [each for each in _NEEDED if importlib.util.find_spec(each) is None]
    return f"this command needs {', '.join(missing)}; type: {install_line('spark')}" if missing else ""


def _options_of(name: str) -> str:
    """The job's own help, from its options on."""
    if missing := _missing():
        return f"For its options {missing}\n"
    return f"Options:{_parser(name).format_help().partition('options:')[2]}"


def _parser(name: str) -> ArgumentParser:
    """Of the job's arguments. Raises ConfigError if the job is not installed."""
    found = _execute(name, f"sparklog_job_{name}").arguments()
    assert isinstance(found, ArgumentParser)
    return found


def _execute(name: str, as_module: str) -> ModuleType:
    """Run the job's file. As ``__main__`` it does its work, and ends with SystemExit."""
    spec = importlib.util.spec_from_file_location(as_module, path_of(name))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Spark sends functions of __main__ to its workers by value: they need not find the job.
    sys.modules[as_module] = module
    spec.loader.exec_module(module)
    return module


@cache
def _completed(name: str) -> tuple[click.Option, ...]:
    """The job's options as those of a command; the cluster's are the same for all commands."""
    cluster = click.command(name)(bootstrap_option(lambda: None)).params
    known = {option for each in cluster for option in each.opts}
    actions = [each for each in _parser(name)._actions if each.dest != "help" and known.isdisjoint(each.option_strings)]
    return (*(each for each in cluster if isinstance(each, click.Option)), *map(_as_option, actions))


def _as_option(action: Action) -> click.Option:
    return click.Option(
        [*action.option_strings, action.dest],
        type=_kind(action),
        is_flag=action.nargs == 0,
        multiple=isinstance(action, _AppendAction),
        help=action.help,
    )


def _kind(action: Action) -> click.ParamType[Any] | None:
    """What a shell may offer for the value."""
    if action.choices is not None:
        return click.Choice(list(action.choices))
    if action.dest == "topic":
        return TOPIC
    return click.Path() if action.type is Path or action.metavar in _FILES else None
