"""``sparklog perf``: produce, consume, e2e."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparklog.cli.connection import administering, bootstrap_option, client_settings, connected
from sparklog.cli.display import output_option, rate, show_json
from sparklog.cli.extents import find_extents
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import Number, WholeNumber
from sparklog.cli.settings import parse_settings
from sparklog.errors import SparklogError

if TYPE_CHECKING:
    from sparklog.cli.extents import Extents
    from sparklog.cli.perf.latencies import Latencies
    from sparklog.cli.perf.pace import Meter
    from sparklog.client.cluster.metadata import ClusterMetadata
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.client.producer.producer import Producer
    from sparklog.structs import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])
_EVERY_S = 5.0
_ONE_AT_A_TIME = "0"


@click.group(cls=GuessingGroup)
def perf() -> None:
    """Measure how fast the cluster takes records, gives them, and passes them on.

    Batches are made and read as columns, so that mostly the cluster is measured. Figures of two runs on one machine
    differ: compare only those of the same hour.

    \b
    Examples:
      sparklog perf produce bench --records 1000000 --size 100
      sparklog perf consume bench
      sparklog perf e2e bench-e2e --records 1000
    """


def _acks_option(command: F) -> F:
    return click.option(
        "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True,
        help="Which replicas must have a batch: all in sync, the leader, none.",
    )(command)  # fmt: skip


def _config_option(command: F) -> F:
    return click.option(
        "--config", "settings", multiple=True, metavar="NAME=VALUE",
        help="A setting of the client, such as batch.size=65536; may be repeated.",
    )(command)  # fmt: skip


@perf.command(short_help="Write random records; rate, and latencies of the acknowledgements.")
@click.argument("topic", type=TOPIC)
@click.option("-n", "--records", type=WholeNumber(1), default=1_000_000, show_default=True, help="How many.")
@click.option("-s", "--size", type=WholeNumber(1, 1 << 20), default=100, show_default=True, help="Bytes of a value.")
@click.option("--throughput", type=Number(0, min_open=True), metavar="RECORDS", help="At most so many a second.")
@_acks_option
@click.option(
    "-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none",
    show_default=True, help="How batches are compressed.",
)  # fmt: skip
@_config_option
@output_option
@bootstrap_option
def produce(
    topic: str,
    acks: str,
    compression: str,
    settings: tuple[str, ...],
    as_json: bool,
    bootstrap: str,
    **load: Any,
) -> None:
    """Write random records to TOPIC, which must be there, and tell the rate and the latencies in milliseconds.

    A record's latency is from when its batch is handed to the producer until all of the batch is acknowledged. Without
    --throughput records queue in the producer (buffer.memory), and most of the latency is that. Standard error tells
    the rate every five seconds.

    \b
    Examples:
      sparklog perf produce bench --records 5000000 --size 200 --compression zstd
      sparklog perf produce bench --throughput 10000 --config linger.ms=0 --output json
    """
    from sparklog.cli.perf.pace import Meter
    from sparklog.cli.perf.producing import Producing, Workload

    wanted = {"acks": acks, "compression.type": compression, **parse_settings(settings)}
    workload = Workload(topic, load["records"], load["size"], load["throughput"])
    with connected(bootstrap, [topic]) as cluster:
        cluster.topic(topic)
        with _producer(bootstrap, wanted) as producer:
            running = Producing(producer, workload, cluster.clock, Meter(cluster.clock, _EVERY_S, _tell))
            running.run()
            seconds = running.meter.seconds
    _report(running.meter, seconds, as_json, latencies=running.latencies)


@perf.command(short_help="Read a topic; rate, and how long until the first records.")
@click.argument("topic", type=TOPIC)
@click.option("-n", "--records", type=WholeNumber(1), help="At least so many; default: all that is there.")
@click.option("--decode/--no-decode", default=True, show_default=True, help="Take records out of their batches.")
@click.option(
    "--timeout", type=Number(0, min_open=True), default=10.0, show_default=True, metavar="SECONDS",
    help="Give up when nothing has come for so long.",
)  # fmt: skip
@_config_option
@output_option
@bootstrap_option
def consume(
    topic: str,
    records: int | None,
    decode: bool,
    timeout: float,
    settings: tuple[str, ...],
    as_json: bool,
    bootstrap: str,
) -> None:
    """Read TOPIC from its beginning to where it ends now, and tell the rate.

    Bytes are those of keys and values, with --no-decode those of the batches as they are stored. Batches are read
    whole, so with --records it may be some more. Exit code 1 where it gave up.

    \b
    Examples:
      sparklog perf consume bench
      sparklog perf consume bench --no-decode --config fetch.max.bytes=104857600 --output json
    """
    from sparklog.cli.perf.consuming import Consuming
    from sparklog.cli.perf.pace import Meter
    from sparklog.client.consumer.batch_consumer import BatchConsumer

    with connected(bootstrap, [topic], **_as_keywords(settings)) as cluster:
        extents = _extents(cluster, topic)
        meter = Meter(cluster.clock, _EVERY_S, _tell)
        running = Consuming(BatchConsumer(cluster, extents.first), extents.end, records, meter)
        running.run(cluster.clock, timeout, decode=decode)
        seconds = meter.seconds
    first = running.first_after_s
    _report(meter, seconds, as_json, first_records_after_s=None if first is None else round(first, 3))
    if not running.is_done:
        raise SparklogError(
            f"nothing has come for {timeout:g} s: partitions are not read to where they ended; --timeout has it wait"
            " longer, as for a quota"
        )


@perf.command(short_help="Write one record at a time, and measure until it is read.")
@click.argument("topic", type=TOPIC)
@click.option("-n", "--records", type=WholeNumber(1), default=1000, show_default=True, help="How many.")
@click.option("-s", "--size", type=WholeNumber(1, 1 << 20), default=100, show_default=True, help="Bytes of a value.")
@_acks_option
@click.option(
    "--timeout", type=Number(0, min_open=True), default=60.0, show_default=True, metavar="SECONDS",
    help="How long one record may take.",
)  # fmt: skip
@_config_option
@output_option
@bootstrap_option
def e2e(
    topic: str,
    records: int,
    size: int,
    acks: str,
    timeout: float,
    settings: tuple[str, ...],
    as_json: bool,
    bootstrap: str,
) -> None:
    """Write one record to TOPIC, read it, write the next, and tell the latencies from send to read in milliseconds.

    Nobody else may write to TOPIC meanwhile.

    \b
    Examples:
      sparklog perf e2e bench-e2e
      sparklog perf e2e bench-e2e --records 10000 --acks 1 --output json
    """
    from sparklog.cli.perf.end_to_end import EndToEnd
    from sparklog.cli.perf.pace import Meter

    wanted = {"acks": acks, "linger.ms": _ONE_AT_A_TIME, **parse_settings(settings)}
    with connected(bootstrap, [topic]) as cluster:
        ends = _extents(cluster, topic).end
        with _producer(bootstrap, wanted) as producer, _consumer(bootstrap, ends) as consumer:
            meter = Meter(cluster.clock, _EVERY_S, _tell)
            running = EndToEnd(producer, consumer, cluster.clock, meter)
            running.run(topic, [secrets.token_bytes(size)] * records, timeout)
            seconds = meter.seconds
    _report(meter, seconds, as_json, latencies=running.latencies)


@contextmanager
def _producer(bootstrap: str, settings: dict[str, str]) -> Iterator[Producer]:
    """With the settings of the command's file, and over them these."""
    from sparklog.client.producer.producer import Producer

    with Producer(
        {**client_settings(click.get_current_context()), "bootstrap.servers": bootstrap, **settings}
    ) as producer:
        yield producer


