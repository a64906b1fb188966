"""Offload topics to a Delta table or to files, exactly once: what is there now, or again and again."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing

from sparklog.errors import SparklogError
from sparklog.spark import session
from sparklog.spark.batch.offload import Committed, Offload, OffloadOptions
from sparklog.spark.batch.repetition import duration, rounds
from sparklog.spark.lake.destination import Target
from sparklog.spark.lake.file_place import FilesTarget
from sparklog.spark.lake.raw_table import RawTable


def _repeated(offload: Offload, pause_s: float | None) -> Iterator[Committed]:
    for _ in rounds(pause_s):
        yield from offload.commits()


def _target(args: argparse.Namespace) -> Target:
    if args.files is not None:
        return FilesTarget(args.files, args.format, args.compression)
    return RawTable(args.table, tuple(filter(None, args.partition_by.split(","))), args.compression)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="brokers, host:port,...")
    parser.add_argument("--topic", action="append", required=True, help="may be repeated")
    parser.add_argument("--table", help="a path or URI (with a slash in it), or a table of the catalog")
    parser.add_argument("--files", metavar="URI", help="files instead: a directory, or webhdfs://NAMENODE:9870/PATH")
    parser.add_argument("--format", default="parquet", help="of --files: parquet, or segments (the brokers' bytes)")
    parser.add_argument("--partition-by", default="day", help="of a new table: day,hour,topic,partition or '' for none")
    parser.add_argument("--add-topics", action="store_true", help="the table may have other topics already")
    parser.add_argument("--accept-loss", action="store_true", help="go on behind records that are gone, with a warning")
    parser.add_argument("--group", help="a consumer group whose offsets follow, for those who watch lag")
    parser.add_argument("--compression", default="snappy", help="of the files: snappy, zstd, lz4, gzip, none")
    parser.add_argument("--once", action="store_true", help="what is there now, and then end (the default)")
    parser.add_argument("--every", type=duration, help="again and again, so long after the last: 5s, 10m, 2h")
    parser.add_argument("--freshness", type=duration, help="on and on: how old a record may be in the table: 10s, 5m")
    args = parser.parse_args()
    if bool(args.once) + (args.every is not None) + (args.freshness is not None) > 1:
        parser.error("--once, --every and --freshness exclude each other")
    if (args.table is None) == (args.files is None):
        parser.error("say where to: --table or --files")
    options = OffloadOptions(
        args.bootstrap_server,
        tuple(args.topic),
        _target(args),
        add_topics=args.add_topics,
        fail_on_data_loss=not args.accept_loss,
        group=args.group,
    )
    spark = session("offload", delta=True)
    try:
        with closing(Offload(spark, options)) as offload:
            for commit in offload.fresh(args.freshness) if args.freshness else _repeated(offload, args.every):
                print(commit, flush=True)
    except SparklogError as error:
        print(f"offload: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
