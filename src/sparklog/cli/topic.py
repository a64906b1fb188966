"""``sparklog topic``: create, list, describe, delete."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import bootstrap_option, connected
from sparklog.cli.display import show_table

if TYPE_CHECKING:
    from sparklog.client.cluster_info import TopicInfo
    from sparklog.client.metadata import ClusterMetadata

_SET_ON_TOPIC = 1
"""Where a setting comes from, as DescribeConfigs numbers it: the topic itself."""


@click.group()
def topic() -> None:
    """Create, list, describe and delete topics.

    \b
    Examples:
      sparklog topic create clicks --partitions 8 --config retention.ms=86400000
      sparklog topic list
      sparklog topic describe clicks
      sparklog topic delete clicks --yes
    """


@topic.command()
@click.argument("name")
@click.option("-p", "--partitions", type=click.IntRange(1), default=1, show_default=True, help="How many partitions.")
@click.option(
    "-r", "--replication", type=click.IntRange(1, 32767), default=1, show_default=True,
    help="Copies of each partition, at most one a broker.",
)  # fmt: skip
@click.option(
    "-c", "--config", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the topic; may be repeated."
)
@bootstrap_option
def create(name: str, partitions: int, replication: int, settings: tuple[str, ...], bootstrap: str) -> None:
    """Create the topic NAME.

    \b
    Examples:
      sparklog topic create clicks --partitions 8
      sparklog topic create accounts --config cleanup.policy=compact
    """
    from sparklog.client.admin import AdminClient, NewTopic

    new = NewTopic(name, partitions, replication, _parse_settings(settings))
    with connected(bootstrap) as cluster:
        AdminClient(cluster).create_topics([new])
    click.echo(f"created topic {name}: {_count(partitions, 'partition')}, {_count(replication, 'copy', 'copies')} each")


@topic.command("list")
@click.option("--internal", is_flag=True, help="The cluster's own topics too, such as __consumer_offsets.")
@bootstrap_option
def list_topics(internal: bool, bootstrap: str) -> None:
    """List the topics with their partitions, copies and records.

    Records are counted by their offsets: a topic that is compacted, or written in transactions, has fewer.
    """
    from sparklog.client.admin import AdminClient

    with connected(bootstrap) as cluster:
        topics = AdminClient(cluster).list_topics(internal=internal)
        records = {each.name: sum(last - first for first, last in _offsets(cluster, each).values()) for each in topics}
    rows = [[each.name, len(each.partitions), _replication(each), records[each.name]] for each in topics]
    columns = ["topic", "partitions", "copies", "records"]
    show_table(columns, rows, right=columns[1:])


@topic.command(short_help="Show a topic's partitions and settings.")
@click.argument("name")
@click.option("--all-configs", is_flag=True, help="Settings left at their defaults too.")
@bootstrap_option
def describe(name: str, all_configs: bool, bootstrap: str) -> None:
    """Show the partitions of the topic NAME and its settings.

    Of each partition: the broker that leads it, those that have a copy (replicas), those whose copy is up to date (in
    sync), the first offset that it still has, and the offset that its next record gets.

    \b
    Examples:
      sparklog topic describe clicks
      sparklog topic describe clicks --all-configs
    """
    from sparklog.client.admin import AdminClient

    with connected(bootstrap) as cluster:
        admin = AdminClient(cluster)
        found = admin.describe_topics([name])[name]
        offsets = _offsets(cluster, found)
        configs = [each for each in admin.topic_configs(name) if all_configs or each.source == _SET_ON_TOPIC]
    click.echo(f"topic {name}: {_count(len(found.partitions), 'partition')}, id {found.topic_id}")
    rows = [
        [
            *(each.partition, each.leader if each.leader >= 0 else None, _ids(each.replicas), _ids(each.isr)),
            *offsets.get(each.partition, (None, None)),
        ]
        for each in found.partitions
    ]
    columns = ["partition", "leader", "replicas", "in sync", "first offset", "end offset"]
    show_table(columns, rows, right=("partition", "leader", "first offset", "end offset"))
    if configs:
        show_table(["setting", "value"], [[each.name, each.value] for each in configs])


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@bootstrap_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str) -> None:
    """Delete topics and all that is in them, for good.

    \b
    Examples:
      sparklog topic delete clicks orders --yes
    """
    from sparklog.client.admin import AdminClient

    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody is there to ask whether to delete: add --yes")
        click.confirm(f"Delete {', '.join(names)} with all records?", abort=True)
    with connected(bootstrap) as cluster:
        AdminClient(cluster).delete_topics(names)
    click.echo(f"deleted {', '.join(names)}")


def _parse_settings(settings: tuple[str, ...]) -> dict[str, str]:
    parsed = {}
    for text in settings:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--config")
        parsed[name.strip()] = value.strip()
    return parsed


def _offsets(cluster: ClusterMetadata, topic_info: TopicInfo) -> dict[int, tuple[int, int]]:
    """First and end offset of each partition that has a leader to ask."""
    from sparklog.client.offsets import earliest_offsets, latest_offsets
    from sparklog.structs import TopicPartition

    led = [TopicPartition(topic_info.name, each.partition) for each in topic_info.partitions if each.leader >= 0]
    first, last = earliest_offsets(cluster, led), latest_offsets(cluster, led)
    return {tp.partition: (first[tp], last[tp]) for tp in led}


def _replication(topic_info: TopicInfo) -> int:
    return max((len(each.replicas) for each in topic_info.partitions), default=0)


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
