"""Load files into a topic, exactly once: their rows become segments that the brokers adopt."""

import argparse
import json
import os
import sys

from sparklog.cli.connection import check_topics
from sparklog.config.job_clients import LOAD
from sparklog.errors import SparklogError
from sparklog.spark import session
from sparklog.spark.batch.arguments import (
    add_cluster,
    add_output,
    add_task_token,
    client_settings,
    progress_settings,
)
from sparklog.spark.batch.load import Loaded, LoadOptions, run
from sparklog.spark.batch.sources import FORMATS, Source, require_source
from sparklog.spark.sessions import stop

_MB = 1 << 20


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _line(topic: str, loaded: Loaded) -> str:
    if loaded.was_done:
        return f"{topic}: loaded before; nothing was added"
    ways = [f"{loaded.adopted} partitions adopted segments", f"{loaded.produced} were sent rows"]
    said = "; ".join(way for way, count in zip(ways, (loaded.adopted, loaded.produced), strict=True) if count)
    return f"{topic}: {loaded.records:,} records, {loaded.nbytes / _MB:,.1f} MB; {said or 'no rows'}"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add_cluster(parser)
    add_task_token(parser)
    add_output(parser)
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("--from", dest="path", required=True, help="a path or URI that Spark reads")
    parser.add_argument("--format", required=True, choices=FORMATS)
    parser.add_argument("--name", required=True, help="of this load: a rerun under it adds nothing twice")
    parser.add_argument("--key", metavar="COLUMN", help="without one rows are spread evenly")
    value = parser.add_mutually_exclusive_group()
    value.add_argument("--value", metavar="COLUMN")
    value.add_argument("--value-json", action="store_true", help="the other columns as a JSON object (the default)")
    parser.add_argument("--timestamp", metavar="COLUMN", help="a timestamp, or a long in ms; default: now")
    parser.add_argument(
        "--keep-order", action="store_true", help="keep the files' order, not that of times: faster for Parquet"
    )
    parser.add_argument("--headers", metavar="COLUMN", help="an array of (key, value)")
    parser.add_argument("--partition-col", metavar="COLUMN", help="the partition's number")
    parser.add_argument("--option", action="append", type=_pair, default=[], metavar="NAME=VALUE", help="of the reader")
    parser.add_argument("--via", choices=("adopt", "produce"), default="adopt", help="produce: for clusters of Kafka's")
    parser.add_argument("--compression", help="of the batches: none, gzip, snappy, lz4, zstd; default: the topic's")
    return parser


def main() -> int:
    parser = arguments()
    args = parser.parse_args()
    try:
        options = _options(args, client_settings(parser, args))
        require_source(options.source, os.environ)
        check_topics(options.settings(), [options.topic], LOAD)
        return _load(options, args.format, as_json=args.output == "json")
    except SparklogError as error:
        print(f"load: {error}", file=sys.stderr)
        return 1


def _options(args: argparse.Namespace, client: dict[str, str]) -> LoadOptions:
    source = Source(
        args.path,
        args.format,
        args.key,
        args.value,
        args.timestamp,
        args.headers,
        args.partition_col,
        dict(args.option),
        keep_order=args.keep_order,
    )
    return LoadOptions(
        client["bootstrap.servers"],
        args.topic,
        source,
        args.name,
        via=args.via,
        compression=args.compression,
        client=client,
        task_token_ms=args.task_token,
    )


def _load(options: LoadOptions, file_format: str, *, as_json: bool) -> int:
    spark = session("load", delta=file_format == "delta", **progress_settings())
    try:
        loaded = run(spark, options)
        told = json.dumps({"topic": options.topic, **loaded._asdict()}) if as_json else _line(options.topic, loaded)
        print(told, flush=True)
    finally:
        stop(spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
