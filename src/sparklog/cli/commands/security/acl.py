"""``sparklog acl``: see, add and remove entries of access control lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.connection import administered, bootstrap_option, in_zookeeper, zookeeper_options
from sparklog.cli.display import confirm, counted, done_option, output_option, say_done, show_json, show_table
from sparklog.cli.guesses import GuessingGroup

if TYPE_CHECKING:
    from sparklog.security.acl.binding import AclBinding, AclFilter
    from sparklog.security.acl.entry import AclOperation
    from sparklog.zk.acls import AclStore
    from sparklog.zk.client import ZkClient

_KINDS = ("topic", "group", "transactional_id", "delegation_token", "user")
_ROLES = {
    ("producer", "topic"): ("WRITE", "DESCRIBE", "CREATE"),
    ("producer", "transactional_id"): ("WRITE", "DESCRIBE"),
    ("consumer", "topic"): ("READ", "DESCRIBE"),
    ("consumer", "group"): ("READ",),
}
"""What kafka-acls gives a producer and a consumer."""


def _about(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say what entries are about, and where the lists are."""
    for option in (
        click.option(
            "--resource-pattern-type", "pattern_type", default="literal", show_default=True,
            type=click.Choice(["literal", "prefixed", "match", "any"]), help="How names are meant.",
        ),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        *(
            click.option(f"--{kind.replace('_', '-')}", kind, multiple=True, metavar="NAME", help="May be repeated.")
            for kind in reversed(_KINDS)
        ),
    ):  # fmt: skip
        command = option(command)
    return bootstrap_option(zookeeper_options(command))


