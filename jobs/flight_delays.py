"""Delays of flights by window, carrier and airport: a topic into a Delta table, once or again and again."""

import argparse

from sparklog.demo.delays import DelayOptions, run
from sparklog.spark import session
from sparklog.spark.batch.arguments import add_cluster, client_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_cluster(parser)
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--table", required=True, help="path of the Delta table; made if it is not there")
    parser.add_argument("--checkpoint", required=True, help="directory of the query's progress, one for each table")
    parser.add_argument("--window", default=DelayOptions.window, help="length of a window (default: %(default)s)")
    parser.add_argument("--watermark", default=DelayOptions.watermark, help="how late a flight may come")
    parser.add_argument("--flights-per-batch", type=int, default=DelayOptions.flights_per_batch)
    args = parser.parse_args()
    client = client_settings(parser, args)
    options = DelayOptions(
        client["bootstrap.servers"],
        args.topic,
        args.table,
        args.checkpoint,
        args.window,
        args.watermark,
        args.flights_per_batch,
        client,
    )
    spark = session("flight delays", delta=True)
    try:
        print(run(spark, options))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
