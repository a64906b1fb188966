"""``sparklog consume``: the records of topics, as lines."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sparklog.cli.connection import (
    administering,
    advised,
    bootstrap_option,
    client_properties,
    connected,
    is_refusal,
    may_pass,
)
from sparklog.cli.display import json_lines_option, progress
from sparklog.cli.existing import chosen_partitions, is_pattern, named_topics, plain_names
from sparklog.cli.extents import find_extents, say_unreachable
from sparklog.cli.interruption import Interruption, interruptible
from sparklog.cli.names import GROUP, TOPIC
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.positions import (
    METAVAR,
    Position,
    Tail,
    check_order,
    parse_position,
    parse_start,
    resolve_position,
)
from sparklog.cli.records.json_records import json_lines
from sparklog.cli.registry_values import RegistryValues, registry_options
from sparklog.errors import ApiError, ConfigError, CorruptRecord, ErrorCode, SparklogError

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.cli.records.formats import Format
    from sparklog.client.admin.admin import Admin
    from sparklog.client.cluster.metadata import ClusterMetadata
    from sparklog.client.consumer.batch_consumer import BatchConsumer, Batches
    from sparklog.record.batch import RecordBatch
    from sparklog.structs import TopicPartition

Columns = dict[str, "pa.Array"]
_Round = tuple["TopicPartition", Columns]

_ROUND_BYTES = 4 << 20
"""Decoded bytes that are printed at once."""

_FOLLOWERS_PATIENCE_MS = 3000
"""For which what keeps --follow from reading is not told: leaders move, and a new topic is not known everywhere yet."""

_ANSWER_MS = "5000"
"""How long one broker may keep the others' records waiting."""
NULL = rb"\N"
"""How a key or a value that is null is printed beside the other, which an empty one is not: as databases write it."""
_PARTITIONS_NAMED = 3
"""Of which it is said what they hold, when there is nothing to print."""


class _Layout(NamedTuple):
    """How a record is printed."""

    as_json: bool
    keys: bool
    separator: bytes
    form: Format | None

    @property
    def columns(self) -> tuple[str, ...]:
        if self.form is not None:
            return self.form.columns
        if self.as_json:
            return ("key", "value", "headers", "offset", "timestamp")
        return ("key", "value") if self.keys else ("value",)


