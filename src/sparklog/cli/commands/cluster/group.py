"""``sparklog group``: list, describe, reset-offsets, migrate, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import (
    RegistryPlace,
    administered,
    bootstrap_option,
    group_in_zookeeper,
    registry_options,
    say_if_partial,
)
from sparklog.cli.deletion import delete_each
from sparklog.cli.display import (
    confirm,
    counted,
    done_option,
    is_json,
    output_option,
    say_done_aside,
    show_json,
    show_table,
)
from sparklog.cli.extents import find_extents, say_unreachable
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.internal import is_internal_group
from sparklog.cli.names import GROUP, TOPIC
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.positions import METAVAR, Position, parse_position, resolve_position
from sparklog.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from sparklog.cli.extents import Extents
    from sparklog.client.admin.admin import Admin, GroupDescription, GroupMember, OffsetAndMetadata
    from sparklog.client.zookeeper.migration import Plan
    from sparklog.structs import TopicPartition

_DEAD = "Dead"
"""The state of a group that no coordinator knows."""
_STATES = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", _DEAD)
"""Those of groups of either protocol, by Kafka's names."""


def _parse_states(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> list[str]:
    """By Kafka's names. Raises click.BadParameter for a state that there is none of."""
    known = {each.lower(): each for each in _STATES}
    for each in given:
        if each.lower() not in known:
            raise click.BadParameter(f"there is no state {each!r}, only {', '.join(_STATES)}")
    return [known[each.lower()] for each in given]


@click.group(cls=GuessingGroup)
def group() -> None:
    """List and describe consumer groups, set where they read on, and delete them.

    \b
    Examples:
      sparklog group list
      sparklog group describe readers
      sparklog group reset-offsets readers --topic clicks --to earliest --yes
      sparklog group migrate readers --zookeeper localhost:2181 --to brokers --dry-run
      sparklog group delete readers --yes
    """


@group.command("list", short_help="List the consumer groups of the cluster.")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", callback=_parse_states,
    help="Only groups in this state, such as Stable; may be repeated.",
)  # fmt: skip
@click.option("--internal", is_flag=True, help="The groups too in which Spark's sinks mark their decisions.")
@output_option
@bootstrap_option
def list_groups(states: list[str], internal: bool, as_json: bool, bootstrap: str) -> None:
    """List the consumer groups of the cluster, with their state and the protocol that their members speak.

    States are Empty (no members), Stable, PreparingRebalance, CompletingRebalance, Assigning, Reconciling and Dead, as
    Kafka names them.

    \b
    Examples:
      sparklog group list
      sparklog group list --state Empty --output json
    """
    with administered(bootstrap) as admin:
        found, failures = admin.reachable_groups(states=states)
        say_if_partial(admin, "groups")
    rows = [
        [each.group_id, each.state or None, each.type or None, each.protocol_type or None]
        for each in found
        if internal or not is_internal_group(each.group_id)
    ]
    columns = ["group", "state", "type", "protocol"]
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(columns, rows)
    for error in failures.values():
        click.echo(f"{error}: the groups that it coordinates are not listed", err=True)


@group.command(short_help="Show a group's members, and how far behind it is.")
@click.argument("name", type=GROUP)
@output_option
@bootstrap_option
def describe(name: str, as_json: bool, bootstrap: str) -> None:
    """Show the members of the group NAME, and of each partition what it has committed and how far behind that is.

    Lag is the number of offsets from the committed one to the partition's end, and how many bytes its leader keeps of
    them: as they are stored, up to index.interval.bytes (4096) and a batch too many.

    \b
    Examples:
      sparklog group describe readers
      sparklog group describe readers --output json
    """
    with administered(bootstrap) as admin:
        found = _described(admin, name)
        committed = admin.group_offsets(name)
        held = {tp: each.client_id for each in found.members for tp in each.partitions}
        extents = find_extents(admin, sorted({*committed, *held}))
        sizes = admin.lag_bytes({tp: each.offset for tp, each in committed.items() if tp in extents.end})
    rows = _rows(extents, committed, sizes, held)
    if as_json:
        show_json(_document(found, rows))
    else:
        _show(found, rows)
    say_unreachable(extents.failures, "out of reach")


