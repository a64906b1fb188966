"""``sparklog config``: describe and alter the settings of a topic, of a broker, of all brokers, of loggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from sparklog.cli.connection import administered, bootstrap_option
from sparklog.cli.display import done_option, output_option, say_done, show_json, show_table
from sparklog.cli.guesses import GuessingGroup
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import WholeNumber
from sparklog.cli.settings import DEFAULT, check_deleted, described_changes, origin, parse_changes, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparklog.client.admin.admin import Admin, ConfigEntry
    from sparklog.structs import BrokerId


class _Whose(NamedTuple):
    """Whose settings are meant: one of the four."""

    topic: str | None
    broker: int | None
    every_broker: bool
    loggers: int | None

    def __str__(self) -> str:
        if self.loggers is not None:
            return f"loggers of broker {self.loggers}"
        if self.topic is not None:
            return f"topic {self.topic}"
        return "all brokers" if self.every_broker else f"broker {self.broker}"

    @property
    def topics(self) -> list[str]:
        return [] if self.topic is None else [self.topic]

    def check(self) -> _Whose:
        """Raises UsageError unless it is exactly one."""
        if sum(each is not None for each in (self.topic, self.broker, self.loggers)) + self.every_broker != 1:
            raise click.UsageError("say whose settings: one of --topic, --broker, --all-brokers, --broker-loggers")
        return self


def _whose(command: Callable[..., None]) -> Callable[..., None]:
    """Add the four options that say whose settings are meant."""
    for option in (
        click.option(
            "--broker-loggers",
            "loggers",
            type=WholeNumber(0),
            metavar="ID",
            help="The levels of this broker's loggers, until it stops: TRACE, DEBUG, INFO, WARN, ERROR, FATAL.",
        ),
        click.option("--all-brokers", "every_broker", is_flag=True, help="What is set for all brokers at once."),
        click.option("--broker", type=WholeNumber(0), metavar="ID", help="The settings of this broker."),
        click.option("--topic", type=TOPIC, metavar="NAME", help="The settings of this topic."),
    ):
        command = option(command)
    return command


@click.group(cls=GuessingGroup)
def config() -> None:
    """See and change settings while the cluster runs: of a topic, of a broker, of all brokers, of loggers.

    \b
    Examples:
      sparklog config describe --topic clicks
      sparklog config describe --broker 0 --all
      sparklog config alter --all-brokers --config log.retention.ms=86400000
      sparklog config alter --topic clicks --delete-config retention.ms
      sparklog config alter --broker-loggers 0 --config sparklog.replica.cleaning=WARN
    """


@config.command(short_help="Show the settings in force, and where each comes from.")
@_whose
@click.option("--all", "everything", is_flag=True, help="Those left at their defaults too.")
@output_option
@bootstrap_option
def describe(
    topic: str | None,
    broker: int | None,
    every_broker: bool,
    loggers: int | None,
    everything: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Show the settings in force, and where each comes from: the topic, this broker, all brokers, the start, a default.

    \b
    Examples:
      sparklog config describe --topic clicks --all
      sparklog config describe --broker 0 --output json
      sparklog config describe --all-brokers
    """
    whose = _Whose(topic, broker, every_broker, loggers).check()
    with administered(bootstrap, whose.topics) as admin:
        found = _settings(admin, whose)
    shown = [each for each in found if everything or each.source != DEFAULT.number]
    if as_json:
        show_json([told(each) for each in shown])
    elif shown:
        rows = [[each.name, each.value, origin(each), "no" if each.read_only else "yes"] for each in shown]
        show_table(["setting", "value", "from", "changes while it runs"], rows)
    else:
        click.echo(f"{whose}: everything is at its default", err=True)


@config.command(short_help="Change settings while the cluster runs.")
@_whose
@click.option(
    "-c", "--config", "settings", multiple=True, metavar="NAME=VALUE", help="A setting to change; may be repeated."
)
@click.option(
    "-d", "--delete-config", "deleted", multiple=True, metavar="NAME",
    help="A setting that goes back to what stands behind it; may be repeated.",
)  # fmt: skip
@done_option
@bootstrap_option
def alter(
    topic: str | None,
    broker: int | None,
    every_broker: bool,
    loggers: int | None,
    settings: tuple[str, ...],
    deleted: tuple[str, ...],
    bootstrap: str,
) -> None:
    """Change settings while the cluster runs; what is not named stays, and what only counts at a start is refused.

    \b
    Examples:
      sparklog config alter --topic clicks --config retention.ms=3600000
      sparklog config alter --broker 0 --config max.connections=500
      sparklog config alter --all-brokers --delete-config log.retention.ms
    """
    whose = _Whose(topic, broker, every_broker, loggers).check()
    changes = parse_changes(settings, deleted)
    if not changes:
        raise click.UsageError("name what to change: --config or --delete-config")
    with administered(bootstrap, whose.topics) as admin:
        if deleted:
            check_deleted(deleted, _all_settings(admin, whose))
        if whose.topic is not None:
            admin.alter_topic_configs(whose.topic, changes)
        elif whose.loggers is not None:
            admin.alter_broker_loggers(_checked(admin, whose.loggers, "--broker-loggers"), changes)
        else:
            admin.alter_broker_configs(_broker(admin, whose), changes)
    say_done(f"altered {whose}: {described_changes(changes)}", altered=str(whose), settings=changes)


def _settings(admin: Admin, whose: _Whose) -> list[ConfigEntry]:
    if whose.topic is not None:
        return admin.topic_configs(whose.topic)
    if whose.loggers is not None:
        return admin.broker_loggers(_checked(admin, whose.loggers, "--broker-loggers"))
    return admin.broker_configs(_broker(admin, whose))


def _all_settings(admin: Admin, whose: _Whose) -> list[ConfigEntry]:
    """Those at their defaults too, which are not told of all brokers at once."""
    found = _settings(admin, whose)
    return found + admin.broker_configs(min(admin.describe_cluster().brokers)) if whose.every_broker else found


def _broker(admin: Admin, whose: _Whose) -> BrokerId | None:
    """The broker's id, None for all."""
    return None if whose.broker is None else _checked(admin, whose.broker, "--broker")


def _checked(admin: Admin, broker: int, option: str) -> BrokerId:
    """Raises BadParameter for a broker that is not in the cluster."""
    from sparklog.structs import BrokerId

    there = sorted(admin.describe_cluster().brokers)
    if broker not in there:
        named = ", ".join(map(str, there))
        raise click.BadParameter(f"there is no broker {broker}, only {named}", param_hint=option)
    return BrokerId(broker)
