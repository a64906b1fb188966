"""``sparklog``: the group of commands."""

from __future__ import annotations

import sys

import click

from sparklog import __version__
from sparklog.cli.broker import broker
from sparklog.errors import SparklogError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sparklog")
def cli() -> None:
    """A streaming log for people who live in PySpark: Kafka's format, Python brokers, format("sparklog")."""


cli.add_command(broker)


def main() -> None:
    """Run a command; what goes wrong on purpose is one line on standard error and exit code 1 (2: misuse)."""
    try:
        cli()
    except SparklogError as error:
        click.echo(f"sparklog: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