@group.command("reset-offsets", short_help="Set where a group without members reads on.")
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
@click.option(
    "--to", "position", required=True, metavar=METAVAR, callback=parse_position, help="Where it is to read on."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@done_option
@bootstrap_option
def reset_offsets(
    name: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    position: Position,
    yes: bool,
    bootstrap: str,
) -> None:
    """Set where the group NAME reads on: it must have no members, so stop them first.

    A group that does not exist is made by it. An offset that a partition does not have becomes the nearest that it has,
    and that is said. A time is as in 2013-07-04T12:00; without a zone it is UTC.

    \b
    Examples:
      sparklog group reset-offsets readers --topic clicks --to earliest --yes
      sparklog group reset-offsets readers --topic clicks --partition 3 --to 4711 --yes
      sparklog group reset-offsets readers --to 2013-07-04T12:00 --yes
    """
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition needs the one --topic that it is of")
    with administered(bootstrap, topics) as admin:
        _require_no_members(admin, name)
        wanted = _to_reset(admin, name, topics, partitions)
        offsets, failures = resolve_position(admin, wanted, position)
        if failures:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"nothing was changed: {next(iter(failures.values()))}")
        before = admin.group_offsets(name)
        rows = [[*tp, before[tp].offset if tp in before else None, at] for tp, at in sorted(offsets.items())]
        _say_clamped(offsets, position)
        columns = ["topic", "partition", "before", "after"]
        if not is_json():
            show_table(columns, rows, right=columns[1:])
        confirm(f"Let group {name} read on there?", yes=yes)
        admin.alter_group_offsets(name, offsets)
    changed = [dict(zip(columns, row, strict=True)) for row in rows]
    say_done_aside(f"group {name} reads on there", group=name, offsets=changed)


