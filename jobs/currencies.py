"""The currencies of the world since 1694: their changes into a compacted topic, and that into a Delta table in step."""

import argparse
import sys
from datetime import date

from sparklog.demo.tender import TenderOptions, run
from sparklog.spark import session
from sparklog.spark.batch.arguments import add_cluster, client_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_cluster(parser)
    parser.add_argument("--topic", default="currencies", help="made if it is not there (default: %(default)s)")
    parser.add_argument("--table", required=True, help="path of the Delta table; made if it is not there")
    parser.add_argument(
        "--until",
        type=date.fromisoformat,
        metavar="YYYY-MM-DD",
        help="write the changes before this day; a later run goes on from there (default: all)",
    )
    args = parser.parse_args()
    client = client_settings(parser, args)
    options = TenderOptions(client["bootstrap.servers"], args.topic, args.table, args.until, client)
    spark = session("currencies", delta=True)
    try:
        report = run(spark, options)
    finally:
        spark.stop()
    print(report)
    sys.exit(0 if report.agrees else 1)


if __name__ == "__main__":
    main()
