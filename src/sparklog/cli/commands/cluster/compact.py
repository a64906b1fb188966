"""``sparklog compact``: have compacted topics cleaned now, and see how far they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import TOPICS, administered, bootstrap_option, job_arguments, say_if_partial
from sparklog.cli.display import counted, moment, output_option, show_json, show_table
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.internal import is_internal_topic
from sparklog.cli.jobs import hindrance, start
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import WholeNumber
from sparklog.errors import ErrorCode, SparklogError

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.compaction import (
        BrokerCompaction,
        Compaction,
        CompactionDescription,
        CompactionOutcome,
        CompactionState,
    )
    from sparklog.client.admin.log_dirs import Replica
    from sparklog.structs import BrokerId, TopicPartition

_CLEANERS = ("auto", "brokers", "spark")
_WORTH_SPARK = 2 << 30
"""Bytes: a worker needs some twenty seconds for them, Spark some ten to begin."""
_RUN_COLUMNS = (
    "topic", "partition", "broker", "bytes before", "bytes after", "reduction %", "records before", "records after",
    "seconds", "result",
)  # fmt: skip
_STATUS_COLUMNS = (
    "topic", "partition", "broker", "dirty %", "clean up to", "cleanable up to", "cleanable bytes", "delay s",
    "last run", "reduction %", "state",
)  # fmt: skip
_BROKER_COLUMNS = (
    "broker", "cleans", "threads", "max dirty %", "max delay s", "max clean time s", "max buffer utilization %",
)  # fmt: skip


class _Commands(GuessingGroup):
    """Tells a user that names a topic where a command stands what to type."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            ctx.fail(f'No such command {args[0]!r}; for a topic of that name: "sparklog compact run {args[0]}".')
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands)
def compact() -> None:
    """Have compacted topics cleaned now, and see how far each replica is cleaned.

    A topic with cleanup.policy=compact keeps the last record of each key. Brokers see to that by themselves; to ask for
    it is for tests, or for room that is needed now.

    \b
    Examples:
      sparklog compact status
      sparklog compact status users --output json
      sparklog compact run users
      sparklog compact run users --partition 3
      sparklog compact run --all
    """