def _parse_format(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Format | None:
    from sparklog.cli.records.formats import Format

    try:
        return None if text is None else Format(text)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def _named(_ctx: click.Context, _param: click.Parameter, group: str | None) -> str | None:
    if group == "":
        raise click.BadParameter("must not be empty")
    return group


def _tail(ctx: click.Context, _param: click.Parameter, count: int | None) -> None:
    """--tail 5 is --from -5."""
    if count is None:
        return
    if ctx.get_parameter_source("start") is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--tail says where to begin: leave out --from")
    ctx.params["start"] = Tail(count)


@click.command()
@click.argument("topics", type=TOPIC, nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--from", "start", metavar=f"{METAVAR}|-N", callback=parse_start, default="earliest", show_default=True,
    is_eager=True, help="Where to begin, in every partition; -5: with its last five records.",
)  # fmt: skip
@click.option(
    "--tail", type=WholeNumber(1), metavar="N", expose_value=False, callback=_tail, help="As --from -N.",
)  # fmt: skip
@click.option(
    "--to", "end", metavar=METAVAR, callback=parse_position,
    help="Where to end: before this offset or time; default: the end as it is now.",
)  # fmt: skip
@click.option("-F", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=WholeNumber(0),
    multiple=True,
    help="Only this partition; may be repeated.",
)
@click.option("-n", "--max", "most", type=WholeNumber(1), help="Print at most so many records.")
@click.option(
    "-g", "--group", type=GROUP, callback=_named, help="Read on where this group is, as a member of it, and commit."
)
@click.option(
    "--committed", is_flag=True, help="Leave out records of transactions that are open or aborted (read_committed)."
)
@registry_options
@click.option("-k", "--keys", is_flag=True, help="Print each record's key before its value; null is \\N.")
@click.option("--key-separator", default="\t", help="What is printed between key and value; default: a tab.")
@click.option(
    "-f", "--format", "form", metavar="FORMAT", callback=_parse_format,
    help="kcat's, such as '%t %p %o %k %s\\n'; see above.",
)  # fmt: skip
@json_lines_option
@bootstrap_option
def consume(
    topics: tuple[str, ...],
    start: Position | Tail,
    end: Position | None,
    follow: bool,
    partitions: tuple[int, ...],
    most: int | None,
    group: str | None,
    bootstrap: str,
    **more: Any,
) -> None:
    """Print the records of each TOPIC, a line a record, each partition's in order.

    A TOPIC may be a pattern as in a shell, such as 'clicks-*' in quotes: it means the topics that it matches now.

    Partitions that cannot be read now, and what stands behind a damaged batch, are left out: standard error says which
    and why, and the exit code is 1. With --follow, brokers that go away are waited for: a line on standard error says
    so, and another when it goes on.

    With --group, the partitions are shared with the other members of the group, which read on where it has committed;
    where it has not, --from earliest or latest says where. What is printed is committed: every five seconds, and at the
    end, whatever ends it (Ctrl-C, --max, a reader that goes away). So no record is left out, and some are printed again
    if it is killed, or interrupted while it prints them. Without --follow it ends when this member has come to the end
    of its partitions, as it was when the command began.

    With --registry, values in the wire format of schema registries are printed as JSON, by their schemas.

    A time is as in 2013-07-04, 2013-07-04T12:00 or 2013-07-04T12:00:00-04:00; without a zone it is UTC. The last
    records are counted by their offsets: a partition that is compacted, or written in transactions, has fewer.

    A FORMAT is printed for each record, with no end of a line but what it says. In it %s is the value and %S its length
    (-1 for null), %R that length as four bytes, %k and %K the same of the key, %t topic, %p partition, %o offset, %T
    timestamp in ms, %h headers, %% a percent sign; \\n, \\r, \\t, \\\\ and \\xNN are what they are in C. With --output
    json it is an object a record: topic, partition, offset, timestamp, key, value and headers.

    \b
    Examples:
      sparklog consume greetings
      sparklog consume clicks --tail 10 --follow --keys
      sparklog consume clicks --from 2013-07-04T00:00 --to 2013-07-05T00:00 --json
      sparklog consume clicks --partition 3 --from 1000 --max 10
      sparklog consume 'clicks-*' orders --committed --output json
      sparklog consume clicks --group readers --follow
      sparklog consume clicks -f '%t-%p@%o %k: %s (%S bytes)\\n'
    """
    if follow and end is not None:
        raise click.UsageError("--follow has no end: leave out --to, or --follow")
    if partitions and (len(topics) > 1 or is_pattern(topics[0])):
        raise click.UsageError("--partition needs the one TOPIC that it is of")
    check_order(start, end)
    if group is not None:
        _check_shared(start, end, partitions)
    separator = os.fsencode(more["key_separator"].replace("\\t", "\t"))
    layout = _Layout(more["as_json"], more["keys"], separator, more["form"])
    if layout.form is not None and (layout.as_json or layout.keys):
        raise click.UsageError("--format says all: leave out --keys and --output json")
    values = RegistryValues(more["registry"], more["registry_config"])
    level = {"isolation_level": "read_committed"} if more["committed"] else {}
    with connected(bootstrap, plain_names(topics), request_timeout_ms=_ANSWER_MS, **level) as cluster:
        reading = _Reading(cluster, named_topics(cluster, topics), partitions, layout, values)
        if group is not None:
            reset = {"group.id": group, "auto.offset.reset": str(start)}
            reading.share({**client_properties(bootstrap, **level), **reset}, most, is_endless=follow)
        elif follow:
            reading.follow(start, most)
        else:
            reading.read(start, "latest" if end is None else end, most)
    values.say_others()
    if reading.left_out:
        raise click.exceptions.Exit(1)


def _check_shared(start: Position | Tail, end: Position | None, partitions: tuple[int, ...]) -> None:
    """Raises UsageError for what a member of a group cannot choose."""
    if not isinstance(start, str):
        raise click.UsageError(
            "--group reads on where the group is; where it is nowhere, --from earliest or latest says"
        )
    if end is not None:
        raise click.UsageError("--group reads to the end: leave out --to")
    if partitions:
        raise click.UsageError("--group shares the partitions among its members: leave out --partition")


class _Reading:
    """Reads the partitions that can be read. Of one that cannot be, or no further, standard error says so."""

    def __init__(
        self,
        cluster: ClusterMetadata,
        topics: list[str],
        chosen: tuple[int, ...],
        layout: _Layout,
        values: RegistryValues,
    ) -> None:
        self.left_out: set[TopicPartition] = set()
        """The partitions of which not all was printed that was asked for."""
        self._cluster = cluster
        self._topics = topics
        self._wanted = [tp for each in topics for tp in chosen_partitions(cluster.topic(each), chosen)]
        self._layout = layout
        self._values = values
        self._printed = 0

    def read(self, start: Position | Tail, end: Position, most: int | None) -> None:
        """Print what stands between the two, in the partitions that can be asked."""
        with administering(self._cluster) as admin:
            starts, failures = resolve_position(admin, self._wanted, start)
            ends, more = resolve_position(admin, starts, end) if starts else ({}, {})
            self._leave_out({**failures, **more})
            total = sum(max(at - starts[tp], 0) for tp, at in ends.items())
            if ends and not total:
                click.echo(f"no records there: {_extent(admin, list(ends))}", err=True)
        with progress(
            f"from {', '.join(self._topics)}", total if most is None else min(most, total), "records"
        ) as advance:
            asked = [tp for tp in self._wanted if tp in ends and starts[tp] < ends[tp]]
            rounds = self._bounded({tp: (starts[tp], ends[tp]) for tp in asked})
            self._print(rounds, most, None if sys.stdout.isatty() else advance)

    def follow(self, start: Position | Tail, most: int | None) -> None:
        """Print what comes, until it is interrupted; a partition that cannot be asked at the start is left out."""
        with administering(self._cluster) as admin:
            starts, failures = resolve_position(admin, self._wanted, start)
        self._leave_out(failures)
        if starts:
            with interruptible((signal.SIGINT,)) as interruption:
                self._print(self._following(starts, interruption), most)

    def share(self, settings: Mapping[str, str], most: int | None, *, is_endless: bool) -> None:
        """Print what the group of the settings has not read yet, as one of its members, and commit that."""
        from sparklog.cli.records.member import joined

        with (
            interruptible() as interruption,
            joined(settings, self._topics, self._cluster.clock) as member,
        ):
            ends = None if is_endless else member.ends(self._topics)
            self._print(member.rounds(self._layout.columns, interruption, most, ends), None)
        if not self._printed and not is_endless:
            click.echo(f"nothing to read: group {settings['group.id']} has read what there is", err=True)

    def _print(self, rounds: Iterator[_Round], most: int | None, advance: Any = None) -> None:
        """``most`` records of them; a round is flushed before the next is asked for."""
        wanted = rounds if most is None else _first(most, rounds)
        for tp, columns in self._values.shown(wanted):
            _write(_lines(tp, columns, self._layout))
            self._printed += len(columns["value"])
            if advance is not None:
                advance(len(columns["value"]))

    def _leave_out(self, failures: Mapping[TopicPartition, SparklogError]) -> None:
        say_unreachable(failures, "not read")
        self.left_out |= failures.keys()

    def _stop_at(self, tp: TopicPartition, error: SparklogError) -> None:
        """``error`` says where the partition can be read no further."""
        self.left_out.add(tp)
        advice = f"; --partition {tp.partition} --from OFFSET reads on behind it" if _is_damage(error) else ""
        said = advised(error) if is_refusal(error) else str(error)
        click.echo(f"{said}; {tp} is not read further{advice}", err=True)

    def _bounded(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[_Round]:
        from sparklog.client.consumer.fetch.range_reader import fetch_range

        for tp, (start, end) in ranges.items():
            try:
                yield from _decoded(tp, fetch_range(self._cluster, tp, start, end), start, end, self._layout)
            except SparklogError as error:
                self._stop_at(tp, error)

    def _following(self, starts: dict[TopicPartition, int], interruption: Interruption) -> Iterator[_Round]:
        from sparklog.client.consumer.batch_consumer import BatchConsumer

        consumer = BatchConsumer(self._cluster, starts)
        is_waiting = False
        while consumer.positions:
            interruption.check()
            before = dict(consumer.positions)
            try:
                found = consumer.poll(patience_ms=_FOLLOWERS_PATIENCE_MS)
            except CorruptRecord:
                found = {}
            except SparklogError as error:
                if not may_pass(error):
                    raise
                if not is_waiting:
                    click.echo(f"{error}; still trying, until Ctrl-C", err=True)
                is_waiting = True
                continue
            if is_waiting:
                click.echo("going on", err=True)
            is_waiting = False
            yield from self._printable(consumer, found, before)

    def _printable(
        self, consumer: BatchConsumer, found: Batches, before: Mapping[TopicPartition, int]
    ) -> Iterator[_Round]:
        """What can be decoded of what was found; partitions with damage are followed no more."""
        damaged: dict[TopicPartition, SparklogError] = {**consumer.damaged}
        for tp, batches in found.items():
            try:
                yield from _decoded(tp, batches, before[tp], None, self._layout)
            except CorruptRecord as error:
                damaged[tp] = error
        for tp, damage in damaged.items():
            self._stop_at(tp, damage)
            consumer.positions.pop(tp, None)
        consumer.damaged.clear()


def _is_damage(error: SparklogError) -> bool:
    return isinstance(error, CorruptRecord) or (isinstance(error, ApiError) and error.code is ErrorCode.CORRUPT_MESSAGE)


def _extent(admin: Admin, partitions: list[TopicPartition]) -> str:
    """What the first partitions hold."""
    named = partitions[:_PARTITIONS_NAMED]
    first, end, _ = find_extents(admin, named)
    held = {tp: f"offsets {first[tp]} to {end[tp] - 1}" if end[tp] > first[tp] else "none" for tp in named if tp in end}
    more = len(partitions) - len(named)
    return ", ".join(f"{tp} holds {what}" for tp, what in held.items()) + (f", and {more} more" if more else "")


def _decoded(
    tp: TopicPartition, batches: Iterable[RecordBatch], start: int, end: int | None, layout: _Layout
) -> Iterator[_Round]:
    """The rows of the batches; an error is raised only when all that came before it has been given."""
    from sparklog.record.columnar import ColumnarDecoder

    decoder = ColumnarDecoder(layout.columns)
    failure: SparklogError | None = None
    try:
        for batch in batches:
            decoder.append(batch, start, batch.next_offset if end is None else end)
            if decoder.nbytes >= _ROUND_BYTES:
                yield tp, decoder.finish()
    except SparklogError as error:
        failure = error
    if decoder.rows:
        yield tp, decoder.finish()
    if failure is not None:
        raise failure


def _first(most: int, rounds: Iterator[_Round]) -> Iterator[_Round]:
    """So many records of the rounds; no round is asked for behind the last of them."""
    left = most
    for tp, columns in rounds:
        yield tp, {name: column[:left] for name, column in columns.items()}
        left -= len(columns["value"])
        if left <= 0:
            return


def _write(text: bytes | memoryview) -> None:
    # Standard output without a buffer (PYTHONUNBUFFERED) may take only a part, and when its reader has gone does.
    rest = memoryview(text)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def _lines(tp: TopicPartition, columns: Columns, layout: _Layout) -> bytes | memoryview:
    if layout.form is not None:
        return layout.form.lines(tp, columns)
    return json_lines(tp, columns) if layout.as_json else _plain_lines(columns, layout)


def _plain_lines(columns: Columns, layout: _Layout) -> memoryview:
    from sparklog.cli.records.lines import join_lines

    null = NULL if layout.keys else b""
    return join_lines([columns[name] for name in layout.columns], layout.separator, null)