def _who(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say who may do what, and from where."""
    for option in (
        click.option("--operation", "operations", multiple=True, metavar="NAME", help="Read, Write, ...; All if none."),
        click.option(
            "--deny-host", "deny_hosts", multiple=True, metavar="ADDRESS", help="From where not; all if none."
        ),
        click.option("--deny-principal", "denied", multiple=True, metavar="User:NAME", help="The user that may not."),
        click.option("--allow-host", "allow_hosts", multiple=True, metavar="ADDRESS", help="From where; all if none."),
        click.option("--allow-principal", "allowed", multiple=True, metavar="User:NAME", help="The user that may."),
        click.option("--consumer", is_flag=True, help="What a consumer needs of --topic and --group."),
        click.option("--producer", is_flag=True, help="What a producer needs of --topic and --transactional-id."),
    ):
        command = option(command)
    return command


_OF_WHOM = ("allow_hosts", "deny_hosts", "operations", "consumer", "producer")
"""What says more of the principals that are named, and nothing without them."""
_COLUMNS = ("type", "name", "pattern", "principal", "host", "operation", "permission")


@click.group(cls=GuessingGroup)
def acl() -> None:
    """See and change who may do what: the access control lists of brokers with an authorizer.

    \b
    Examples:
      sparklog acl list --topic clicks --resource-pattern-type match
      sparklog acl add --allow-principal User:alice --consumer --topic clicks --group readers
      sparklog acl remove --allow-principal User:alice --operation Read --topic clicks --yes
    """


@acl.command("list", short_help="Show the entries that there are.")
@_about
@click.option("--principal", metavar="User:NAME", help="The entries of this principal alone.")
@output_option
def list_(principal: str | None, *, as_json: bool, **about: Any) -> None:
    """Show the entries that there are, of all resources or of those that are named.

    \b
    Examples:
      sparklog acl list
      sparklog acl list --topic clicks --resource-pattern-type match
    """
    found: set[AclBinding] = set()
    with _lists(about) as lists:
        for each in _resources(about):
            found.update(lists.describe(each._replace(principal=principal)))
    if as_json:
        show_json([_named(each) for each in sorted(found)])
    else:
        show_table(_COLUMNS, [_row(each) for each in sorted(found)])


@acl.command(short_help="Add entries.")
@_who
@done_option
@_about
def add(**options: Any) -> None:
    """Add entries; those that are there stay.

    \b
    Examples:
      sparklog acl add --allow-principal User:alice --producer --topic clicks
      sparklog acl add --deny-principal User:bob --operation Write --topic secret- --resource-pattern-type prefixed
    """
    from sparklog.security.acl.binding import AclBinding
    from sparklog.security.acl.checking import complaint_about, complaint_about_operation

    bindings = [AclBinding(*each) for each in _meant(options)]
    for each in bindings:
        complaint = complaint_about(each) or complaint_about_operation(each.pattern.kind, each.entry.operation)
        if complaint:
            raise click.UsageError(complaint)
    with _lists(options) as lists:
        lists.create(bindings)
    for each in bindings:
        say_done(f"{each}", added=_named(each))


@acl.command(short_help="Remove entries.")
@_who
@_about
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@done_option
def remove(*, yes: bool, **options: Any) -> None:
    """Remove the entries that are named; without a principal, all of the resources that are named.

    \b
    Examples:
      sparklog acl remove --allow-principal User:alice --consumer --topic clicks --group readers --yes
      sparklog acl remove --topic clicks --yes
    """
    from sparklog.security.acl.binding import AclBinding, AclFilter

    if options["allowed"] or options["denied"]:
        filters = [AclFilter.of(AclBinding(*each)) for each in _meant(options)]
    else:
        _check_nothing_is_passed_over(options, _OF_WHOM, "--allow-principal or --deny-principal")
        filters = _resources(options)
    if filters == [AclFilter()]:
        raise click.UsageError("say of what: --topic, --group, --cluster, ...")
    confirm(f"Remove what {counted(len(filters), 'filter')} finds?", yes=yes)
    with _lists(options) as lists:
        removed = lists.delete(filters)
    for each in removed:
        say_done(f"removed {each}", removed=_named(each))
    if not removed:
        click.echo("no entry matches", err=True)


def _named(binding: AclBinding) -> dict[str, str]:
    return dict(zip(_COLUMNS, _row(binding), strict=True))


def _row(binding: AclBinding) -> list[str]:
    (kind, name, type_), (principal, host, operation, permission) = binding
    return [kind.name, name, type_.name, principal, host, operation.name, permission.name]


def _resources(about: dict[str, Any]) -> list[AclFilter]:
    """A filter for each resource that is named; one for all where none is."""
    from sparklog.security.access import CLUSTER, ResourceType
    from sparklog.security.acl.binding import AclFilter
    from sparklog.security.acl.pattern import PatternType

    type_ = PatternType[about["pattern_type"].upper()]
    found = [AclFilter(ResourceType[kind.upper()], name, type_) for kind in _KINDS for name in about[kind]]
    return [*found, *([AclFilter(*CLUSTER, PatternType.LITERAL)] if about["cluster"] else [])] or [AclFilter()]


def _check_nothing_is_passed_over(options: dict[str, Any], names: Iterable[str], needed: str) -> None:
    """Raises UsageError where one of these is given, for it would be passed over without what is ``needed``."""
    for name in names:
        if options[name]:
            option = name.removesuffix("s").replace("_", "-")
            raise click.UsageError(f"--{option} says nothing without {needed}")


def _meant(options: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The pattern and the entry of each binding that the options name. Raises UsageError where they name none."""
    for whose, hosts in (("allow", "allowed"), ("deny", "denied")):
        if not options[hosts]:
            _check_nothing_is_passed_over(options, [f"{whose}_hosts"], f"--{whose}-principal")
    if options["operations"] and (options["consumer"] or options["producer"]):
        raise click.UsageError("--consumer and --producer say the operations: leave out --operation")
    found = list(_bindings(options))
    if not found:
        raise click.UsageError("a producer needs --topic or --transactional-id, and a consumer --topic or --group")
    return found


def _bindings(options: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    from sparklog.security.acl.entry import ANY_HOST, AclEntry, Permission

    if options["pattern_type"] not in ("literal", "prefixed"):
        raise click.UsageError("entries have --resource-pattern-type literal or prefixed")
    patterns = [pattern for each in _resources(options) for pattern in each.patterns]
    who = [
        *product(options["allowed"], options["allow_hosts"] or [ANY_HOST], [Permission.ALLOW]),
        *product(options["denied"], options["deny_hosts"] or [ANY_HOST], [Permission.DENY]),
    ]
    if not patterns or not who:
        raise click.UsageError("say of what (--topic, --group, ...) and who (--allow-principal, --deny-principal)")
    for pattern in patterns:
        for (principal, host, permission), operation in product(who, _operations(options, pattern.kind.name.lower())):
            yield pattern, AclEntry(principal, host, operation, permission)


def _operations(options: dict[str, Any], kind: str) -> list[AclOperation]:
    from sparklog.security.access import Operation
    from sparklog.security.acl.entry import ALL
    from sparklog.security.acl.names import OPERATIONS

    roles = [role for role in ("producer", "consumer") if options[role]]
    if roles:
        return sorted({Operation[name] for role in roles for name in _ROLES.get((role, kind), ())})
    try:
        return [OPERATIONS[name.upper().replace("_", "")] for name in options["operations"]] or [ALL]
    except KeyError as error:
        raise click.UsageError(f"there is no operation {error}; there are {', '.join(sorted(OPERATIONS))}") from error


class _InZooKeeper:
    """The lists without a broker: what ``Admin`` does of them."""

    def __init__(self, zk: ZkClient, store: AclStore) -> None:
        self._zk, self._store = zk, store

    def describe(self, wanted: AclFilter) -> list[AclBinding]:
        return list(wanted.found_in(self._zk.lasting(self._store.read_all).lists))

    def create(self, bindings: list[AclBinding]) -> None:
        self._zk.lasting(self._store.ensure_tree)
        for pattern, entry in bindings:
            self._zk.lasting(self._store.change, pattern, frozenset({entry}).union)

    def delete(self, filters: list[AclFilter]) -> list[AclBinding]:
        gone = sorted({binding for each in filters for binding in self.describe(each)})
        for pattern, entry in gone:
            self._zk.lasting(self._store.change, pattern, lambda before, entry=entry: before - {entry})
        return gone


class _ByBrokers:
    """The lists of a running cluster."""

    def __init__(self, admin: Any) -> None:
        self.describe, self.create, self.delete = admin.describe_acls, admin.create_acls, admin.delete_acls


@contextmanager
def _lists(options: dict[str, Any]) -> Iterator[Any]:
    if not options["zookeeper"] and not options["zookeeper_tls"]:
        with administered(options["bootstrap"]) as admin:
            yield _ByBrokers(admin)
        return
    from sparklog.zk.acls import AclStore

    with in_zookeeper(options["zookeeper"], options["zookeeper_tls"]) as zk:
        yield _InZooKeeper(zk, AclStore(zk))
