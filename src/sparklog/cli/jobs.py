"""Commands that start a job of ``jobs/`` in this process; the job's own parser reads the options.

The jobs are files, as spark-submit wants them: in a checkout, or where an installed package keeps its data.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import site
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from sparklog.errors import ConfigError, SparklogError
from sparklog.local.extras import checkout, install_line
from sparklog.local.java import find_java

_NEEDED = ("pyspark", "delta")


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

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        formatter.write(f"\n{_options_of(str(self.name))}")


def start(name: str, arguments: Sequence[str]) -> None:
    """Run the job to its end, as ``python jobs/NAME.py ARGUMENTS`` would; it ends with SystemExit.

    Raises ConfigError where Spark is not installed, or the job is not.
    """
    if missing := _missing():
        raise ConfigError(missing)
    spec = importlib.util.spec_from_file_location("__main__", path_of(name))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.argv, sys.modules["__main__"]
    # Spark sends functions of __main__ to its workers by value: they need not find the job.
    sys.argv, sys.modules["__main__"] = [f"sparklog {name}", *arguments], module
    try:
        spec.loader.exec_module(module)
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


def _missing() -> str:
    """What to type where Spark is not installed; empty where it is."""
    missing = [each for each in _NEEDED if importlib.util.find_spec(each) is None]
    return f"this command needs {', '.join(missing)}; type: {install_line('spark')}" if missing else ""


def _options_of(name: str) -> str:
    """The job's own help, from its options on."""
    if missing := _missing():
        return f"For its options {missing}\n"
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        start(name, ["--help"])
    return f"Options:{out.getvalue().partition('options:')[2]}"
