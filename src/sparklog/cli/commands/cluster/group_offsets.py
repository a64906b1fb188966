"""``sparklog group reset-offsets`` and ``delete-offsets``: where a group reads on."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.connection import TOPICS, administered, bootstrap_option, say_if_partial
from sparklog.cli.display import confirm, counted, done_option, is_json, say_done, say_done_aside, show_table
from sparklog.cli.extents import name_partitions
from sparklog.cli.names import GROUP, TOPIC
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.positions import METAVAR, Position, hold_within, parse_position, resolve_position
from sparklog.clock import SystemClock
from sparklog.errors import ApiError, ErrorCode
from sparklog.spark.batch.repetition import duration

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.errors import SparklogError
    from sparklog.structs import TopicPartition

_CHANGES = ["topic", "partition", "before", "after"]


def _parse_age(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """Seconds. Raises click.BadParameter."""
    try:
        return None if text is None else duration(text)
    except ArgumentTypeError as error:
        raise click.BadParameter(str(error)) from error


@click.command("reset-offsets", short_help="Set where a group without members reads on.")
@click.argument("name", type=GROUP)
@click.option(
    "-t",
    "--topic",
    "topics",
    type=TOPIC,
    multiple=True,
    help="Of this topic; may be repeated; default: all it has read.",
)
@click.option("-p", "--partition", "partitions", type=WholeNumber(0), multiple=True, help="Only this partition of it.")
@click.option("--to", "position", metavar=METAVAR, callback=parse_position, help="Where it is to read on.")
@click.option("--shift-by", "shift", type=int, metavar="N", help="So many offsets on, or back: -10.")
@click.option(
    "--by-duration", "age_s", metavar="TIME", callback=_parse_age,
    help="At the first record that is no older than so long: 30s, 10m, 2h, 1d.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be set, and set nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@done_option
@bootstrap_option
def reset_offsets(name: str, bootstrap: str, **options: Any) -> None:
    """Set where the group NAME reads on: it must have no members, so stop them first.

    A group that does not exist is made by --to and --by-duration. An offset that a partition does not have becomes the
    nearest that it has, and that is said. A time is as in 2013-07-04T12:00; without a zone it is UTC.

    \b
    Examples:
      sparklog group reset-offsets readers --topic clicks --to earliest --yes
      sparklog group reset-offsets readers --topic clicks --partition 3 --to 4711 --yes
      sparklog group reset-offsets readers --to 2013-07-04T12:00 --yes
      sparklog group reset-offsets readers --topic clicks --shift-by -100 --yes
      sparklog group reset-offsets readers --by-duration 2h --yes
    """
    given = _Reset(name, **options)
    with administered(bootstrap, given.topics) as admin:
        _reset(admin, given)


@click.command("delete-offsets", short_help="Delete what a group has committed of topics.")
@click.argument("name", type=GROUP)
@click.option(
    "-t", "--topic", "topics", type=TOPIC, multiple=True, required=True, help="Of this topic; may be repeated."
)
@click.option("-p", "--partition", "partitions", type=WholeNumber(0), multiple=True, help="Only this partition of it.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@done_option
@bootstrap_option
def delete_offsets(name: str, topics: tuple[str, ...], partitions: tuple[int, ...], yes: bool, bootstrap: str) -> None:
    """Delete what the group NAME has committed of topics, so that its lag there is counted no more.

    Members that read a topic keep its offsets: that is refused. If the group reads the topic again, it begins where its
    auto.offset.reset says. A group whose last offset goes, and that has no members, goes too.

    \b
    Examples:
      sparklog group delete-offsets readers --topic clicks --yes
      sparklog group delete-offsets readers --topic clicks --partition 3 --yes
    """
    _check_partitions(topics, partitions)
    with administered(bootstrap, topics) as admin:
        doomed = _committed(admin, name, topics, partitions)
        columns, rows = ["topic", "partition", "committed"], [[*tp, at] for tp, at in doomed.items()]
        if not is_json():
            show_table(columns, rows, right=columns[1:])
        confirm(f"Delete these offsets of group {name}?", yes=yes)
        admin.delete_group_offsets(name, doomed)
    deleted = [dict(zip(columns, row, strict=True)) for row in rows]
    say_done_aside(f"group {name} has no offsets there any more", group=name, deleted=deleted)


@dataclass(frozen=True, slots=True)
class _Reset:
    """What was given beside the brokers: one of ``position``, ``shift`` and ``age_s``. Raises click.UsageError."""

    name: str
    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    position: Position | None
    shift: int | None
    age_s: float | None
    dry_run: bool
    yes: bool

    def __post_init__(self) -> None:
        _check_partitions(self.topics, self.partitions)
        if (self.position, self.shift, self.age_s).count(None) != 2:
            raise click.UsageError("say where the group is to read on: --to, --shift-by or --by-duration")


def _reset(admin: Admin, given: _Reset) -> None:
    _require_no_members(admin, given.name)
    if not given.topics:
        say_if_partial(admin, TOPICS, done="looked at")
    before = {tp: each.offset for tp, each in admin.group_offsets(given.name).items()}
    wanted = _to_reset(admin, given, before)
    if given.shift is None:
        position = given.position if given.age_s is None else _moment(given.age_s)
        assert position is not None
        asked = dict.fromkeys(wanted, position) if isinstance(position, int) else {}
        offsets, failures = resolve_position(admin, wanted, position)
    else:
        asked = _shifted(given, before, wanted)
        offsets, failures = hold_within(admin, asked)
    _require_all(failures)
    rows = [[*tp, before.get(tp), at] for tp, at in sorted(offsets.items())]
    _say_clamped(offsets, asked)
    if not is_json():
        show_table(_CHANGES, rows, right=_CHANGES[1:])
    if not given.dry_run:
        confirm(f"Let group {given.name} read on there?", yes=given.yes)
        admin.alter_group_offsets(given.name, offsets)
    _tell(given, [dict(zip(_CHANGES, row, strict=True)) for row in rows])


def _tell(given: _Reset, changes: list[dict[str, object]]) -> None:
    if not given.dry_run:
        say_done_aside(f"group {given.name} reads on there", group=given.name, offsets=changes)
        return
    if is_json():
        say_done("", group=given.name, offsets=changes)
    click.echo("nothing was set: this is a dry run", err=True)


def _moment(age_s: float) -> datetime:
    """So long ago, 1970 at most: no record is older."""
    return datetime.fromtimestamp(max(SystemClock().now_ms() / 1000 - age_s, 0), UTC)


def _shifted(
    given: _Reset, before: Mapping[TopicPartition, int], wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Raises UsageError for a partition of which nothing is committed: there is nothing to count from."""
    assert given.shift is not None
    unread = [tp for tp in wanted if tp not in before]
    if unread:
        raise click.UsageError(f"group {given.name} has committed nothing of {name_partitions(unread)}: give --to")
    return {tp: before[tp] + given.shift for tp in wanted}


