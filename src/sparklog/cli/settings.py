"""Settings on the command line: ``--config NAME=VALUE``, ``--delete-config NAME``, and what is to be said of some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from sparklog.config.likeness import alike

if TYPE_CHECKING:
    from sparklog.client.admin.admin import ConfigEntry


class Origin(NamedTuple):
    """Where a value comes from: Kafka's number, and how lists call it."""

    number: int
    word: str


ON_TOPIC = Origin(1, "topic")
DEFAULT = Origin(5, "default")
_ORIGINS = {
    each.number: each.word
    for each in (
        ON_TOPIC,
        Origin(2, "this broker"),
        Origin(3, "all brokers"),
        Origin(4, "start of the broker"),
        DEFAULT,
        Origin(6, "this run"),
    )
}


def parse_settings(texts: Iterable[str], option: str = "--config") -> dict[str, str]:
    """Name to value. Raises BadParameter for a text that is not NAME=VALUE."""
    parsed = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        parsed[name.strip()] = value.strip()
    return parsed


def parse_changes(settings: Iterable[str], deleted: Iterable[str]) -> dict[str, str | None]:
    """What is to be set, and with None what goes back to its default. Raises UsageError for both at once."""
    changes: dict[str, str | None] = dict(parse_settings(settings))
    for name in deleted:
        if name in changes:
            raise click.UsageError(f"{name} cannot be set and deleted at once")
        changes[name] = None
    return changes


def check_deleted(deleted: Iterable[str], entries: Iterable[ConfigEntry]) -> None:
    """Raises BadParameter for a name of ``--delete-config`` that is no setting: brokers delete what is not there, and
    say nothing. ``entries`` are all settings of what is changed.
    """
    known = [each.name for each in entries]
    for name in deleted:
        if name not in known:
            text = f"there is no setting {name!r}{alike(name, known)}"
            raise click.BadParameter(text, param_hint="--delete-config")


def told(entry: ConfigEntry) -> dict[str, object]:
    """A setting as a JSON document shows it."""
    return {"name": entry.name, "value": entry.value, "from": origin(entry), "read_only": entry.read_only}


def origin(entry: ConfigEntry) -> str:
    """Where its value comes from, in a word."""
    return _ORIGINS.get(entry.source, str(entry.source))


def described_changes(changes: Mapping[str, str | None]) -> str:
    """What was changed, for the line that says so."""
    return ", ".join(
        f"{name} back to its default" if text is None else f"{name}={text}" for name, text in changes.items()
    )
