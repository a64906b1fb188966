"""Compact topics whose cleanup.policy is compact: once, or again and again. Needs to see the brokers' files."""

import argparse
import sys

from sparklog.spark import session
from sparklog.spark.batch.compact import CompactOptions, run
from sparklog.spark.batch.repetition import duration, rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="brokers, host:port,...")
    parser.add_argument(
        "--topic", action="append", default=[], help="clean it however little is dirty; may be repeated"
    )
    parser.add_argument("--once", action="store_true", help="what is due now, and then end (the default)")
    parser.add_argument("--every", type=duration, help="again and again, so long after the last: 30s, 10m, 2h")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be cleaned")
    parser.add_argument("--parallelism", type=int, default=0, help="tasks at a time (default: Spark's cores)")
    args = parser.parse_args()
    if args.once and args.every:
        parser.error("--once and --every exclude each other")
    options = CompactOptions(args.bootstrap_server, tuple(args.topic), args.dry_run, args.parallelism)
    spark, failed = session("compaction"), False
    try:
        for _ in rounds(args.every):
            report = run(spark, options)
            print(report, flush=True)
            failed = report.has_failed
    finally:
        spark.stop()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