def _check_partitions(topics: tuple[str, ...], partitions: tuple[int, ...]) -> None:
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition needs the one --topic that it is of")


def _committed(
    admin: Admin, name: str, topics: tuple[str, ...], partitions: tuple[int, ...]
) -> dict[TopicPartition, int]:
    """What the group has committed there. Raises UsageError for a topic or a partition of which it has nothing."""
    committed = {tp: each.offset for tp, each in sorted(admin.group_offsets(name).items()) if tp.topic in topics}
    found = {tp: at for tp, at in committed.items() if not partitions or tp.partition in partitions}
    lacking = [f"topic {each}" for each in topics if each not in {tp.topic for tp in committed}]
    lacking += [f"partition {each} of {topics[0]}" for each in partitions if each not in {tp.partition for tp in found}]
    if lacking:
        raise click.UsageError(f"group {name} has committed nothing of {lacking[0]}")
    return found


def _require_all(failures: Mapping[TopicPartition, SparklogError]) -> None:
    if failures:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"nothing was changed: {next(iter(failures.values()))}")


def _say_clamped(offsets: Mapping[TopicPartition, int], asked: Mapping[TopicPartition, int]) -> None:
    """Say where a partition does not have the offset that was asked for."""
    for tp, wanted in sorted(asked.items()):
        at = offsets[tp]
        if at != wanted:
            which = "ends at" if at < wanted else "begins at"
            click.echo(f"{tp} {which} offset {at}: it has no {wanted}", err=True)


def _require_no_members(admin: Admin, name: str) -> None:
    found = admin.describe_groups([name])[name]
    if found.members:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {name!r} has {counted(len(found.members), 'member')}")


def _to_reset(admin: Admin, given: _Reset, before: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions that are meant. Raises UsageError for one that there is not, and where there are none."""
    from sparklog.structs import TopicPartition

    if not given.topics:
        if not before:
            raise click.UsageError(f"group {given.name} has committed nothing: say which --topic")
        return sorted(before)
    infos = admin.describe_topics(given.topics)
    there = [TopicPartition(info.name, each.partition) for info in infos.values() for each in info.partitions]
    unknown = set(given.partitions) - {tp.partition for tp in there}
    if unknown:
        raise click.BadParameter(f"topic {given.topics[0]!r} has no partition {min(unknown)}", param_hint="--partition")
    return [tp for tp in there if not given.partitions or tp.partition in given.partitions]