@group.command(short_help="Move a group from ZooKeeper to the brokers, or back.")
@click.argument("name")
@click.option(
    "--to", "side", type=click.Choice(["brokers", "zookeeper"]), required=True, help="Where it is to live from now on."
)
@registry_options
@click.option("--dry-run", is_flag=True, help="Say what would be copied, and copy nothing.")
@click.option("--back", is_flag=True, help="Let offsets go back, so that records are read again.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@output_option
@bootstrap_option
def migrate(
    name: str,
    side: str,
    place: RegistryPlace,
    dry_run: bool,
    back: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Copy the offsets of the group NAME from ZooKeeper to the brokers' coordinator, or from there to ZooKeeper.

    The group must have no members on either side: stop them first. Start them again when it is done, with the consumer
    of the other kind. Nothing is deleted. An offset that would go back is refused, for its records would be read again.

    \b
    Examples:
      sparklog group migrate readers --zookeeper localhost:2181 --to brokers --dry-run
      sparklog group migrate readers --zookeeper localhost:2181 --to brokers --yes
      sparklog group migrate readers --zookeeper localhost:2181 --to zookeeper --layout kafka --yes
    """
    from sparklog.client.zookeeper.migration import Migration, Side

    to = Side(side)
    with administered(bootstrap) as admin, group_in_zookeeper(place, name) as registry:
        migration = Migration(name, admin, registry)
        plan = migration.plan(to)
        _show_plan(plan, as_json=as_json)
        if dry_run:
            click.echo("nothing was copied: this is a dry run", err=True)
            return
        if plan.moves:
            confirm(f"Copy these offsets of group {name} to {side}?", yes=yes)
        migration.carry_out(plan, to, may_go_back=back)
    click.echo(f"group {name} has its offsets in {side}; what was there before the move is kept", err=True)


@group.command(short_help="Delete groups with all that they have committed.")
@click.argument("names", type=GROUP, nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first; a script must give it.")
@done_option
@bootstrap_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str) -> None:
    """Delete groups with all that they have committed; one that has members is refused.

    A group that cannot be deleted does not keep the others from being deleted. The exit code is then 1.

    \b
    Examples:
      sparklog group delete readers --yes
    """
    confirm(f"Delete {', '.join(names)} with all that they have committed?", yes=yes)
    with administered(bootstrap) as admin:
        delete_each(names, lambda name: admin.delete_groups([name]))


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    columns = ["topic", "partition", "before", "after"]
    rows: list[list[object]] = [[*each.tp, each.before, each.after] for each in plan.moves]
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(columns, rows, right=("partition", "before", "after"))
    for tp in plan.gone:
        click.echo(f"{tp} does not exist any more: its offset stays where it is", err=True)


def _say_clamped(offsets: Mapping[TopicPartition, int], position: Position) -> None:
    """Say where a partition does not have the offset that was asked for."""
    if not isinstance(position, int):
        return
    for tp, at in sorted(offsets.items()):
        if at != position:
            which = "ends at" if at < position else "begins at"
            click.echo(f"{tp} {which} offset {at}: it has no {position}", err=True)


def _described(admin: Admin, name: str) -> GroupDescription:
    """The group. Raises ApiError(GROUP_ID_NOT_FOUND) where the coordinator does not know it."""
    found = admin.describe_groups([name])[name]
    if found.state == _DEAD and not found.members:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
    return found


def _require_no_members(admin: Admin, name: str) -> None:
    found = admin.describe_groups([name])[name]
    if found.members:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {name!r} has {counted(len(found.members), 'member')}")


def _to_reset(admin: Admin, name: str, topics: tuple[str, ...], partitions: tuple[int, ...]) -> list[TopicPartition]:
    from sparklog.structs import TopicPartition

    if not topics:
        committed = sorted(admin.group_offsets(name))
        if not committed:
            raise click.UsageError(f"group {name} has committed nothing: say which --topic")
        return committed
    infos = admin.describe_topics(topics)
    there = [TopicPartition(info.name, each.partition) for info in infos.values() for each in info.partitions]
    unknown = set(partitions) - {tp.partition for tp in there}
    if unknown:
        raise click.BadParameter(f"topic {topics[0]!r} has no partition {min(unknown)}", param_hint="--partition")
    return [tp for tp in there if not partitions or tp.partition in partitions]


def _rows(
    extents: Extents,
    committed: dict[TopicPartition, OffsetAndMetadata],
    sizes: dict[TopicPartition, int],
    held: dict[TopicPartition, str],
) -> list[list[object]]:
    """Topic, partition, committed, end, lag, the same in bytes, the member's client."""
    rows: list[list[object]] = []
    for tp in sorted({*committed, *held}):
        at = committed[tp].offset if tp in committed else None
        end = extents.end.get(tp)
        lag = max(end - at, 0) if end is not None and at is not None else None
        rows.append([*tp, at, end, lag, sizes.get(tp), held.get(tp)])
    return rows


def _show(found: GroupDescription, rows: list[list[object]]) -> None:
    known = sum(row[4] for row in rows if isinstance(row[4], int))
    members = counted(len(found.members), "member")
    click.echo(f"group {found.group_id}: {found.state}, {members}, lag {known}")
    if found.members:
        rows_of_members = [
            [each.client_id, _host(each), each.member_id, len(each.partitions)] for each in found.members
        ]
        show_table(["client", "host", "member", "partitions"], rows_of_members, right=("partitions",))
    if rows:
        columns = ["topic", "partition", "committed", "end offset", "lag", "lag bytes", "client"]
        show_table(columns, rows, right=columns[1:-1])


def _host(member: GroupMember) -> str:
    """Brokers write an address as Java does, with a slash before it."""
    return member.client_host.removeprefix("/")


def _document(found: GroupDescription, rows: list[list[object]]) -> dict[str, object]:
    members = [
        {
            "client": each.client_id,
            "host": _host(each),
            "member": each.member_id,
            "instance": each.group_instance_id,
            "partitions": [tp._asdict() for tp in each.partitions],
        }
        for each in found.members
    ]
    names = ("topic", "partition", "committed", "end_offset", "lag", "lag_bytes", "client")
    offsets = [dict(zip(names, row, strict=True)) for row in rows]
    protocol = {"protocol": found.protocol_type, "assignor": found.protocol}
    return {"group": found.group_id, "state": found.state, **protocol, "members": members, "offsets": offsets}
