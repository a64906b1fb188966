"""The arguments that all jobs have: which cluster a job works on, and how it says what it did."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

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


def add_output(parser: ArgumentParser) -> None:
    """Add ``--output``, as commands have it."""
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="say what was done in words (the default), or as an object of JSON a line",
    )


def add_logging(parser: ArgumentParser) -> None:
    """Add ``--logging`` and ``--log-format``, as ``sparklog broker`` has them."""
    parser.add_argument(
        "--logging",
        type=Path,
        default=os.environ.get("SPARKLOG_LOGGING") or None,
        metavar="FILE",
        help="a TOML file that says where log lines go, as conf/logging.toml does (or set SPARKLOG_LOGGING; default:"
        " standard error)",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default=os.environ.get("SPARKLOG_LOG_FORMAT") or None,
        help="log lines as text (the default) or as JSON, an object a line (or set SPARKLOG_LOG_FORMAT)",
    )


def progress_settings() -> dict[str, Any]:
    """Spark's settings for a progress bar of its tasks on standard error, where that is a terminal of ours."""
    is_elsewhere = "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ
    return {"spark_ui_showConsoleProgress": True} if sys.stderr.isatty() and not is_elsewhere else {}


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
