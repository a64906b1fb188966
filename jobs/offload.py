"""Offload topics to a Delta table, exactly once: what is there now, or again and again."""

import argparse
import sys

from sparklog.errors import SparklogError
from sparklog.spark import session
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.batch.repetition import duration, rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="brokers, host:port,...")
    parser.add_argument("--topic", action="append", required=True, help="may be repeated")
    parser.add_argument("--table", required=True, help="a path or URI (with a slash in it), or a table of the catalog")
    parser.add_argument("--partition-by", default="day", help="of a new table: day,hour,topic,partition or '' for none")
    parser.add_argument("--add-topics", action="store_true", help="the table may have other topics already")
    parser.add_argument("--accept-loss", action="store_true", help="go on behind records that are gone, with a warning")
    parser.add_argument("--group", help="a consumer group whose offsets follow, for those who watch lag")
    parser.add_argument("--compression", default="snappy", help="of the files: snappy, zstd, lz4, gzip, none")
    parser.add_argument("--once", action="store_true", help="what is there now, and then end (the default)")
    parser.add_argument("--every", type=duration, help="again and again, so long after the last: 5s, 10m, 2h")
    args = parser.parse_args()
    if args.once and args.every is not None:
        parser.error("--once and --every exclude each other")
    options = OffloadOptions(
        args.bootstrap_server,
        tuple(args.topic),
        args.table,
        tuple(filter(None, args.partition_by.split(","))),
        add_topics=args.add_topics,
        fail_on_data_loss=not args.accept_loss,
        group=args.group,
        compression=args.compression,
    )
    spark = session("offload", delta=True)
    try:
        for _ in rounds(args.every):
            for commit in run(spark, options):
                print(commit, flush=True)
    except SparklogError as error:
        print(f"offload: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
