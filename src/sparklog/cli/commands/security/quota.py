"""``sparklog quota``: see, set and remove how much users, client ids and addresses may have."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import click

from sparklog.cli.connection import administered, bootstrap_option
from sparklog.cli.display import done_option, output_option, say_done, show_json, show_table
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.numbers import Number
from sparklog.quota.entity import DEFAULT, Entity, IpEntity, Name
from sparklog.quota.keys import Key, json_value, keys_of
from sparklog.quota.requests import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparklog.client.admin.quotas import ClientQuota


class _Whose(NamedTuple):
    """Whose quotas are meant; a name or the default of each kind that is said."""

    user: Name | None
    client_id: Name | None
    ip: Name | None

    @property
    def entity(self) -> Entity | IpEntity:
        """Raises UsageError unless it is one."""
        if self.ip is None and (self.user is not None or self.client_id is not None):
            return Entity(self.user, self.client_id)
        if self.ip is not None and self.user is None and self.client_id is None:
            return IpEntity(self.ip)
        raise click.UsageError("say whose quotas: --user, --client-id or both of them, or --ip; each may be a default")


def _whose(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say whose quotas are meant."""
    for kind, what in (("ip", "address"), ("client-id", "client id"), ("user", "user")):
        default = f"Every {what} without quotas of its own."
        command = click.option(f"--{kind}-default", is_flag=True, help=default)(command)
        command = click.option(f"--{kind}", metavar="NAME", help=f"This {what}.")(command)
    return command


def _named(options: dict[str, str | bool | None]) -> _Whose:
    """Raises UsageError where a name is said, and the default too."""
    found: list[Name | None] = []
    for kind in _Whose._fields:
        name, is_default = options[kind], options[f"{kind}_default"]
        if is_default and name is not None:
            option = kind.replace("_", "-")
            raise click.UsageError(f"either --{option} or --{option}-default")
        found.append(DEFAULT if is_default else name if isinstance(name, str) else None)
    return _Whose(*found)


@click.group(cls=GuessingGroup)
def quota() -> None:
    """See, set and remove how much users, client ids and addresses may have of each broker.

    \b
    producer_byte_rate, consumer_byte_rate   bytes a second
    request_percentage                       percent of the time of a broker's one loop
    controller_mutation_rate                 partitions made or deleted in a second
    connection_creation_rate                 new connections a second (of an address)

    \b
    Examples:
      sparklog quota list
      sparklog quota set --user alice producer_byte_rate=10485760
      sparklog quota set --user alice --client-id-default request_percentage=20
      sparklog quota remove --user alice producer_byte_rate
    """


@quota.command("list", short_help="Show the quotas that are set.")
@_whose
@output_option
@bootstrap_option
def list_(as_json: bool, bootstrap: str, **options: str | bool | None) -> None:
    """Show the quotas that are set: all of them, or those of a user, a client id or an address.

    \b
    Examples:
      sparklog quota list --user alice
      sparklog quota list --ip-default --output json
    """
    whose = _named(options)
    with administered(bootstrap) as admin:
        found = admin.describe_client_quotas(user=whose.user, client_id=whose.client_id, ip=whose.ip)
    if as_json:
        show_json([_told(each) for each in found])
    elif found:
        rows = [[*_columns(each.entity), name, _number(value)] for each in found for name, value in each.quotas.items()]
        show_table(["user", "client id", "ip", "quota", "value"], rows)
    else:
        click.echo("no quotas are set", err=True)


@quota.command("set", short_help="Set quotas; they are in force at once.")
@_whose
@click.argument("settings", nargs=-1, required=True, metavar="NAME=NUMBER...")
@done_option
@bootstrap_option
def set_(settings: tuple[str, ...], bootstrap: str, **options: str | bool | None) -> None:
    """Set quotas of a user, a client id, both together, or an address; the others stay. They are in force at once.

    \b
    Examples:
      sparklog quota set --user alice producer_byte_rate=10485760 consumer_byte_rate=20971520
      sparklog quota set --user-default --client-id-default request_percentage=10
      sparklog quota set --ip 10.0.0.7 connection_creation_rate=20
    """
    entity = _named(options).entity
    changes = dict(_parsed(entity, each) for each in settings)
    with administered(bootstrap) as admin:
        admin.alter_client_quotas({entity: changes})
    words = ", ".join(f"{name}={_number(value)}" for name, value in changes.items())
    say_done(f"set for {_words(entity)}: {words}", entity=_entity(entity), set=changes)


@quota.command(short_help="Take quotas away.")
@_whose
@click.argument("names", nargs=-1, metavar="[NAME...]")
@done_option
@bootstrap_option
def remove(names: tuple[str, ...], bootstrap: str, **options: str | bool | None) -> None:
    """Take quotas away from a user, a client id, both together, or an address: those named, or all that are set.

    \b
    Examples:
      sparklog quota remove --user alice producer_byte_rate
      sparklog quota remove --client-id-default
    """
    whose = _named(options)
    entity = whose.entity
    for name in names:
        _key(entity, name)
    with administered(bootstrap) as admin:
        found = admin.describe_client_quotas(user=whose.user, client_id=whose.client_id, ip=whose.ip)
        there = next((each.quotas for each in found if each.entity == entity), {})
        removed = [name for name in names or keys_of(entity) if name in there]
        if removed:
            admin.alter_client_quotas({entity: dict.fromkeys(removed)})
    words = f"removed from {_words(entity)}: {', '.join(removed)}" if removed else f"{_words(entity)} has none of these"
    say_done(words, entity=_entity(entity), removed=removed)


def _parsed(entity: Entity | IpEntity, setting: str) -> tuple[str, float]:
    name, separator, number = setting.partition("=")
    if not separator:
        raise click.BadParameter(f"{setting!r} is not NAME=NUMBER", param_hint="NAME=NUMBER")
    _key(entity, name)
    try:
        return name, Number().convert(number, None, None)
    except click.BadParameter as error:
        raise click.BadParameter(f"{number!r} is no number", param_hint=name) from error


def _key(entity: Entity | IpEntity, name: str) -> Key:
    keys = keys_of(entity)
    if name not in keys:
        raise click.BadParameter(f"{_words(entity)} has no such quota, but {', '.join(keys)}", param_hint=name)
    return keys[name]


def _number(value: float) -> str:
    return str(int(value)) if isfinite(value) and value == int(value) else str(value)


def _columns(entity: Entity | IpEntity) -> list[str]:
    found = dict(parts_of(entity))
    return [_shown(found.get(kind)) for kind in ("user", "client-id", "ip")]


def _shown(name: Name | None) -> str:
    return "" if name is None else "(default)" if name is DEFAULT else name


def _told(found: ClientQuota) -> dict[str, object]:
    return {
        "entity": _entity(found.entity),
        "quotas": {name: json_value(value) for name, value in found.quotas.items()},
    }


def _entity(entity: Entity | IpEntity) -> dict[str, object]:
    return {kind: None if name is DEFAULT else name for kind, name in parts_of(entity)}


def _words(entity: Entity | IpEntity) -> str:
    return ", ".join(f"the default {kind}" if name is DEFAULT else f"{kind} {name}" for kind, name in parts_of(entity))
