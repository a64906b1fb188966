"""``sparklog topic``: create, list, describe, alter, delete; trim is in ``cli/commands/cluster/trim.py``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from sparklog.cli.commands.cluster.cluster import min_isr_of
from sparklog.cli.commands.cluster.trim import trim
from sparklog.cli.connection import TOPICS, administered, bootstrap_option, say_if_partial
from sparklog.cli.display import confirm, counted, done_option, output_option, say_done, show_json, show_table
from sparklog.cli.existing import is_listed, is_pattern, matched_topics, plain_names
from sparklog.cli.extents import find_extents, say_unreachable
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import Copies, WholeNumber
from sparklog.cli.series import delete_each, in_series
from sparklog.cli.settings import ON_TOPIC, check_deleted, described_changes, parse_changes, parse_settings, told
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.structs import uuid_to_text

if TYPE_CHECKING:
    from sparklog.cli.extents import Extents
    from sparklog.client.admin.admin import Admin, ConfigEntry, Replica, RetentionState
    from sparklog.cluster.health import Ailment
    from sparklog.cluster.info import PartitionInfo, TopicInfo
    from sparklog.structs import TopicPartition

_LITTLE_ROOM = 16 << 20
"""Bytes free on a disk of which it is said."""

_OF_RETENTION = ("sparklog.retention.", "sparklog.offload.")
"""What settings begin with that have something to show."""

_PLACES = ("leader", "replicas", "in sync", "offline")
"""Where a partition is: the columns that ``_places`` fills."""


class _Described(NamedTuple):
    """What is known of a topic besides what its partitions hold."""

    found: TopicInfo
    configs: list[ConfigEntry]
    eligible: dict[int, tuple[int, ...]]
    """The eligible replicas by partition."""
    retention: list[tuple[Replica, RetentionState]]


@click.group(cls=GuessingGroup)
def topic() -> None:
    """Create, list, describe, alter, trim and delete topics.

    \b
    Examples:
      sparklog topic create clicks --partitions 8 --config retention.ms=86400000
      sparklog topic list
      sparklog topic list --output json
      sparklog topic describe clicks
      sparklog topic describe --under-replicated
      sparklog topic alter clicks --partitions 16 --config retention.ms=3600000
      sparklog topic trim clicks --before 2013-07-04 --yes
      sparklog topic delete clicks --yes
    """


topic.add_command(trim)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-p", "--partitions", type=WholeNumber(1), default=1, show_default=True, help="How many partitions.")
@click.option(
    "-r", "--replication", "--replication-factor", type=Copies(), default=1, show_default=True,
    help="Copies of each partition, on as many brokers: from 1 to the number of brokers.",
)  # fmt: skip
@click.option(
    "-c", "--config", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the topic; may be repeated."
)
@click.option("--if-not-exists", "may_exist", is_flag=True, help="Leave a topic that exists as it is; exit code 0.")
@done_option
@bootstrap_option
def create(
    names: tuple[str, ...],
    partitions: int,
    replication: int,
    settings: tuple[str, ...],
    may_exist: bool,
    bootstrap: str,
) -> None:
    """Create topics.

    It says "created" when every partition has a leader that takes records. Settings are Kafka's; "sparklog topic
    describe NAME --all-configs" lists them. With cleanup.policy=compact the topic keeps the last record of each key,
    and takes none without a key; "sparklog compact status" shows how far it is cleaned.

    A topic that cannot be created does not keep the others from being created. The exit code is then 1. With
    --if-not-exists, one that exists stays as it is: its partitions and settings may be others.

    \b
    Examples:
      sparklog topic create clicks --partitions 8
      sparklog topic create clicks --config retention.ms=86400000 --config max.message.bytes=4194304
      sparklog topic create clicks orders --replication 3 --if-not-exists
    """
    from sparklog.client.admin.admin import NewTopic

    parsed = parse_settings(settings)

    def created(name: str) -> None:
        try:
            admin.create_topics([NewTopic(name, partitions, replication, parsed)])
        except ApiError as error:
            if may_exist and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                say_done(f"topic {name} exists: it stays as it is", exists=name)
                return
            if ErrorCode.KAFKA_STORAGE_ERROR.name in str(error):
                _say_room(admin)
            raise
        size = f"{counted(partitions, 'partition')}, {counted(replication, 'copy', 'copies')} each"
        done = {"partitions": partitions, "copies": replication, "settings": parsed}
        say_done(f"created topic {name}: {size}", created=name, **done)

    with administered(bootstrap) as admin:
        in_series(names, created)


@topic.command("list", short_help="List the topics with their partitions, copies and records.")
@click.argument("names", type=TOPIC, nargs=-1, metavar="[NAME]...")
@click.option("--internal", is_flag=True, help="The topics too that brokers and Spark's sinks keep for themselves.")
@output_option
@bootstrap_option
def list_topics(names: tuple[str, ...], internal: bool, as_json: bool, bootstrap: str) -> None:
    """List the topics with their partitions, copies and records: those of these names, or all.

    A NAME may be a pattern as in a shell, such as 'clicks-*' in quotes. One that no topic matches lists none.

    Records are counted by their offsets: a topic that is compacted, or written in transactions, has fewer. Partitions
    that cannot be asked now are not counted: "not counted" has their numbers, and standard error says why.

    \b
    Examples:
      sparklog topic list
      sparklog topic list 'clicks-*' orders
      sparklog topic list --internal --output json
    """
    with administered(bootstrap, plain_names(names)) as admin:
        cluster = admin.describe_cluster()
        topics = [each for _, each in sorted(cluster.topics.items()) if is_listed(each, names, internal=internal)]
        extents = find_extents(admin, [tp for each in topics for tp in _partitions(each)])
        say_if_partial(admin, TOPICS)
    rows = [_row(each, extents) for each in topics]
    failed = {} if names else cluster.errors
    rows += [[name, None, None, None, None] for name in sorted(failed)]
    columns = ["topic", "partitions", "copies", "records", "not counted"]
    if as_json:
        show_json([_named(columns, row) for row in rows])
    else:
        show_table(columns, [[*row[:4], _ranges(row[4])] for row in rows], right=columns[1:4])
    say_unreachable(extents.failures, "not counted")
    for name, code in sorted(failed.items()):
        click.echo(f"{name} cannot be described: {code.name}", err=True)


@topic.command(short_help="Show topics' partitions and settings, or what ails partitions.")
@click.argument("names", type=TOPIC, nargs=-1, metavar="[NAME]...")
@click.option("--under-replicated", is_flag=True, help="Only partitions with a replica that is not in sync.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@click.option("--under-min-isr", is_flag=True, help="Only partitions with fewer in sync than min.insync.replicas.")
@click.option("--at-min-isr", is_flag=True, help="Only partitions with just min.insync.replicas in sync.")
@click.option("--all-configs", is_flag=True, help="Settings left at their defaults too.")
@output_option
@bootstrap_option
def describe(
    names: tuple[str, ...],
    under_replicated: bool,
    unavailable: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    all_configs: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Show the partitions of the topics and their settings.

    A NAME may be a pattern as in a shell, such as 'clicks-*' in quotes: it means the topics that it matches. JSON is an
    object for one NAME, and a list of such objects for several and for a pattern.

    Of each partition: the broker that leads it, those that have a copy (replicas), those whose copy is up to date (in
    sync), those whose copy is out of reach (offline), the first offset that it still has, and the offset that its next
    record gets. Where fewer are in sync than min.insync.replicas asks for: those that have left and may lead all the
    same (eligible). Of a partition that waits for its offload: what it holds back, up to which limit, and how many
    records it lost since its broker leads it.

    With an option that says "only", the partitions to which one of these applies, of these topics or else of all, and
    no settings and offsets. A partition without a leader is under min.insync.replicas too.

    \b
    Examples:
      sparklog topic describe clicks
      sparklog topic describe clicks --all-configs
      sparklog topic describe 'clicks-*' orders
      sparklog topic describe --under-replicated --unavailable
    """
    from sparklog.cluster.health import Ailment

    flags = (under_replicated, unavailable, under_min_isr, at_min_isr)
    wanted = {ailment for ailment, is_asked in zip(Ailment, flags, strict=True) if is_asked}
    if not names and not wanted:
        raise click.UsageError("name a topic, or what the partitions of all topics are to be searched for")
    with administered(bootstrap, plain_names(names)) as admin:
        there = admin.describe_cluster().topics if any(map(is_pattern, names)) else {}
        found = admin.describe_topics(matched_topics(names, there)) if names else None
        if found is None or wanted:
            _show_ailing(_ailing(admin, found, wanted), as_json)
            if found is None:
                say_if_partial(admin, TOPICS)
        else:
            extents = find_extents(admin, [tp for each in found.values() for tp in _partitions(each)])
            described = [_described(admin, each, all_configs) for each in found.values()]
            if as_json:
                documents = [_document(each, extents) for each in described]
                show_json(documents if len(names) > 1 or is_pattern(names[0]) else documents[0])
            else:
                _show_all(described, extents)
            say_unreachable(extents.failures, "out of reach")


