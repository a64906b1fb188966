"""The arguments of all jobs that say which cluster a job works on."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from sparklog.config.command_config import BROKERS, DEFAULT_BOOTSTRAP, ENVIRONMENT, command_settings
from sparklog.errors import ConfigError, DataSourceError
from sparklog.spark.options import table


def add_cluster(parser: ArgumentParser) -> None:
    """Add what names the brokers, as commands have it and as Kafka's tools have it, and the file of settings."""
    parser.add_argument(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        default=os.environ.get(BROKERS) or None,
        metavar="HOST:PORT,...",
        help=f"brokers to ask first (default: those that {BROKERS} names, or {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help=f"settings of the client: security.protocol, ssl.*, sasl.* (default: the file that {ENVIRONMENT} names)",
    )


def add_task_token(parser: ArgumentParser) -> None:
    """Add ``--task-token``, Spark's option ``taskToken`` for a job; its value is in milliseconds."""
    parser.add_argument(
        "--task-token",
        type=_task_token,
        metavar="TIME",
        help="tasks come by a delegation token, good for so long and renewed, not by the settings of --command-config:"
        " 15m, 12h",
    )


def _task_token(text: str) -> int | None:
    """Raises ArgumentTypeError."""
    try:
        return table.TASK_TOKEN.parse(text)
    except DataSourceError as error:
        raise ArgumentTypeError(str(error)) from error


def client_settings(parser: ArgumentParser, args: Namespace) -> dict[str, str]:
    """By Kafka's names, ``bootstrap.servers`` among them. Ends the program where the file cannot be read."""
    try:
        return command_settings(args.command_config, args.bootstrap)
    except ConfigError as error:
        parser.error(str(error))
