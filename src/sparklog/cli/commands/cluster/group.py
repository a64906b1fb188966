"""``sparklog group``: list, describe, migrate, delete; its offsets are in ``cli/commands/cluster/group_offsets.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sparklog.cli.commands.cluster.group_offsets import delete_offsets, reset_offsets
from sparklog.cli.connection import (
    GROUPS,
    TOPICS,
    RegistryPlace,
    administered,
    bootstrap_option,
    group_in_zookeeper,
    registry_options,
    say_if_partial,
)
from sparklog.cli.display import (
    confirm,
    counted,
    done_option,
    output_option,
    printable,
    show_json,
    show_table,
)
from sparklog.cli.extents import find_extents, say_unreachable
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.internal import is_internal_group
from sparklog.cli.names import GROUP
from sparklog.cli.series import delete_each
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
      sparklog group delete-offsets readers --topic clicks --yes
      sparklog group delete readers --yes
    """


group.add_command(reset_offsets)
group.add_command(delete_offsets)


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
        say_if_partial(admin, GROUPS)
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


@group.command(short_help="Show the members of groups, and how far they lag.")
@click.argument("names", type=GROUP, nargs=-1, metavar="NAME...")
@click.option("--all", "everything", is_flag=True, help="Every group but those in which Spark's sinks mark decisions.")
@output_option
@bootstrap_option
def describe(names: tuple[str, ...], everything: bool, as_json: bool, bootstrap: str) -> None:
    """Show the members of the groups, and of each partition what a group has committed and how far behind that is.

    Lag is the number of offsets from the committed one to the partition's end, and how many bytes its leader keeps of
    them: as they are stored, up to index.interval.bytes (4096) and a batch too many. JSON is an object for one NAME,
    and a list of such objects for several and for --all.

    \b
    Examples:
      sparklog group describe readers
      sparklog group describe readers writers --output json
      sparklog group describe --all
    """
    if everything == bool(names):
        raise click.UsageError("name the groups to describe, or --all")
    with administered(bootstrap) as admin:
        found = _all_described(admin) if everything else [_described(admin, each) for each in dict.fromkeys(names)]
        committed = {each.group_id: admin.group_offsets(each.group_id) for each in found}
        held = {each.group_id: _held(each) for each in found}
        extents = find_extents(admin, sorted({tp for name in held for tp in (*committed[name], *held[name])}))
        rows = {name: _rows(admin, extents, committed[name], held[name]) for name in held}
        say_if_partial(admin, TOPICS, done="looked at")
    if as_json:
        documents = [_document(each, rows[each.group_id]) for each in found]
        show_json(documents[0] if len(names) == 1 else documents)
    else:
        _show_all(found, rows)
    say_unreachable(extents.failures, "out of reach")


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
        say_if_partial(admin, TOPICS, done="looked at")
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
      sparklog group delete readers writers --yes
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


def _all_described(admin: Admin) -> list[GroupDescription]:
    """Those that can be asked now; one that is gone since it was listed is left out."""
    listed, failures = admin.reachable_groups()
    say_if_partial(admin, GROUPS)
    for error in failures.values():
        click.echo(f"{error}: the groups that it coordinates are not described", err=True)
    names = [each.group_id for each in listed if not is_internal_group(each.group_id)]
    return [each for each in admin.describe_groups(names).values() if each.state != _DEAD]


def _described(admin: Admin, name: str) -> GroupDescription:
    """The group. Raises ApiError(GROUP_ID_NOT_FOUND) where the coordinator does not know it."""
    found = admin.describe_groups([name])[name]
    if found.state == _DEAD and not found.members:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
    return found


def _held(found: GroupDescription) -> dict[TopicPartition, str]:
    """What the members hold, with the client of each."""
    return {tp: each.client_id for each in found.members for tp in each.partitions}


def _rows(
    admin: Admin, extents: Extents, committed: dict[TopicPartition, OffsetAndMetadata], held: dict[TopicPartition, str]
) -> list[list[object]]:
    """Topic, partition, committed, end, lag, the same in bytes, the member's client."""
    sizes = admin.lag_bytes({tp: each.offset for tp, each in committed.items() if tp in extents.end})
    rows: list[list[object]] = []
    for tp in sorted({*committed, *held}):
        at = committed[tp].offset if tp in committed else None
        end = extents.end.get(tp)
        lag = max(end - at, 0) if end is not None and at is not None else None
        rows.append([*tp, at, end, lag, sizes.get(tp), held.get(tp)])
    return rows


def _show_all(found: list[GroupDescription], rows: dict[str, list[list[object]]]) -> None:
    for number, each in enumerate(found):
        if number:
            click.echo()
        _show(each, rows[each.group_id])


def _show(found: GroupDescription, rows: list[list[object]]) -> None:
    known = sum(row[4] for row in rows if isinstance(row[4], int))
    members = counted(len(found.members), "member")
    click.echo(f"group {printable(found.group_id)}: {found.state}, {members}, lag {known}")
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
