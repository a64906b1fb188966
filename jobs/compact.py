"""Compact topics whose cleanup.policy is compact: once, or again and again. Needs to see the brokers' files."""

import argparse
import logging
import os
import sys
from typing import TYPE_CHECKING

from sparklog.cli.logs import LogFormat, begin_to_log
from sparklog.client import Admin
from sparklog.config.job_clients import COMPACT, RIGHTS
from sparklog.errors import ConfigError, SparklogError
from sparklog.spark import session
from sparklog.spark.batch.arguments import add_cluster, add_logging, add_output, client_settings
from sparklog.spark.batch.compact import CompactOptions, Report, run
from sparklog.spark.batch.repetition import duration, rounds
from sparklog.spark.batch.unattended import run_rounds
from sparklog.spark.failures import rights_named
from sparklog.spark.sessions import stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add_cluster(parser)
    parser.add_argument(
        "--topic", action="append", default=[], help="clean it however little is dirty; may be repeated"
    )
    parser.add_argument("--once", action="store_true", help="what is due now, and then end (the default)")
    parser.add_argument("--every", type=duration, help="again and again, so long after the last: 30s, 10m, 2h")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be cleaned")
    parser.add_argument("--parallelism", type=_count, default=0, help="tasks at a time (default: Spark's cores)")
    parser.add_argument("--spill-gb", type=_count, default=64, help="files that the maps of one log's keys may take")
    parser.add_argument(
        "--master", help="where Spark runs (default: all cores of this machine, and a task that dies is tried again)"
    )
    add_output(parser)
    add_logging(parser)
    args = parser.parse_args()
    if args.once and args.every:
        parser.error("--once and --every exclude each other")
    client = client_settings(parser, args)
    _begin_to_log(parser, args)
    options = CompactOptions(
        client["bootstrap.servers"],
        tuple(args.topic),
        args.dry_run,
        args.parallelism,
        spill_bytes=args.spill_gb << 30,
        client=client,
    )
    if not args.every:
        try:
            _check(options)
        except SparklogError as error:
            print(f"{parser.prog}: {error}", file=sys.stderr)
            return 1
    spark = session("compaction", master=args.master or _all_cores())
    try:
        return _rounds(spark, options, args.every, as_json=args.output == "json")
    finally:
        stop(spark)


def _begin_to_log(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """What each stage and each of its tasks took is in the log. Ends the program where there can be none."""
    try:
        begin_to_log(args.logging, LogFormat(args.log_format) if args.log_format else None)
    except (ConfigError, ValueError) as error:
        parser.error(str(error))
    logging.getLogger("py4j").setLevel(logging.WARNING)


def _rounds(spark: "SparkSession", options: CompactOptions, every_s: float | None, *, as_json: bool) -> int:
    """The exit code. Where programs read standard output, what people read of a round is on standard error."""

    def once() -> Report:
        report = run(spark, options)
        if as_json and report.replicas:
            print(report.to_json(), flush=True)
        return report

    told = sys.stderr if as_json else sys.stdout
    return run_rounds(rounds(every_s), once, lambda line: print(line, file=told, flush=True))


def _count(text: str) -> int:
    """Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no such number: write 1 or more")
    return int(text)


def _all_cores() -> str | None:
    """Unless it is chosen elsewhere: by spark-submit, or in SPARK_REMOTE."""
    chosen = "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ
    return None if chosen else "local[*,2]"


def _check(options: CompactOptions) -> None:
    """See before Spark starts whether there are brokers and topics of these names. Raises SparklogError."""
    with rights_named(RIGHTS[COMPACT]), Admin(options.settings()) as admin:
        admin.describe_compaction(options.topics or None)


if __name__ == "__main__":
    sys.exit(main())
