"""``sparklog produce``: lines into a topic."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sparklog.cli.connection import advised, bootstrap_option, connected
from sparklog.cli.display import counted, done_option, progress, rate, say_done_aside
from sparklog.cli.interruption import interruptible
from sparklog.cli.limits import NO_LIMIT, LineRefused, TopicLimits
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.positions import parse_timestamp
from sparklog.cli.records.rows import BadLine, JsonLines, Rows, TextLines
from sparklog.cli.registry_values import RegistryLines, value_encoder, writing_options
from sparklog.errors import ApiError, ErrorCode, SparklogError

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.cli.records.json_records import Header
    from sparklog.client.cluster.metadata import ClusterMetadata
    from sparklog.client.producer.batch_producer import BatchProducer
    from sparklog.structs import TopicPartition


_Lines = TextLines | JsonLines | RegistryLines
_TOLD_EVERY_S = 10.0
_ENDS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end it as Ctrl-C does, with a word of what is written."""


def _headers(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> tuple[Header, ...]:
    """NAME=VALUE, or NAME for a value that is null, as kcat has them."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name:
            raise click.BadParameter(f"{text!r} is no header: NAME=VALUE, or NAME for one whose value is null")
        found.append((name, os.fsencode(value) if equals else None))
    return tuple(found)


def _separator(_ctx: click.Context, _param: click.Parameter, text: str | None) -> bytes | None:
    if text == "":
        raise click.BadParameter("must not be empty")
    return None if text is None else os.fsencode(text.replace("\\t", "\t"))


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--input", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="A line is a value, or an object as \"consume --output json\" prints it.",
)  # fmt: skip
@click.option(
    "-k", "--key-separator", "separator", callback=_separator,
    help="What divides key from value, such as ':' or a tab; default: no keys.",
)  # fmt: skip
@click.option("--key", help="The key of all records.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", callback=_headers,
    help="A header of all records, NAME alone for null; may be repeated.",
)  # fmt: skip
@click.option(
    "--timestamp", metavar="TIME", callback=parse_timestamp,
    help="The time of all records, or its ms since 1970; default: now.",
)  # fmt: skip
@click.option("-p", "--partition", type=WholeNumber(0), help="Write to this partition only; default: by key.")
@click.option(
    "-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none",
    show_default=True, help="How batches are compressed.",
)  # fmt: skip
@click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True,
    help="Which replicas must have a batch: all in sync, the leader, none.",
)  # fmt: skip
@click.option("--null-empty", is_flag=True, help="An empty value becomes null: deletes its key in a compacted topic.")
@writing_options
@done_option
@bootstrap_option
def produce(
    topic: str, file: Path | None, partition: int | None, compression: str, acks: str, bootstrap: str, **shape: Any
) -> None:
    """Write the lines of FILE, or of standard input, to TOPIC: a record a line.

    A topic that does not exist is created, if the broker may (auto.create.topics.enable), and that is said.
    Records with a key go where Kafka's own clients would send them, others to all partitions in turn that have a
    leader. What a broker cannot take now is tried again for two minutes: a line on standard error says why. With
    --key-separator, a line that does not have it becomes a value without a key; how many did is said.

    With --input json, a line has the fields that "sparklog consume --output json" prints: value (or value_base64), and
    if they are there key, headers, timestamp and partition. A record goes to the partition that it names, or else by
    its key. So what was printed is written again as it was: only its topic and its offset are not looked at.

    With --registry, a value is a line of JSON, as "consume --registry" prints it. It is written as Avro or as JSON by a
    schema of the registry: that of --schema, which is registered, or else the newest of the subject TOPIC-value. Bytes
    are text by Latin-1; dates, times and decimals are text too. A union's value is of the first branch that takes it.

    With keys, --partition or --input json, and --acks all, each line is written once and in order, even if an answer of
    a broker is lost; otherwise some may be written twice then.

    A line that TOPIC will never take (too long, without a key where it is compacted, or no such object) ends the
    command, with its number: the lines before it are written, none after it. Whatever ends it, it says how many lines
    are written; SIGTERM and SIGHUP end it as Ctrl-C does.

    \b
    Examples:
      echo hello | sparklog produce greetings
      sparklog produce access /var/log/access.log --compression zstd
      printf 'ann:1\\nbob:2\\n' | sparklog produce scores --key-separator :
      echo hello | sparklog produce greetings --key ann --header language=en --timestamp 2013-07-04T12:00
      sparklog consume greetings --output json | sparklog produce copies --input json
      echo '{"place": "Zug"}' | sparklog produce trips --registry http://127.0.0.1:8081 --schema trip.avsc
    """
    encoder = value_encoder(*(shape.pop(name) for name in ("registry", "registry_config", "schema")))
    plain = _lines_of(**shape)
    lines = plain if encoder is None else RegistryLines(plain, encoder, topic)
    with ExitStack() as stack:
        descriptor = sys.stdin.fileno() if file is None else stack.enter_context(file.open("rb")).fileno()
        cluster = stack.enter_context(connected(bootstrap, compression_type=compression, acks=acks))
        writer = _LineWriter(cluster, topic, partition, lines)
        writer.run(descriptor, os.fstat(descriptor).st_size or None)


def _lines_of(
    form: str,
    separator: bytes | None,
    key: str | None,
    headers: tuple[Header, ...],
    timestamp: int | None,
    null_empty: bool,
) -> TextLines | JsonLines:
    """What the lines are. Raises UsageError for options that do not go together."""
    given = {
        "--key-separator": separator is not None,
        "--key": key is not None,
        "--header": bool(headers),
        "--timestamp": timestamp is not None,
        "--null-empty": null_empty,
    }
    if form == "json":
        for name, is_given in given.items():
            if is_given:
                raise click.UsageError(f"--input json says all of a record: leave out {name}")
        return JsonLines()
    if separator is not None and key is not None:
        raise click.UsageError("--key is the key of all lines: leave out --key-separator")
    return TextLines(separator, None if key is None else os.fsencode(key), null_empty, headers, timestamp)


class _Waits:
    """Says on standard error what keeps records from being written: at once, and again while it lasts."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._clock = cluster.clock
        self._patience_s = cluster.config.delivery_timeout_ms / 1000
        self._told: dict[str, float] = {}

    def waiting_for(self, error: SparklogError) -> None:
        """``error`` keeps a batch waiting; the same code is told of every ``_TOLD_EVERY_S`` seconds."""
        name = error.code.name if isinstance(error, ApiError) else type(error).__name__
        now = self._clock.monotonic()
        if now - self._told.get(name, -_TOLD_EVERY_S) >= _TOLD_EVERY_S:
            self._told[name] = now
            click.echo(f"waiting, for up to {self._patience_s:g} s: {advised(error)}", err=True)


class _Batch(NamedTuple):
    """A batch ready to be sent; ``first_row`` is the place of its first line in its block."""

    tp: TopicPartition
    data: bytearray
    first_row: int


class _LineWriter:
    """Blocks of lines in, batches out; counts what went through."""

    def __init__(self, cluster: ClusterMetadata, topic: str, partition: int | None, lines: _Lines) -> None:
        from sparklog.client.producer.partitioner import Partitioner

        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._lines = lines
        is_new = topic not in cluster.fetch([topic]).topics
        count = len(cluster.topic(topic, create=True).partitions)
        if is_new:
            click.echo(f"created topic {topic!r} with {counted(count, 'partition')}", err=True)
        if partition is not None and partition >= count:
            raise click.BadParameter(f"topic {topic!r} has only partitions 0 to {count - 1}", param_hint="--partition")
        self._limits = TopicLimits(cluster, topic)
        self._partitioner = Partitioner(count)
        self._count = count
        self._waits = _Waits(cluster)
        self._records = 0
        self._bytes = 0
        self._keyless = 0

    def run(self, descriptor: int, size: int | None) -> None:
        """Send all that can be read, then say how much it was."""
        import pyarrow.compute as pc

        from sparklog.cli.records.lines import BLOCK, read_blocks, split_lines

        started = self._cluster.clock.monotonic()
        sending = self._producer()
        with (
            interruptible(_ENDS),
            self._told(sending),
            sending as producer,
            progress(f"to {self._topic}", size, "bytes") as advance,
        ):
            for lines in split_lines(read_blocks(descriptor), self._check_unfinished):
                self._send(producer, lines)
                text_bytes = pc.sum(pc.binary_length(lines)).as_py()
                if text_bytes < BLOCK // 2:
                    producer.flush()  # The input pauses: what came of it must not wait here.
                self._records += len(lines)
                self._bytes += text_bytes
                advance(text_bytes + len(lines))
        seconds = self._cluster.clock.monotonic() - started
        words = f"produced {rate(self._records, self._bytes, seconds)} to {self._topic}"
        done = {"records": self._records, "bytes": self._bytes, "seconds": round(seconds, 3)}
        say_done_aside(words, topic=self._topic, **done)
        if self._keyless and self._lines.separator is not None:
            self._warn_of_keyless(self._lines.separator)

    def _producer(self) -> BatchProducer:
        """Numbered batches keep to their partitions; those without keys rather go where there is a leader."""
        from sparklog.client.producer.batch_producer import BatchProducer
        from sparklog.client.producer.idempotent_batch_producer import best_producer

        if self._partition is None and not self._lines.is_ordered:
            return BatchProducer(self._cluster, self._waits.waiting_for, self._living)
        return best_producer(self._cluster, self._waits.waiting_for)

    @contextmanager
    def _told(self, producer: BatchProducer) -> Iterator[None]:
        """What ends the run early leaves it with a line that says how much is written."""
        try:
            yield
        except (SparklogError, OSError, KeyboardInterrupt) as error:
            outcome = "written before it" if isinstance(error, LineRefused) else "surely written before that"
            if self._cluster.config.required_acks == 0:
                outcome = "sent before that; with --acks 0 no answer says whether they are written"
            click.echo(f"{counted(producer.acknowledged_records, 'line')} {outcome}", err=True)
            raise

    def _led(self) -> list[int]:
        """The partitions that have a leader, as far as that is known now."""
        from sparklog.structs import TopicPartition

        with suppress(SparklogError):  # then none is known, and the producer says what it waits for
            self._cluster.topic(self._topic)
        numbers = range(self._count)
        return [each for each in numbers if self._cluster.known_leader(TopicPartition(self._topic, each)) is not None]

    def _living(self, tp: TopicPartition) -> TopicPartition:
        """``tp``, or where it has no leader another partition that has one."""
        from sparklog.structs import TopicPartition

        led = self._led()
        return tp if tp.partition in led or not led else TopicPartition(tp.topic, random.choice(led))

    def _warn_of_keyless(self, divider: bytes) -> None:
        lines = counted(self._keyless, "line")
        separator = repr(divider.decode(errors="backslashreplace"))
        click.echo(f"{lines} without the separator {separator}: written whole as the value, without a key", err=True)

    def _send(self, producer: BatchProducer, lines: pa.Array) -> None:
        """Send the lines, or those before the first that the topic will never take, which is raised then."""
        rows, refused = self._placed(*self._lines.rows(lines))
        batches = self._batches(rows)
        largest = max((len(each.data) for each in batches), default=0)
        sooner = self._first_refused(rows, batches)
        if sooner is not None or largest > self._cluster.config.max_request_size:
            self._limits.ask(largest)
            sooner = self._first_refused(rows, batches)
        if sooner is not None:
            refused = sooner
            batches = self._batches(rows.first(refused.row))
        for each in batches:
            producer.send(each.tp, each.data)
        if refused is not None:
            producer.flush()
            raise refused
        if rows.key is not None:
            self._keyless += rows.key.null_count

    def _placed(self, rows: Rows, bad: BadLine | None) -> tuple[Rows, LineRefused | None]:
        """The rows before the first that is no record, or names a partition that is not there, and that one."""
        from sparklog.client.producer.partitioner import misplaced

        if self._partition is None and rows.partition is not None:
            row = misplaced(rows.partition, self._count)
            if row is not None:
                why = (
                    f"names partition {rows.partition[row]}, and topic {self._topic!r} has only 0 to {self._count - 1}"
                )
                rows, bad = rows.first(row), BadLine(row, why)
        return rows, None if bad is None else self._refusal(ErrorCode.INVALID_RECORD, *bad)

    def _batches(self, rows: Rows) -> list[_Batch]:
        from sparklog.client.producer.partitioner import Share
        from sparklog.record.columnar import encode_columns
        from sparklog.structs import TopicPartition

        config = self._cluster.config
        shares = [Share(self._partition or 0, 0, len(rows.value), None)]
        if self._partition is None:
            shares = list(self._partitioner.shares(rows.key, len(rows.value), self._led(), rows.partition))
        found: list[_Batch] = []
        for share in shares:
            part = rows.part(share.offset, share.length)
            batches = encode_columns(
                part.key,
                part.value,
                part.headers,
                part.timestamp,
                now_ms=self._cluster.clock.now_ms(),
                rows=share.rows,
                compression=config.compression_type,
                max_batch_bytes=min(config.batch_size, self._limits.batch.size),
            )
            starts = accumulate((each.record_count for each in batches), initial=0)
            tp = TopicPartition(self._topic, share.partition)
            found += (_Batch(tp, each.data, share.row(at)) for at, each in zip(starts, batches, strict=False))
        return found

    def _first_refused(self, rows: Rows, batches: list[_Batch]) -> LineRefused | None:
        """The first line that the topic does not take, as far as its limits are known now."""
        refused = []
        large = [each for each in batches if len(each.data) > self._limits.batch.size]
        if large:
            first = min(large, key=lambda each: each.first_row)
            refused.append(self._too_large(first.first_row, f"makes a batch of {len(first.data):,}"))
        if self._limits.needs_keys and (row := _first_keyless(rows)) is not None:
            separator = self._lines.separator
            has_none = "has no key" if separator is None else f"has no {separator.decode()!r}, so no key"
            why = f"{has_none}, and topic {self._topic!r} (cleanup.policy=compact) takes no record without one"
            refused.append(self._refusal(ErrorCode.INVALID_RECORD, row, f"{why}{self._lines.advice}"))
        return min(refused, key=lambda each: each.row, default=None)

    def _check_unfinished(self, size: int) -> None:
        """Raises LineRefused for a line that is too long as far as it is read: compressed, only where none can be."""
        from sparklog.record.compression import CompressionType

        is_plain = self._cluster.config.compression_type is CompressionType.NONE
        for is_sure in (False, True):
            if size <= (self._limits.batch if is_plain else NO_LIMIT).size:
                return
            if not is_sure:
                self._limits.ask()
        raise self._too_large(0, f"has more than {size:,}")

    def _too_large(self, row: int, what: str) -> LineRefused:
        limit = self._limits.batch
        text = f"{what} bytes, and topic {self._topic!r} takes {limit.size:,}: {limit.remedy}, or shorten the line"
        return self._refusal(ErrorCode.MESSAGE_TOO_LARGE, row, text)

    def _refusal(self, code: ErrorCode, row: int, text: str) -> LineRefused:
        return LineRefused(code, row, f"line {self._records + row + 1:,} {text}")


def _first_keyless(rows: Rows) -> int | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows.key is None:
        return 0
    return int(pc.index(rows.key.is_null(), pa.scalar(True)).as_py()) if rows.key.null_count else None
