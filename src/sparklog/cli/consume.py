"""``sparklog consume``: the records of a topic, as lines."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sparklog.cli.connection import bootstrap_option, connected
from sparklog.cli.display import progress
from sparklog.cli.positions import METAVAR, Position, parse_position, resolve_position
from sparklog.errors import ApiError, ErrorCode, SparklogError

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.client.metadata import ClusterMetadata
    from sparklog.record.batch import RecordBatch
    from sparklog.structs import TopicPartition

Columns = dict[str, "pa.Array"]

_ROUND_BYTES = 4 << 20
"""Decoded bytes that are printed at once."""

_FOLLOWERS_PATIENCE_MS = 3000
"""For which what keeps --follow from reading is not told: leaders move, and a new topic is not known everywhere yet."""

_PARTITIONS_NAMED = 3
"""Of which it is said what they hold, when there is nothing to print."""


class _Layout(NamedTuple):
    """How a record is printed."""

    as_json: bool
    keys: bool
    separator: bytes

    @property
    def columns(self) -> tuple[str, ...]:
        if self.as_json:
            return ("key", "value", "headers", "offset", "timestamp")
        return ("key", "value") if self.keys else ("value",)


@click.command()
@click.argument("topic")
@click.option(
    "--from", "start", metavar=METAVAR, callback=parse_position, default="earliest", show_default=True,
    help="Where to begin, in every partition.",
)  # fmt: skip
@click.option(
    "--to", "end", metavar=METAVAR, callback=parse_position,
    help="Where to end: before this offset or time; default: the end as it is now.",
)  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Only this partition; may be repeated.",
)
@click.option("-n", "--max", "most", type=click.IntRange(0), help="Print at most so many records.")
@click.option("-k", "--keys", is_flag=True, help="Print each record's key before its value.")
@click.option("--key-separator", default="\t", help="What is printed between key and value; default: a tab.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object a record, with offset, timestamp and headers."
)
@bootstrap_option
def consume(
    topic: str,
    start: Position,
    end: Position | None,
    follow: bool,
    partitions: tuple[int, ...],
    most: int | None,
    bootstrap: str,
    **shape: Any,
) -> None:
    """Print the records of TOPIC, a line a record, each partition's in order.

    With --follow, brokers that go away are waited for: a line on standard error says so, and another when it goes on.

    A time is as in 2013-07-04, 2013-07-04T12:00 or 2013-07-04T12:00:00-04:00; without a zone it is UTC.

    \b
    Examples:
      sparklog consume greetings
      sparklog consume clicks --from latest --follow --keys
      sparklog consume clicks --from 2013-07-04T00:00 --to 2013-07-05T00:00 --json
      sparklog consume clicks --partition 3 --from 1000 --max 10
    """
    if follow and end is not None:
        raise click.UsageError("--follow has no end: leave out --to, or --follow")
    layout = _Layout(shape["as_json"], shape["keys"], shape["key_separator"].replace("\\t", "\t").encode())
    with connected(bootstrap) as cluster:
        wanted = _partitions(cluster, topic, partitions)
        starts = resolve_position(cluster, wanted, start)
        if follow:
            _print(_following(cluster, starts, layout), layout, most)
            return
        ends = resolve_position(cluster, wanted, "latest" if end is None else end)
        total = sum(max(ends[tp] - starts[tp], 0) for tp in wanted)
        if not total:
            click.echo(f"no records there: {_extent(cluster, wanted)}", err=True)
        with progress(f"from {topic}", total if most is None else min(most, total), "records") as advance:
            _print(_bounded(cluster, starts, ends, layout), layout, most, None if sys.stdout.isatty() else advance)


def _extent(cluster: ClusterMetadata, partitions: list[TopicPartition]) -> str:
    """What the first partitions hold."""
    from sparklog.client.offsets import earliest_offsets, latest_offsets

    named = partitions[:_PARTITIONS_NAMED]
    first, last = earliest_offsets(cluster, named), latest_offsets(cluster, named)
    held = {tp: f"offsets {first[tp]} to {last[tp] - 1}" if last[tp] > first[tp] else "none" for tp in named}
    more = len(partitions) - len(named)
    return ", ".join(f"{tp} holds {what}" for tp, what in held.items()) + (f", and {more} more" if more else "")


def _partitions(cluster: ClusterMetadata, topic: str, chosen: tuple[int, ...]) -> list[TopicPartition]:
    from sparklog.structs import TopicPartition

    there = [each.partition for each in cluster.topic(topic).partitions]
    unknown = sorted(set(chosen) - set(there))
    if unknown:
        raise click.BadParameter(
            f"topic {topic!r} has no partition {unknown[0]}, only 0 to {len(there) - 1}", param_hint="--partition"
        )
    return [TopicPartition(topic, partition) for partition in (sorted(set(chosen)) or there)]


def _bounded(
    cluster: ClusterMetadata, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int], layout: _Layout
) -> Iterator[tuple[TopicPartition, Columns]]:
    from sparklog.client.fetcher import fetch_range

    for tp, start in starts.items():
        if start < ends[tp]:
            yield from _decoded(tp, fetch_range(cluster, tp, start, ends[tp]), start, ends[tp], layout)


def _following(
    cluster: ClusterMetadata, starts: dict[TopicPartition, int], layout: _Layout
) -> Iterator[tuple[TopicPartition, Columns]]:
    from sparklog.client.batch_consumer import BatchConsumer

    consumer = BatchConsumer(cluster, starts)
    is_waiting = False
    while True:
        before = dict(consumer.positions)
        try:
            found = consumer.poll(patience_ms=_FOLLOWERS_PATIENCE_MS)
        except SparklogError as error:
            if not _may_pass(error):
                raise
            if not is_waiting:
                click.echo(f"{error}; still trying, until Ctrl-C", err=True)
            is_waiting = True
            continue
        if is_waiting:
            click.echo("going on", err=True)
        is_waiting = False
        for tp, batches in found.items():
            yield from _decoded(tp, batches, before[tp], None, layout)


def _may_pass(error: SparklogError) -> bool:
    """A topic that stays unknown is gone, and what comes under its name is another."""
    from sparklog.client.retry import is_retriable

    is_gone = isinstance(error, ApiError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return is_retriable(error) and not is_gone


def _decoded(
    tp: TopicPartition, batches: Iterable[RecordBatch], start: int, end: int | None, layout: _Layout
) -> Iterator[tuple[TopicPartition, Columns]]:
    from sparklog.record.columnar import ColumnarDecoder

    decoder = ColumnarDecoder(layout.columns)
    for batch in batches:
        decoder.append(batch, start, batch.next_offset if end is None else end)
        if decoder.nbytes >= _ROUND_BYTES:
            yield tp, decoder.finish()
    if decoder.rows:
        yield tp, decoder.finish()


def _print(
    rounds: Iterator[tuple[TopicPartition, Columns]], layout: _Layout, most: int | None, advance: Any = None
) -> None:
    """Print what comes, ``most`` records of it; a round is flushed before the next is asked for."""
    left = most
    if left == 0:
        return
    for tp, columns in rounds:
        if left is not None:
            columns = {name: column[:left] for name, column in columns.items()}
        count = len(columns["value"])
        _write(_json_lines(tp, columns) if layout.as_json else _plain_lines(columns, layout))
        if advance is not None:
            advance(count)
        if left is not None:
            left -= count
            if not left:
                return


def _write(text: bytes | memoryview) -> None:
    # Standard output without a buffer (PYTHONUNBUFFERED) may take only a part, and when its reader has gone does.
    rest = memoryview(text)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def _plain_lines(columns: Columns, layout: _Layout) -> memoryview:
    from sparklog.cli.lines import join_lines

    return join_lines([columns[name] for name in layout.columns], layout.separator)


def _json_lines(tp: TopicPartition, columns: Columns) -> bytes:
    """Keys and values as text; one that is not UTF-8 as base64, under a name that says so."""
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    lines = []
    for row in rows:
        record = dict(zip(columns, row, strict=True))
        shown = {"topic": tp.topic, "partition": tp.partition, "offset": record["offset"]}
        shown |= {"timestamp": record["timestamp"], **_text("key", record["key"]), **_text("value", record["value"])}
        if record["headers"]:
            shown["headers"] = [{"key": each["key"], **_text("value", each["value"])} for each in record["headers"]]
        lines.append(json.dumps(shown, ensure_ascii=False))
    return ("\n".join(lines) + "\n").encode()


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