def _described(admin: Admin, found: TopicInfo, all_configs: bool) -> _Described:
    configs = [each for each in admin.topic_configs(found.name) if all_configs or each.source == ON_TOPIC.number]
    return _Described(found, configs, _eligible(admin, found), _retention(admin, found.name, configs))


@topic.command(short_help="Change a topic's settings, or give it more partitions.")
@click.argument("name", type=TOPIC)
@click.option(
    "-c", "--config", "settings", multiple=True, metavar="NAME=VALUE", help="A setting to change; may be repeated."
)
@click.option(
    "-d", "--delete-config", "deleted", multiple=True, metavar="NAME",
    help="A setting that goes back to its default; may be repeated.",
)  # fmt: skip
@click.option("-p", "--partitions", type=WholeNumber(1), help="How many partitions it shall have: more than now.")
@done_option
@bootstrap_option
def alter(
    name: str, settings: tuple[str, ...], deleted: tuple[str, ...], partitions: int | None, bootstrap: str
) -> None:
    """Change settings of the topic NAME, or give it more partitions; what is not named stays.

    A topic never gets fewer partitions. With more, a key's records go to another partition than before.

    \b
    Examples:
      sparklog topic alter clicks --config retention.ms=3600000
      sparklog topic alter clicks --delete-config retention.ms
      sparklog topic alter clicks --partitions 16
    """
    changes = parse_changes(settings, deleted)
    if not changes and partitions is None:
        raise click.UsageError("name what to change: --config, --delete-config or --partitions")
    with administered(bootstrap, [name]) as admin:
        admin.describe_topics([name])
        if deleted:
            check_deleted(deleted, admin.topic_configs(name))
        if changes and partitions is not None:  # both or neither
            admin.create_partitions({name: partitions}, validate_only=True)
        if changes:
            admin.alter_topic_configs(name, changes)
        if partitions is not None:
            admin.create_partitions({name: partitions})
    done = [described_changes(changes)] if changes else []
    done += [counted(partitions, "partition")] if partitions is not None else []
    words = f"altered topic {name}: {', '.join(done)}"
    say_done(words, altered=name, settings=changes, partitions=partitions)


