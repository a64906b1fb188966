"""Delays of flights by window, carrier and airport: a topic into a Delta table, once or again and again."""

import argparse

from sparklog.demo.delays import DelayOptions, run
from sparklog.spark import session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="brokers, host:port,...")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--table", required=True, help="path of the Delta table; made if it is not there")
    parser.add_argument("--checkpoint", required=True, help="directory of the query's progress, one for each table")
    parser.add_argument("--window", default=DelayOptions.window, help="length of a window (default: %(default)s)")
    parser.add_argument("--watermark", default=DelayOptions.watermark, help="how late a flight may come")
    parser.add_argument("--flights-per-batch", type=int, default=DelayOptions.flights_per_batch)
    options = DelayOptions(**vars(parser.parse_args()))
    spark = session("flight delays", delta=True)
    try:
        print(run(spark, options))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
