"""``sparklog broker list`` and ``describe``: what each broker is, what it leads and holds, and how it is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from sparklog.cli.connection import TOPICS, administered, bootstrap_option, raise_refusal, say_if_partial
from sparklog.cli.display import output_option, show_json, show_table
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.settings import DEFAULT, origin, told
from sparklog.errors import SparklogError
from sparklog.structs import BrokerId, bracketed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparklog.client.admin.admin import Admin, ConfigEntry
    from sparklog.client.admin.log_dirs import LogDir
    from sparklog.cluster.health import BrokerShare
    from sparklog.cluster.info import ClusterInfo

_COLUMNS = (
    "broker", "state", "address", "rack", "controller", "leads", "under-replicated", "replicas", "out of sync",
    "offline", "bytes", "least free",
)  # fmt: skip
_NUMBERS = ("broker", *_COLUMNS[5:])
_DIRECTORY = ("directory", "partitions", "bytes", "free", "total", "error")


class _Brokers(NamedTuple):
    """What the cluster tells of its brokers; ``silent`` are those that it names and that do not answer, and why."""

    info: ClusterInfo
    shares: dict[BrokerId, BrokerShare]
    directories: dict[BrokerId, list[LogDir]]
    silent: dict[BrokerId, SparklogError]

    def state(self, broker: BrokerId) -> str:
        if broker not in self.info.brokers:
            return "gone"
        return "silent" if broker in self.silent else "up"

    def identity(self, broker: BrokerId) -> dict[str, object]:
        at = self.info.brokers.get(broker)
        return {
            "broker": broker,
            "state": self.state(broker),
            "address": None if at is None else str(at),
            "rack": self.info.racks.get(broker),
            "controller": broker == self.info.controller,
        }

    def counts(self, broker: BrokerId) -> dict[str, int]:
        share = self.shares[broker]
        return {
            "leads": share.leads,
            "under-replicated": share.under_replicated,
            "replicas": share.replicas,
            "out of sync": share.out_of_sync,
            "offline": share.offline,
        }


@click.command("list", short_help="List the brokers with what they lead, hold and have room for.")
@output_option
@bootstrap_option
def list_(as_json: bool, bootstrap: str) -> None:
    """List the brokers: where each is, which is the controller, what it leads and holds, and the room that it has.

    State: up; gone, where only replicas tell of it; silent, where the cluster names it and it does not answer.
    Under-replicated: partitions that it leads of which some replica is not in sync, as its metric counts them. Out of
    sync and offline: its own replicas. Least free: bytes free in the log directory that has the fewest.

    \b
    Examples:
      sparklog broker list
      sparklog broker list --output json | jq '.[] | select(.state != "up") | .broker'
    """
    with administered(bootstrap) as admin:
        found = _look(admin)
    rows = [_row(found, broker) for broker in sorted(found.shares)]
    if as_json:
        show_json([{_name(column): cell for column, cell in row.items()} for row in rows])
    else:
        shown = [list({**row, "controller": "yes" if row["controller"] else "no"}.values()) for row in rows]
        show_table(_COLUMNS, shown, right=_NUMBERS)
    _tell_silence(found, sorted(found.silent))


@click.command(short_help="Show one broker: addresses, replicas, log directories, settings.")
@click.argument("broker", type=WholeNumber(0), metavar="BROKER")
@output_option
@bootstrap_option
def describe(broker: int, as_json: bool, bootstrap: str) -> None:
    """Show what a broker is: its addresses, what it leads and holds, its log directories, the settings that were made.

    A broker that is gone is shown as far as its replicas tell of it. What a broker does not tell is null as JSON, and
    standard error says why.

    \b
    Examples:
      sparklog broker describe 1
      sparklog broker describe 1 --output json | jq '.settings[] | select(.from == "this broker")'
    """
    number = BrokerId(broker)
    with administered(bootstrap) as admin:
        found = _look(admin)
        if number not in found.shares:
            named = ", ".join(map(str, sorted(found.shares)))
            raise click.BadParameter(f"there is no broker {broker}, only {named}", param_hint="BROKER")
        releases, _ = admin.releases()
        entries = _settings(admin, number) if found.state(number) == "up" else None
    facts = _facts(found, number, releases.get(number), entries)
    made = None if entries is None else [each for each in entries if each.source != DEFAULT.number]
    directories = [_directory(each) for each in sorted(found.directories.get(number, ()))]
    if as_json:
        document = {_name(what): value for what, value in facts.items()}
        lies = [dict(zip(_DIRECTORY, each, strict=True)) for each in directories]
        settings = None if made is None else [told(each) for each in made]
        show_json({**document, "directories": lies if number in found.directories else None, "settings": settings})
    else:
        _show(facts, directories, made)
    _tell_silence(found, [number])


def _look(admin: Admin) -> _Brokers:
    """Raises ApiError where the user lacks the right to see this."""
    from sparklog.cluster.health import health_of

    info = admin.describe_cluster()
    directories, silent = admin.reachable_log_dirs()
    raise_refusal(silent)
    say_if_partial(admin, TOPICS, done="counted")
    return _Brokers(info, health_of(info, {}).shares, directories, silent)


def _settings(admin: Admin, broker: BrokerId) -> list[ConfigEntry] | None:
    """None, and a line that says why, where they are not told."""
    try:
        return admin.broker_configs(broker)
    except SparklogError as error:
        click.echo(f"{error}: the settings of broker {broker} are not shown", err=True)
        return None


def _row(found: _Brokers, broker: BrokerId) -> dict[str, object]:
    directories = found.directories.get(broker)
    rooms = [each.usable_bytes for each in directories or () if each.usable_bytes >= 0]
    return {
        **found.identity(broker),
        **found.counts(broker),
        "bytes": None if directories is None else sum(sum(each.sizes.values()) for each in directories),
        "least free": min(rooms, default=None),
    }


def _facts(
    found: _Brokers, broker: BrokerId, release: str | None, entries: list[ConfigEntry] | None
) -> dict[str, object]:
    share, values = found.shares[broker], {each.name: each.value for each in entries or ()}
    port = values.get("sparklog.metrics.port")
    return {
        **found.identity(broker),
        "protocol": release,
        "listeners": _listeners(values),
        "advertised listeners": values.get("advertised.listeners") or None,
        "metrics port": int(port) if port and int(port) >= 0 else None,
        **found.counts(broker),
        "preferred": share.preferred,
        "imbalance percent": round(share.imbalance_percent, 1),
    }


def _listeners(values: dict[str, str | None]) -> str | None:
    """Where it listens; the older two settings say so where the newer one is left out."""
    host, port = values.get("host.name"), values.get("port")
    return values.get("listeners") or (f"PLAINTEXT://{bracketed(host)}:{port}" if host and port else None)


def _directory(each: LogDir) -> list[object]:
    room = [None if number < 0 else number for number in (each.usable_bytes, each.total_bytes)]
    return [each.path, len(each.sizes), sum(each.sizes.values()), *room, each.error]


def _show(facts: dict[str, object], directories: list[list[object]], made: list[ConfigEntry] | None) -> None:
    words = {True: "yes", False: "no"}
    rows = [[what, words[value] if isinstance(value, bool) else value] for what, value in facts.items()]
    show_table(["what", "value"], rows)
    if directories:
        show_table(_DIRECTORY, directories, right=_DIRECTORY[1:5])
    if made:
        settings = [[each.name, each.value, origin(each)] for each in made]
        show_table(["setting", "value", "from"], settings)


def _tell_silence(found: _Brokers, brokers: Sequence[BrokerId]) -> None:
    for broker in brokers:
        if broker in found.silent and broker in found.info.brokers:
            click.echo(f"{found.silent[broker]}: what only it can tell is not shown", err=True)


def _name(column: str) -> str:
    return column.replace(" ", "_").replace("-", "_")