@topic.command()
@click.argument("names", type=TOPIC, nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@done_option
@bootstrap_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str) -> None:
    """Delete topics and all that is in them, for good.

    A topic that cannot be deleted does not keep the others from being deleted. The exit code is then 1.

    \b
    Examples:
      sparklog topic delete clicks orders --yes
    """
    confirm(f"Delete {', '.join(names)} with all records?", yes=yes)
    with administered(bootstrap) as admin:
        delete_each(names, lambda name: admin.delete_topics([name]))


def _say_room(admin: Admin) -> None:
    """Say of the log directories that hold no more what is the matter with them."""
    with suppress(SparklogError):  # what went wrong before is said all the same
        for broker, directories in sorted(admin.log_dirs().items()):
            for each in directories:
                if each.error is not None:
                    click.echo(f"broker {broker}: {each.path} is out of service ({each.error})", err=True)
                elif 0 <= each.usable_bytes < _LITTLE_ROOM:
                    room = f"{each.usable_bytes:,} of {each.total_bytes:,} bytes are free"
                    click.echo(f"broker {broker}: {each.path}: {room}", err=True)


def _partitions(topic_info: TopicInfo) -> list[TopicPartition]:
    from sparklog.structs import TopicPartition

    return [TopicPartition(topic_info.name, each.partition) for each in topic_info.partitions]


def _row(topic_info: TopicInfo, extents: Extents) -> list[object]:
    """Name, partitions, copies, records, the partitions whose records are not among those."""
    mine = _partitions(topic_info)
    records = sum(extents.end[tp] - extents.first[tp] for tp in mine if tp in extents.first)
    copies = max((len(each.replicas) for each in topic_info.partitions), default=0)
    return [topic_info.name, len(mine), copies, records, [tp.partition for tp in mine if tp in extents.failures]]


def _named(columns: list[str], row: list[object]) -> dict[str, object]:
    return {column.replace(" ", "_"): cell for column, cell in zip(columns, row, strict=True)}


def _ranges(numbers: object) -> str | None:
    """1,2,3,7 as 1-3,7; None for none."""
    if not isinstance(numbers, list):
        return None
    ends: list[list[int]] = []
    for number in sorted(numbers):
        if ends and ends[-1][1] == number - 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ends) or None


def _eligible(admin: Admin, found: TopicInfo) -> dict[int, tuple[int, ...]]:
    """The eligible replicas by partition; brokers that cannot tell have none."""
    if all(len(each.isr) == len(each.replicas) for each in found.partitions):
        return {}
    try:
        return admin.eligible_replicas(found.name)
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return {}