@compact.command(short_help="Clean every replica of compacted topics now, and wait for the end.")
@click.argument("topics", type=TOPIC, nargs=-1, metavar="TOPIC...")
@click.option("--all", "everything", is_flag=True, help="Every topic that is compacted, the brokers' own among them.")
@click.option(
    "-p", "--partition", "partitions", type=WholeNumber(0), multiple=True,
    help="Only this partition of the one TOPIC; may be repeated.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(_CLEANERS), default=_CLEANERS[0], show_default=True,
    help="What cleans: the brokers' own workers, a job of Spark, or the job where that is worth its start.",
)  # fmt: skip
@output_option
@bootstrap_option
@click.pass_context
def run(
    ctx: click.Context,
    topics: tuple[str, ...],
    everything: bool,
    partitions: tuple[int, ...],
    by: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Clean every replica of the TOPICs now, and wait for the end: a line each with what was there and what is left.

    However little has changed, all is cleaned that may be: records below the last stable offset, whatever the topic's
    min.cleanable.dirty.ratio says, but none that min.compaction.lag.ms still keeps. The active segment ends for
    that. Ctrl-C ends the waiting, not the cleaning. A broker cleans as many logs at a time as it has
    log.cleaner.threads. Exit code 1 if a replica could not be cleaned; to have nothing to clean is no failure.

    The brokers' workers clean, one for each log; or the job of jobs/compact.py, with several tasks for each log.
    Without --by it is the job where Spark and Java are installed, this machine has several cores, and there are 2 GB or
    more to read, and neither --partition nor --output json is given. The job needs to see the brokers' files. What it
    does not see the brokers clean. With --output json it prints an object a line. Ctrl-C ends the job.

    \b
    Examples:
      sparklog compact run users
      sparklog compact run users --by brokers
      sparklog compact run users --partition 3 --output json
      sparklog compact run --all
    """
    if everything == bool(topics):
        raise click.UsageError("name the topics to clean, or --all")
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition needs the one TOPIC that it is of")
    is_for_brokers = as_json or bool(partitions)
    if by == "spark" and partitions:
        raise click.UsageError("--by spark does not take --partition")
    with administered(bootstrap, topics) as admin:
        wanted = _compacted(admin) if everything else _named(topics, partitions)
        is_for_spark = by == "spark" or (by == "auto" and not is_for_brokers and _is_worth_spark(admin, topics))
        outcomes = {} if is_for_spark else admin.compact(wanted)
    if is_for_spark:
        told = ["--output", "json"] if as_json else []
        start("compact", [*job_arguments(ctx, bootstrap), *told, *_job_topics(wanted)])
    _tell(outcomes, as_json)


def _tell(outcomes: dict[Replica, CompactionOutcome], as_json: bool) -> None:
    """Raises SparklogError if a replica was not cleaned."""
    rows = [_run_row(replica, outcome) for replica, outcome in outcomes.items()]
    if as_json:
        show_json([dict(zip(map(_as_name, _RUN_COLUMNS), row, strict=True)) for row in rows])
    elif rows:
        show_table(_RUN_COLUMNS, rows, right=_RUN_COLUMNS[1:-1])
    else:
        click.echo("no topic is compacted", err=True)
    failures = [outcome.error for outcome in outcomes.values() if outcome.error is not None]
    if failures:
        raise SparklogError(f"{counted(len(failures), 'replica')} not cleaned: {failures[0].reason}")


@compact.command(short_help="Show how far each replica of compacted topics is cleaned.")
@click.argument("topics", type=TOPIC, nargs=-1, metavar="[TOPIC...]")
@click.option("--internal", is_flag=True, help="The topics too that brokers and Spark's sinks keep for themselves.")
@output_option
@bootstrap_option
def status(topics: tuple[str, ...], internal: bool, as_json: bool, bootstrap: str) -> None:
    """Show how far each replica of the TOPICs, or of all compacted topics, is cleaned.

    Of each broker: whether it cleans (log.cleaner.enable), how many logs at a time, and what Kafka has as metrics: the
    dirtiest log, the longest delay, the longest of the last cleanings of its threads and of jobs, and how full the map
    of keys was.

    Of each replica: the share of what a cleaning would read that is new (dirty), the offset up to which it is clean,
    that up to which it may be cleaned now, the bytes of what may be cleaned, how long it is overdue by
    max.compaction.lag.ms, its last cleaning since the broker started, and by how much that made it smaller. The state
    says what is being cleaned, and what cannot be and why; the brokers' own topics are shown without --internal too
    where there is something to say. JSON has them always.

    \b
    Examples:
      sparklog compact status
      sparklog compact status users
      sparklog compact status --output json | jq '.replicas[] | select(.uncleanable != null)'
    """
    with administered(bootstrap, topics) as admin:
        found = admin.describe_compaction(topics or None)
        hidden = set() if internal or topics or as_json else _internal(admin)
        if not topics:
            say_if_partial(admin, TOPICS)
    if as_json:
        show_json(_document(found))
    else:
        show_table(_BROKER_COLUMNS, [_broker_row(*each) for each in found.brokers.items()], right=_BROKER_COLUMNS[2:])
        shown = (each for each in found.replicas.items() if each[0].tp.topic not in hidden or _state(each[1]))
        rows = [_status_row(replica, state) for replica, state in shown]
        show_table(_STATUS_COLUMNS, rows, right=(*_STATUS_COLUMNS[1:8], _STATUS_COLUMNS[9]))
    errors = [state.error for state in found.replicas.values() if state.error is not None]
    if errors:
        advice = ""
        if errors[0].code is ErrorCode.INVALID_CONFIG:
            advice = '; "sparklog topic alter TOPIC --config cleanup.policy=compact" has a topic compacted'
        raise SparklogError(f"{errors[0].reason}{advice}")


def _internal(admin: Admin) -> set[str]:
    return {name for name, each in admin.describe_cluster().topics.items() if is_internal_topic(each)}


def _compacted(admin: Admin) -> list[str | TopicPartition]:
    """Every partition that is compacted."""
    replicas = admin.describe_compaction().replicas
    return list(dict.fromkeys(each.tp for each in replicas))


def _is_worth_spark(admin: Admin, topics: tuple[str, ...]) -> bool:
    """Whether a job of several tasks can be started here, and saves more time than its start costs."""
    if (os.cpu_count() or 1) == 1:
        return False
    found = admin.describe_compaction(topics or None).replicas.values()
    size = sum(max(each.clean_bytes, 0) + max(each.cleanable_bytes, 0) for each in found)
    return size >= _WORTH_SPARK and not hindrance("compact")


def _job_topics(wanted: list[str | TopicPartition]) -> Iterator[str]:
    for name in dict.fromkeys(each if isinstance(each, str) else each.topic for each in wanted):
        yield f"--topic={name}"  # in one, for a name may begin with a dash


def _named(topics: tuple[str, ...], partitions: tuple[int, ...]) -> list[str | TopicPartition]:
    from sparklog.structs import TopicPartition

    return [TopicPartition(topics[0], number) for number in partitions] if partitions else [*topics]


def _run_row(replica: Replica, outcome: CompactionOutcome) -> list[object]:
    where = [*replica.tp, replica.broker]
    run = outcome.run
    if run is None:
        what = (
            f"not cleaned: {outcome.error.reason}" if outcome.error is not None else outcome.note or "nothing to clean"
        )
        return [*where, None, None, None, None, None, None, what]
    numbers = [run.bytes_before, run.bytes_after, _reduction(run), run.messages_before, run.messages_after]
    return [*where, *numbers, round(run.seconds, 1), "cleaned"]


def _reduction(run: Compaction) -> float:
    """By how much it became smaller, in percent."""
    return round(100 - 100 * run.bytes_after / run.bytes_before, 1) if run.bytes_before else 0.0


def _status_row(replica: Replica, state: CompactionState) -> list[object]:
    last = state.last_run
    return [
        *replica.tp,
        replica.broker,
        _percent(state),
        _known(state.first_dirty_offset),
        _known(state.first_uncleanable_offset),
        _known(state.cleanable_bytes),
        state.delay_ms // 1000,
        None if last is None else moment(last.ended_ms),
        None if last is None else _reduction(last),
        _state(state),
    ]


def _state(state: CompactionState) -> str | None:
    if state.error is not None:
        return state.error.reason
    if state.uncleanable is not None:
        return f"cannot be cleaned: {state.uncleanable}"
    return f"is being cleaned, by {state.cleaned_by}" if state.is_under_way else None


def _percent(state: CompactionState) -> float | None:
    return None if state.dirty_ratio is None else round(100 * state.dirty_ratio, 1)


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _broker_row(broker: BrokerId, each: BrokerCompaction) -> list[object]:
    figures = [each.max_dirty_percent, each.max_compaction_delay_secs, each.max_clean_time_secs]
    cleans = "yes" if each.is_enabled and each.threads else "no"
    return [broker, cleans, each.threads, *figures, each.max_buffer_utilization_percent]


def _document(found: CompactionDescription) -> dict[str, object]:
    brokers = [{"broker": broker, **each._asdict()} for broker, each in found.brokers.items()]
    return {"brokers": brokers, "replicas": [_told(*each) for each in found.replicas.items()]}


def _told(replica: Replica, state: CompactionState) -> dict[str, object]:
    return {
        **replica.tp._asdict(),
        "broker": replica.broker,
        "error": None if state.error is None else state.error.reason,
        "dirty_percent": _percent(state),
        "clean_up_to": _known(state.first_dirty_offset),
        "cleanable_up_to": _known(state.first_uncleanable_offset),
        "clean_bytes": _known(state.clean_bytes),
        "cleanable_bytes": _known(state.cleanable_bytes),
        "delay_ms": state.delay_ms,
        "is_under_way": state.is_under_way,
        "cleaned_by": state.cleaned_by,
        "uncleanable": state.uncleanable,
        "uncleanable_bytes": _known(state.uncleanable_bytes),
        "last_run": None if state.last_run is None else state.last_run._asdict(),
    }


def _as_name(column: str) -> str:
    return column.replace("%", "percent").replace(" ", "_")
