"""``sparklog cluster``: describe, elect; reassign and drain are in ``cli/commands/cluster/reassign.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparklog.cli.commands.cluster.reassign import drain, reassign
from sparklog.cli.connection import TOPICS, administered, bootstrap_option, say_if_partial
from sparklog.cli.display import confirm, counted, output_option, show_json, show_table
from sparklog.cli.extents import name_partitions
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import WholeNumber
from sparklog.errors import ApiError, ErrorCode, SparklogError

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparklog.client.admin.admin import Admin
    from sparklog.cluster.health import BrokerShare, Health
    from sparklog.cluster.info import ClusterInfo
    from sparklog.structs import BrokerId, TopicPartition

_COLUMNS = (
    "broker", "address", "rack", "protocol", "leads", "preferred", "imbalance %", "replicas", "out of sync", "offline",
)  # fmt: skip
_NUMBERS = ("broker", *_COLUMNS[4:])
_WORDS = {
    "partitions": "all",
    "without_leader": "without a leader",
    "under_replicated": "with a replica that is not in sync",
    "under_min_isr": "under min.insync.replicas",
    "at_min_isr": "at min.insync.replicas",
    "not_preferred": "not led by the first replica",
}


@click.group(cls=GuessingGroup)
def cluster() -> None:
    """See how brokers and partitions do, choose which replicas lead, and on which brokers they are.

    \b
    Examples:
      sparklog cluster describe
      sparklog cluster describe --output json
      sparklog cluster elect
      sparklog cluster elect --unclean --topic clicks --partition 3 --yes
      sparklog cluster reassign --topic clicks --brokers 1,2,3
      sparklog cluster drain 2
    """


cluster.add_command(reassign)
cluster.add_command(drain)


@cluster.command(short_help="Show the brokers, and how many partitions are not as they should be.")
@output_option
@bootstrap_option
def describe(as_json: bool, bootstrap: str) -> None:
    """Show the cluster's id, its controller, its brokers, and how many partitions are not as they should be.

    Of each broker: address and rack; the Kafka release whose protocol it speaks; how many partitions it leads, how
    many it is to lead first (preferred), and the share of these that others lead; how many replicas it has, how many
    of them are not in sync, and how many are offline, since the broker or a log directory is gone. A broker that is
    gone is listed if replicas are its own.

    \b
    Examples:
      sparklog cluster describe
      sparklog cluster describe --output json | jq '.under_replicated'
    """
    from sparklog.cluster.health import health_of

    with administered(bootstrap) as admin:
        found = admin.describe_cluster()
        min_isr = _known_min_isr(admin, found.topics)
        health = health_of(found, min_isr or {})
        releases, failures = admin.releases()
        say_if_partial(admin, TOPICS, done="counted")
    rows = [_row(found, broker, share, releases.get(broker)) for broker, share in sorted(health.shares.items())]
    if as_json:
        show_json(_document(found, _totals(health, min_isr), rows))
    else:
        _show(found, _totals(health, min_isr), rows)
    for error in failures.values():
        click.echo(f"{error}: its protocol is not known", err=True)
    for name, code in sorted(found.errors.items()):
        click.echo(f"topic {name} cannot be described: {code.name}", err=True)


@cluster.command(short_help="Let preferred replicas lead, or others where none in sync is left.")
@click.option(
    "--preferred/--unclean", default=True, show_default=True,
    help="The first replica, if it is in sync; or any that lives, where there is no leader.",
)  # fmt: skip
@click.option(
    "-t", "--topic", "topics", type=TOPIC, multiple=True, help="Of this topic; may be repeated; default: all."
)
@click.option("-p", "--partition", "partitions", type=WholeNumber(0), multiple=True, help="Only this partition of it.")
@click.option("-y", "--yes", is_flag=True, help="With --unclean, do not ask first; a script must give it.")
@output_option
@bootstrap_option
def elect(
    preferred: bool, topics: tuple[str, ...], partitions: tuple[int, ...], yes: bool, as_json: bool, bootstrap: str
) -> None:
    """Let each partition be led by its first replica; with --unclean, those without a leader by any replica that lives.

    An unclean leader may lack records that were acknowledged: these are lost, and the partition serves again. It is
    for partitions of which no replica in sync will come back. Exit code 1 if a partition could not be given a leader.

    \b
    Examples:
      sparklog cluster elect
      sparklog cluster elect --topic clicks --partition 3
      sparklog cluster elect --unclean --topic clicks --partition 3 --yes
    """
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition needs the one --topic that it is of")
    with administered(bootstrap, topics) as admin:
        wanted = _named_partitions(admin, topics, partitions) if topics else None
        if not preferred:
            wanted = _leaderless(admin, wanted)
            if not topics:
                say_if_partial(admin, TOPICS, done="looked at")
            if wanted:
                confirm(f"Give up records that only other replicas have, in {name_partitions(wanted)}?", yes=yes)
        results = {} if wanted == [] else admin.elect_leaders(wanted, unclean=not preferred)
    outcomes = {tp: _outcome(error, preferred) for tp, error in sorted(results.items())}
    if as_json:
        show_json([{**tp._asdict(), "result": outcome} for tp, outcome in outcomes.items()])
    elif outcomes:
        show_table(
            ["topic", "partition", "result"], [[*tp, told] for tp, told in outcomes.items()], right=("partition",)
        )
    else:
        click.echo("every partition is led by its first replica" if preferred else "every partition has a leader")
    _raise_failures([error for error in results.values() if error is not None])


def _known_min_isr(admin: Admin, topics: Collection[str]) -> dict[str, int] | None:
    """None, and a line that says so, if it cannot be read: the brokers may have no ZooKeeper."""
    try:
        return min_isr_of(admin, topics)
    except SparklogError as error:
        click.echo(f"min.insync.replicas of the topics cannot be read: {error}; see sparklog doctor", err=True)
        return None


def min_isr_of(admin: Admin, topics: Collection[str]) -> dict[str, int]:
    """``min.insync.replicas`` of each topic."""
    return {name: int(value) for name, value in admin.topics_setting(topics, "min.insync.replicas").items()}


def _named_partitions(admin: Admin, topics: tuple[str, ...], partitions: tuple[int, ...]) -> list[TopicPartition]:
    """These, or all of the topics. Raises BadParameter for one that there is not."""
    from sparklog.structs import TopicPartition

    infos = admin.describe_topics(topics)
    there = [TopicPartition(info.name, each.partition) for info in infos.values() for each in info.partitions]
    unknown = set(partitions) - {tp.partition for tp in there}
    if unknown:
        raise click.BadParameter(f"topic {topics[0]!r} has no partition {min(unknown)}", param_hint="--partition")
    return [tp for tp in there if not partitions or tp.partition in partitions]


def _leaderless(admin: Admin, wanted: list[TopicPartition] | None) -> list[TopicPartition]:
    """Those of the ``wanted``, or of all for None, that no broker leads."""
    from sparklog.structs import TopicPartition

    found = admin.describe_cluster()
    leaderless = [
        TopicPartition(topic.name, each.partition)
        for topic in found.topics.values()
        for each in topic.partitions
        if each.leader not in found.brokers
    ]
    return sorted(tp for tp in leaderless if wanted is None or tp in wanted)


def _outcome(error: ApiError | None, preferred: bool) -> str:
    if error is None:
        return "elected"
    if error.code is ErrorCode.ELECTION_NOT_NEEDED:
        return "its first replica leads already" if preferred else "it has a leader already"
    return f"not elected: {error}"


def _raise_failures(errors: list[ApiError]) -> None:
    failures = [each for each in errors if each.code is not ErrorCode.ELECTION_NOT_NEEDED]
    if failures:
        raise ApiError(failures[0].code, f"{counted(len(failures), 'partition')} got no leader: {failures[0]}")


def _row(found: ClusterInfo, broker: BrokerId, share: BrokerShare, release: str | None) -> list[object]:
    at = found.brokers.get(broker)
    counts = [share.leads, share.preferred, round(share.imbalance_percent, 1)]
    counts += [share.replicas, share.out_of_sync, share.offline]
    return [broker, None if at is None else str(at), found.racks.get(broker), release, *counts]


def _totals(health: Health, min_isr: dict[str, int] | None) -> dict[str, int | None]:
    """None for what is not known without ``min.insync.replicas``."""
    from sparklog.cluster.health import Ailment

    known = min_isr is not None
    return {
        "partitions": health.partitions,
        "without_leader": health.ailing[Ailment.UNAVAILABLE],
        "under_replicated": health.ailing[Ailment.UNDER_REPLICATED],
        "under_min_isr": health.ailing[Ailment.UNDER_MIN_ISR] if known else None,
        "at_min_isr": health.ailing[Ailment.AT_MIN_ISR] if known else None,
        "not_preferred": health.elsewhere,
    }


def _show(found: ClusterInfo, totals: dict[str, int | None], rows: list[list[object]]) -> None:
    controller = f"broker {found.controller}" if found.controller in found.brokers else "none now"
    click.echo(f"cluster {found.cluster_id}: controller {controller}, {counted(len(found.topics), 'topic')}")
    counts = [[_WORDS[name], count] for name, count in totals.items()]
    show_table(["partitions", "count"], counts, right=("count",))
    show_table(_COLUMNS, rows, right=_NUMBERS)


def _document(found: ClusterInfo, totals: dict[str, int | None], rows: list[list[object]]) -> dict[str, object]:
    names = [each.replace("%", "percent").replace(" ", "_") for each in _COLUMNS]
    controller = found.controller if found.controller in found.brokers else None
    return {
        "cluster": found.cluster_id,
        "controller": controller,
        "topics": len(found.topics),
        **totals,
        "brokers": [dict(zip(names, row, strict=True)) for row in rows],
    }
