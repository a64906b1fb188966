"""``sparklog demo``: the guided tour."""

from __future__ import annotations

from pathlib import Path

import click

from sparklog.cli.interruption import interruptible
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.paths import PathTo


@click.command()
@click.option("--flights", type=WholeNumber(1), help="Only the first so many departures; default: all 336,776.")
@click.option("--partitions", type=WholeNumber(1, 100), default=4, show_default=True, help="How many the topic has.")
@click.option(
    "--data", type=PathTo(file_okay=False),
    help='Keep the cluster and the Delta table in this new directory, for "sparklog up --data"; default: keep nothing.',
)  # fmt: skip
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), default=Path("flight-delays.png"), show_default=True,
    help="Where the picture goes.",
)  # fmt: skip
def demo(flights: int | None, partitions: int, data: Path | None, plot: Path) -> None:
    """The guided tour: a year of flights through a log and Spark.

    Starts a cluster, replays every departure from New York in 2013 into a topic, copies that to another one with Spark
    Structured Streaming, kills the copying job in the middle and runs it again, computes delays from the copy into a
    Delta table, reads the copy back and checks that every flight arrived as sent, and once, and draws a picture.
    Needs Java 17 or newer, and packages that "make setup" installs (or: pip install '.[demo]' in the checkout).
    """
    from sparklog.demo.tour import TourOptions, run

    with interruptible():
        run(TourOptions(flights, partitions, data, plot), say=click.echo)