@contextmanager
def _consumer(bootstrap: str, positions: dict[TopicPartition, int]) -> Iterator[Consumer]:
    """Without a group, at these positions, and with the settings of the command's file."""
    from sparklog.client.consumer.consumer import Consumer

    with Consumer({**client_settings(click.get_current_context()), "bootstrap.servers": bootstrap}) as consumer:
        consumer.assign(positions)
        for tp, offset in positions.items():
            consumer.seek(tp, offset)
        yield consumer


def _as_keywords(settings: tuple[str, ...]) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in parse_settings(settings).items()}


def _extents(cluster: ClusterMetadata, topic: str) -> Extents:
    """What each partition holds. Raises SparklogError where one cannot be asked."""
    from sparklog.structs import TopicPartition

    partitions = [TopicPartition(topic, each.partition) for each in cluster.topic(topic).partitions]
    with administering(cluster) as admin:
        extents = find_extents(admin, partitions)
    for error in extents.failures.values():
        raise error
    return extents


def _tell(records: int, size: int, seconds: float) -> None:
    click.echo(rate(records, size, seconds), err=True)


def _report(meter: Meter, seconds: float, as_json: bool, latencies: Latencies | None = None, **more: Any) -> None:
    """The whole run: its rates, and what else was measured."""
    seconds = max(seconds, 1e-6)
    if as_json:
        figures = {
            "records": meter.records,
            "bytes": meter.bytes,
            "seconds": round(seconds, 3),
            "records_per_second": round(meter.records / seconds, 1),
            "megabytes_per_second": round(meter.bytes / 1e6 / seconds, 3),
        }
        show_json(figures | more | ({} if latencies is None else {"latency_ms": latencies.summary()}))
        return
    click.echo(rate(meter.records, meter.bytes, seconds))
    if latencies is not None:
        told = ", ".join(f"{name} {value:g}" for name, value in latencies.summary().items())
        click.echo(f"latency in ms: {told}")
    for name, value in more.items():
        click.echo(f"{name.replace('_', ' ').removesuffix(' s')}: {value} s")
