"""``sparklog topic trim``: delete what is before an offset or a time, and keep the topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import administered, bootstrap_option, is_refusal
from sparklog.cli.display import confirm, counted, done_option, is_json, say_done_aside, show_table
from sparklog.cli.existing import chosen_partitions
from sparklog.cli.internal import is_internal_topic
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.positions import Position, parse_position, resolve_position
from sparklog.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.structs import TopicPartition

_OTHER = ErrorCode.INCONSISTENT_TOPIC_ID
_COLUMNS = ("partition", "before", "after", "records")


def _parse_limit(ctx: click.Context, param: click.Parameter, text: str | None) -> Position | None:
    if text == "earliest":
        raise click.BadParameter("nothing is before earliest")
    return parse_position(ctx, param, text)


@click.command(short_help="Delete a topic's records before an offset or a time.")
@click.argument("name", type=TOPIC)
@click.option(
    "--before", "position", required=True, metavar="OFFSET|TIME|latest", callback=_parse_limit,
    help="Delete the records before this offset or time; latest: all that there are now.",
)  # fmt: skip
@click.option(
    "-p", "--partition", "partitions", type=WholeNumber(0), multiple=True,
    help="Only of this partition; may be repeated.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@done_option
@bootstrap_option
def trim(name: str, position: Position, partitions: tuple[int, ...], dry_run: bool, yes: bool, bootstrap: str) -> None:
    """Delete the records of the topic NAME that are before an offset or a time, for good: Kafka's DeleteRecords.

    The topic stays, with its settings and the offsets of what is left. Of each partition it shows where it began
    before, where it begins after, and how many records are between the two, counted by their offsets: a topic that is
    written in transactions has fewer. A group whose next record is gone reads on as its auto.offset.reset says.

    A time is as in 2013-07-04T12:00; without a zone it is UTC. Up to the first record that is as young, all go. A
    topic that is only compacted (cleanup.policy=compact) is refused. Records that wait for their offload go too.

    \b
    Examples:
      sparklog topic trim clicks --before 2013-07-04T00:00 --dry-run
      sparklog topic trim clicks --before 2013-07-04T00:00 --yes
      sparklog topic trim clicks --partition 3 --before 4711 --yes
      sparklog topic trim clicks --before latest --yes
    """
    with administered(bootstrap, [name]) as admin:
        topic_id = admin.describe_topics([name])[name].topic_id
        begins, limits = _ranges(admin, name, partitions, position)
        _say_beyond(limits, position)
        count = sum(limits[tp] - begins[tp] for tp in limits)
        _show(begins, limits)
        if count and not dry_run:
            confirm(f"Delete these {counted(count, 'record')} of topic {name}, for good?", yes=yes)
            if admin.describe_topics([name])[name].topic_id != topic_id:
                raise ApiError(_OTHER, f"topic {name} was deleted meanwhile, and made again: nothing was deleted")
            limits |= admin.delete_records({tp: at for tp, at in limits.items() if at > begins[tp]})
    if dry_run:
        words = "nothing was deleted: this is a dry run"
    else:
        done = f"deleted {counted(count, 'record')} of topic {name}"
        words = done if count else "there is nothing before it: nothing was deleted"
    found = [dict(zip(_COLUMNS, row, strict=True)) for row in _rows(begins, limits)]
    say_done_aside(words, topic=name, deleted=count > 0 and not dry_run, partitions=found)


def _ranges(
    admin: Admin, name: str, partitions: tuple[int, ...], position: Position
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Of each partition its first offset, and the one before which all is to go.

    Raises UsageError and ApiError for a topic of which nothing may be deleted, and where not all can be asked.
    """
    topic = admin.describe_topics([name])[name]
    if is_internal_topic(topic):
        raise click.UsageError(f"{name} is internal: nothing is deleted from it")
    _check_policy(admin, name)
    wanted = chosen_partitions(topic, partitions)
    begins, failures = resolve_position(admin, wanted, "earliest")
    limits, more = resolve_position(admin, begins, position) if begins else ({}, {})
    for failure in (*failures.values(), *more.values()):
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"nothing was deleted: {failure}")
    return begins, {tp: max(at, begins[tp]) for tp, at in limits.items()}


def _check_policy(admin: Admin, name: str) -> None:
    """Raises ApiError for a topic of which brokers delete nothing; a user who may not read settings is told later."""
    try:
        policies = {each.name: each.value or "" for each in admin.topic_configs(name)}.get("cleanup.policy", "delete")
    except ApiError as error:
        if is_refusal(error):
            return
        raise
    if "delete" not in policies:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {name} is only compacted (cleanup.policy={policies}): nothing is deleted by offsets;"
            ' "sparklog erase" removes the records of some keys',
        )


def _say_beyond(limits: Mapping[TopicPartition, int], position: Position) -> None:
    for tp, at in sorted(limits.items()):
        if isinstance(position, int) and at < position:
            click.echo(f"{tp} ends at offset {at}: all its records are before {position}", err=True)


def _rows(begins: Mapping[TopicPartition, int], limits: Mapping[TopicPartition, int]) -> list[list[int]]:
    return [[tp.partition, begins[tp], at, at - begins[tp]] for tp, at in sorted(limits.items())]


def _show(begins: Mapping[TopicPartition, int], limits: Mapping[TopicPartition, int]) -> None:
    if not is_json():
        show_table(_COLUMNS, _rows(begins, limits), right=_COLUMNS)