def _retention(admin: Admin, name: str, configs: list[ConfigEntry]) -> list[tuple[Replica, RetentionState]]:
    """What waits for the offload, and which policies fail; nothing of a topic that has no settings of that kind."""
    if not any(each.name.startswith(_OF_RETENTION) for each in configs):
        return []
    try:
        return [*admin.describe_retention([name]).items()]
    except ApiError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return []


def _show_retention(found: list[tuple[Replica, RetentionState]]) -> None:
    waiting = [(replica, state) for replica, state in found if state.group is not None]
    if waiting:
        rows = [
            [replica.tp.partition, state.offloaded, *_held(state), state.limit_bytes, state.lost_records, state.group]
            for replica, state in waiting
        ]
        columns = ["partition", "offloaded up to", "bytes held back", "records held back", "limit", "lost", "group"]
        show_table(columns, rows, right=columns[:-1])
    for replica, state in found:
        if state.refusal is not None:
            click.echo(f"broker {replica.broker} deletes nothing of {replica.tp}: {state.refusal}", err=True)


def _held(state: RetentionState) -> tuple[int | None, int | None]:
    """Bytes and records; None before the first look."""
    return (state.held_bytes, state.held_records) if state.checked_ms is not None else (None, None)


def _told_of(replica: Replica, state: RetentionState) -> dict[str, object]:
    held_bytes, held_records = _held(state)
    told = {**state._asdict(), "held_bytes": held_bytes, "held_records": held_records}
    return {"partition": replica.tp.partition, "broker": replica.broker, **told}


def _show_all(described: list[_Described], extents: Extents) -> None:
    for number, each in enumerate(described):
        if number:
            click.echo()
        _show(each, extents)
        _show_retention(each.retention)


def _show(described: _Described, extents: Extents) -> None:
    found, configs, eligible, _ = described
    click.echo(f"topic {found.name}: {counted(len(found.partitions), 'partition')}, id {uuid_to_text(found.topic_id)}")
    rows = [
        [each.partition, *_places(each), *_extent(found, each, extents)]
        + ([_ids(eligible.get(each.partition, ()))] if eligible else [])
        for each in found.partitions
    ]
    columns = ["partition", *_PLACES, "first offset", "end offset", *(["eligible"] if eligible else [])]
    show_table(columns, rows, right=("partition", "leader", "first offset", "end offset"))
    if configs:
        show_table(["setting", "value"], [[each.name, each.value] for each in configs])


def _document(described: _Described, extents: Extents) -> dict[str, object]:
    found = described.found
    partitions = []
    for each in found.partitions:
        first, end = _extent(found, each, extents)
        shown = {**_replicas(each), "eligible": described.eligible.get(each.partition, ())}
        partitions.append({**shown, "first_offset": first, "end_offset": end})
    settings = [told(each) for each in described.configs]
    retention = [_told_of(*each) for each in described.retention]
    named = {"topic": found.name, "id": uuid_to_text(found.topic_id)}
    return {**named, "partitions": partitions, "settings": settings, "retention": retention}


def _replicas(each: PartitionInfo) -> dict[str, object]:
    """Where a partition is, as JSON documents show it."""
    shown = {"partition": each.partition, "leader": _leader(each), "replicas": each.replicas}
    return {**shown, "in_sync": each.isr, "offline": each.offline}


def _ailing(admin: Admin, chosen: dict[str, TopicInfo] | None, wanted: set[Ailment]) -> list[tuple[str, PartitionInfo]]:
    """The partitions of these topics, or of all, that suffer one of these."""
    from sparklog.cluster.health import ailments

    cluster = admin.describe_cluster()
    topics = cluster.topics if chosen is None else chosen
    least = min_isr_of(admin, topics)
    return [
        (topic, each)
        for topic, info in sorted(topics.items())
        for each in info.partitions
        if wanted & ailments(each, cluster.brokers, least.get(topic, 1))
    ]


def _show_ailing(found: list[tuple[str, PartitionInfo]], as_json: bool) -> None:
    if as_json:
        show_json([{"topic": topic, **_replicas(each)} for topic, each in found])
        return
    rows = [[topic, each.partition, *_places(each)] for topic, each in found]
    show_table(["topic", "partition", *_PLACES], rows, right=("partition", "leader"))


def _places(each: PartitionInfo) -> list[object]:
    return [_leader(each), _ids(each.replicas), _ids(each.isr), _ids(each.offline) or None]


def _leader(partition: PartitionInfo) -> int | None:
    return partition.leader if partition.leader >= 0 else None


def _extent(found: TopicInfo, partition: PartitionInfo, extents: Extents) -> tuple[int | None, int | None]:
    from sparklog.structs import TopicPartition

    tp = TopicPartition(found.name, partition.partition)
    return extents.first.get(tp), extents.end.get(tp)


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
