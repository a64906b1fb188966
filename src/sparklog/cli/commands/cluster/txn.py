"""``sparklog txn``: list, describe, commit, abort and find transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import (
    TOPICS,
    TRANSACTIONAL_IDS,
    administered,
    bootstrap_option,
    raise_refusal,
    say_if_partial,
)
from sparklog.cli.display import confirm, done_option, moment, output_option, say_done, show_json, show_table
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import WholeNumber

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.transactions import ActiveProducer
    from sparklog.structs import TopicPartition

_SILENT_S = 900
"""The longest that a broker lets a transaction be open, unless it is set otherwise."""


@click.group(cls=GuessingGroup)
def txn() -> None:
    """See which transactions are open, and end those that are abandoned.

    A TRANSACTIONAL_ID is what a producer has as its transactional.id. Consumers with isolation.level=read_committed
    read no further than where an open transaction begins. Those of Spark jobs: see "sparklog writes".

    \b
    Examples:
      sparklog txn list --state Ongoing
      sparklog txn describe payments
      sparklog txn commit payments --yes
      sparklog txn abort payments --yes
      sparklog txn find-hanging clicks
      sparklog txn producers clicks
      sparklog txn abort --topic clicks --partition 0 --start-offset 4711 --yes
    """


@txn.command("list", short_help="List the transactional ids of the cluster.")
@click.option("--state", "states", multiple=True, help="Only ids in this state, such as Ongoing; may be repeated.")
@click.option(
    "--open-for", type=WholeNumber(0), metavar="SECONDS", help="Only transactions that have been open for longer."
)
@click.option("--match", metavar="REGEX", help="Only ids that this regular expression matches whole.")
@output_option
@bootstrap_option
def list_transactions(
    states: tuple[str, ...], open_for: int | None, match: str | None, as_json: bool, bootstrap: str
) -> None:
    """List the transactional ids of the cluster, with the broker that coordinates each, producer id and state.

    States are Empty (nothing written yet), Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort,
    PrepareEpochFence and Dead, as Kafka names them. Only an Ongoing one waits for its producer.

    \b
    Examples:
      sparklog txn list --state Ongoing --open-for 3600
      sparklog txn list --match 'payments-.*'
    """
    with administered(bootstrap) as admin:
        found, failures = admin.reachable_transactions(
            states=states, open_longer_ms=-1 if open_for is None else open_for * 1000, pattern=match
        )
        raise_refusal(failures)
        say_if_partial(admin, TRANSACTIONAL_IDS)
    if as_json:
        show_json([each._asdict() for each in found])
    else:
        show_table(["transactional id", "coordinator", "producer", "state"], found, right=("coordinator", "producer"))
    for error in failures.values():
        click.echo(f"{error}: the transactional ids that it coordinates are not listed", err=True)


@txn.command(short_help="Show a transaction: whose, since when, and where.")
@click.argument("transactional_id")
@output_option
@bootstrap_option
def describe(transactional_id: str, as_json: bool, bootstrap: str) -> None:
    """Show the transaction of TRANSACTIONAL_ID: whose it is, since when, and the partitions that it reaches."""
    from sparklog.clock import SystemClock

    with administered(bootstrap) as admin:
        found = admin.describe_transactions([transactional_id])[transactional_id]
    if as_json:
        show_json({**found._asdict(), "partitions": [tp._asdict() for tp in found.partitions]})
        return
    timeout = "none (two-phase commit)" if found.timeout_ms == (1 << 31) - 1 else f"{found.timeout_ms / 1000:g} s"
    click.echo(
        f"{found.transactional_id}: {found.state}, producer {found.producer_id} epoch {found.producer_epoch}, "
        f"timeout {timeout}"
    )
    if found.partitions:
        open_for = max(SystemClock().now_ms() - found.start_ms, 0) / 1000
        click.echo(f"open for {open_for:.0f} s in {', '.join(map(str, found.partitions))}")


@txn.command(short_help="Commit a transaction in place of its producer.")
@click.argument("transactional_id")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@done_option
@bootstrap_option
def commit(transactional_id: str, yes: bool, bootstrap: str) -> None:
    """Commit the open transaction of TRANSACTIONAL_ID in place of its producer.

    Do so only if the program that decides has decided so: a transaction that is not prepared may be half of what was
    meant. The producer, if it lives, is fenced: it gets an error and can write no more under this id until it is
    started anew.

    \b
    Examples:
      sparklog txn commit payments --yes
    """
    _end(transactional_id, True, yes, bootstrap)


@txn.command(short_help="Abort a transaction in place of its producer.")
@click.argument("transactional_id", required=False)
@click.option("--topic", type=TOPIC, help="Of one that hangs: the topic that it is open in.")
@click.option("--partition", type=WholeNumber(0), help="Of one that hangs: the partition that it is open in.")
@click.option("--start-offset", type=WholeNumber(0), help="Of one that hangs: the offset at which it begins there.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@done_option
@bootstrap_option
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    yes: bool,
    bootstrap: str,
) -> None:
    """Abort the open transaction of TRANSACTIONAL_ID in place of its producer.

    The producer, if it lives, is fenced: it gets an error and can write no more under this id until it is started anew.

    With --topic, --partition and --start-offset instead of a TRANSACTIONAL_ID: abort one that hangs, in that partition
    alone. "sparklog txn find-hanging" shows what to give.

    \b
    Examples:
      sparklog txn abort payments --yes
      sparklog txn abort --topic clicks --partition 0 --start-offset 4711 --yes
    """
    place = (topic, partition, start_offset)
    if transactional_id is not None and place == (None, None, None):
        _end(transactional_id, False, yes, bootstrap)
    elif transactional_id is None and topic is not None and partition is not None and start_offset is not None:
        _abort_in(topic, partition, start_offset, yes, bootstrap)
    else:
        raise click.UsageError("name a transactional id, or else all of --topic, --partition and --start-offset")


@txn.command("find-hanging", short_help="Find transactions that no coordinator will end.")
@click.argument("topics", type=TOPIC, nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--silent-for", type=WholeNumber(0), default=_SILENT_S, show_default=True, metavar="SECONDS",
    help="Only of producers that wrote nothing for so long; at least the brokers' transaction.max.timeout.ms.",
)  # fmt: skip
@output_option
@bootstrap_option
def find_hanging(topics: tuple[str, ...], silent_for: int, as_json: bool, bootstrap: str) -> None:
    """Find transactions, in these topics or in all, that are open in a partition and that no coordinator will end.

    There should be none; older brokers could leave such. Each is ended with "sparklog txn
    abort --topic T --partition P --start-offset O". Exit code 1 where some seem to hang, and the user may not describe
    every transactional id: a coordinator may know of theirs.

    \b
    Examples:
      sparklog txn find-hanging
      sparklog txn find-hanging clicks --silent-for 3600
    """
    from sparklog.clock import SystemClock

    with administered(bootstrap) as admin:
        found = admin.hanging_transactions(
            _partitions_of(admin, topics), silent_since_ms=SystemClock().now_ms() - silent_for * 1000
        )
        if not topics:
            say_if_partial(admin, TOPICS)
    columns = ["topic", "partition", "start offset", "producer", "epoch"]
    rows = [
        [tp.topic, tp.partition, each.open_since, each.producer_id, each.producer_epoch]
        for tp, producers in found.items()
        for each in producers
    ]
    if as_json:
        show_json([dict(zip([each.replace(" ", "_") for each in columns], row, strict=True)) for row in rows])
    else:
        show_table(columns, rows, right=columns[1:])


@txn.command(short_help="Show which producers a topic's partitions remember.")
@click.argument("topic", type=TOPIC)
@click.option(
    "-p", "--partition", "partitions", type=WholeNumber(0), multiple=True,
    help="Which; may be repeated. Default: all.",
)  # fmt: skip
@output_option
@bootstrap_option
def producers(topic: str, partitions: tuple[int, ...], as_json: bool, bootstrap: str) -> None:
    """Show the producers that the leaders of TOPIC remember: idempotent ones, and those of transactions.

    "last written" is when a producer last wrote there, "open since" the offset at which its open transaction begins.

    \b
    Examples:
      sparklog txn producers clicks
      sparklog txn producers clicks --partition 3 --output json
    """
    from sparklog.structs import TopicPartition

    with administered(bootstrap, [topic]) as admin:
        asked = [TopicPartition(topic, each) for each in partitions] or _partitions_of(admin, (topic,))
        found = sorted(admin.describe_producers(asked).items())
    if as_json:
        show_json([{**tp._asdict(), **_producer(each)} for tp, active in found for each in active])
        return
    columns = ["partition", "producer", "epoch", "last sequence", "last written", "open since"]
    rows = [
        [tp.partition, each.producer_id, each.producer_epoch, each.last_sequence, _time(each), _open_since(each)]
        for tp, active in found
        for each in active
    ]
    show_table(columns, rows, right=[*columns[:4], "open since"])


def _producer(each: ActiveProducer) -> dict[str, object]:
    """As JSON documents show it; None for no transaction."""
    return {**each._asdict(), "open_since": _open_since(each)}


def _open_since(each: ActiveProducer) -> int | None:
    return each.open_since if each.open_since >= 0 else None


def _time(each: ActiveProducer) -> str | None:
    if each.last_timestamp_ms < 0:
        return None
    return moment(each.last_timestamp_ms)


def _end(transactional_id: str, to_commit: bool, yes: bool, bootstrap: str) -> None:
    verb = "commit" if to_commit else "abort"
    confirm(f"{verb.title()} the open transaction of {transactional_id}?", yes=yes)
    with administered(bootstrap) as admin:
        ended = admin.end_transaction(transactional_id, commit=to_commit)
    reached = ", ".join(map(str, ended.partitions)) or "no partition"
    past = "committed" if to_commit else "aborted"
    words = f"{past} the transaction of {transactional_id} (producer {ended.producer_id}) in {reached}"
    where = [tp._asdict() for tp in ended.partitions]
    say_done(words, transactional_id=transactional_id, producer_id=ended.producer_id, outcome=past, partitions=where)


def _abort_in(topic: str, partition: int, start_offset: int, yes: bool, bootstrap: str) -> None:
    from sparklog.structs import TopicPartition

    tp = TopicPartition(topic, partition)
    confirm(f"Abort the transaction at offset {start_offset} of {tp}?", yes=yes)
    with administered(bootstrap, [topic]) as admin:
        ended = admin.abort_transaction(tp, start_offset)
    words = f"aborted the transaction of producer {ended.producer_id} at offset {start_offset} of {tp}"
    say_done(
        words, producer_id=ended.producer_id, outcome="aborted", start_offset=start_offset, partitions=[tp._asdict()]
    )


def _partitions_of(admin: Admin, topics: tuple[str, ...]) -> list[TopicPartition]:
    """Every partition that has a leader to ask."""
    from sparklog.structs import TopicPartition

    infos = admin.describe_topics(topics).values() if topics else admin.list_topics(internal=True)
    return [TopicPartition(info.name, each.partition) for info in infos for each in info.partitions if each.leader >= 0]
