"""What ``--from`` and ``--to`` mean: ends, offsets and points in time."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.extents import find_extents
from sparklog.record.layout import MAX_INT64

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.errors import SparklogError
    from sparklog.structs import TopicPartition

Position = str | int | datetime
"""``earliest``, ``latest``, an offset, or a point in time."""


@dataclass(frozen=True)
class Tail:
    """The last so many records of each partition, counted by their offsets."""

    count: int

    def __str__(self) -> str:
        return f"-{self.count}"


_PATIENCE_S = 5.0
"""How long a leader that is not there is waited for: it may be about to move."""
METAVAR = "earliest|latest|OFFSET|TIME"


def parse_position(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Position | None:
    """What an option's text means (a click callback); a time without a zone is UTC."""
    if text is None or text in ("earliest", "latest"):
        return text
    try:
        return int(text) if text.isdecimal() else _moment(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is none of: earliest, latest, an offset (42), a time (2013-07-04T12:00, UTC if not said)"
        ) from None


def parse_timestamp(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """Milliseconds since 1970: a number of them, or a time (a click callback); without a zone it is UTC."""
    if text is None:
        return None
    try:
        time_ms = int(text) if text.isdecimal() else round(_moment(text).timestamp() * 1000)
        if time_ms > MAX_INT64:
            raise ValueError
        return time_ms
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time (2013-07-04T12:00, UTC if not said), and no ms since 1970"
        ) from None


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_start(ctx: click.Context, param: click.Parameter, text: str | None) -> Position | Tail | None:
    """As ``parse_position``; -N is the last N records, as kcat has it."""
    if text is not None and re.fullmatch(r"-[1-9]\d*", text, re.ASCII):
        return Tail(int(text[1:]))
    return parse_position(ctx, param, text)


def check_order(start: Position | Tail, end: Position | None) -> None:
    """Raises UsageError where there can be nothing between the two, whatever the partitions hold."""
    first: Any = start
    if type(start) is type(end) and not isinstance(start, str):
        is_empty = first >= end
    else:
        is_empty = end == "earliest" or (start == "latest" and end is not None)
    if is_empty:
        raise click.UsageError(f"--to {_spelt(end)} is not after --from {_spelt(start)}: there is nothing between them")


def _spelt(position: Position | Tail | None) -> str:
    return position.isoformat() if isinstance(position, datetime) else str(position)


def resolve_position(
    admin: Admin, partitions: Collection[TopicPartition], position: Position | Tail
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, SparklogError]]:
    """The offset that ``position`` is in each partition, held within what the partition has.

    Of the partitions that cannot be asked now, why: a leader that is not there is waited for a moment.
    """
    if isinstance(position, datetime):
        time_ms = max(round(position.timestamp() * 1000), 0)  # negative ones mean something else to a broker
        return _at_time(admin, partitions, time_ms)
    if isinstance(position, int):
        return hold_within(admin, dict.fromkeys(partitions, position))
    first, end, failures = find_extents(admin, partitions, patience=_PATIENCE_S)
    if isinstance(position, Tail):
        return {tp: max(end[tp] - position.count, first[tp]) for tp in end}, failures
    return first if position == "earliest" else end, failures


def hold_within(
    admin: Admin, offsets: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, SparklogError]]:
    """The nearest offset that each partition has; of those that cannot be asked now, why, as ``resolve_position``."""
    first, end, failures = find_extents(admin, offsets, patience=_PATIENCE_S)
    return {tp: min(max(offsets[tp], first[tp]), end[tp]) for tp in end}, failures


def _at_time(
    admin: Admin, partitions: Collection[TopicPartition], time_ms: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, SparklogError]]:
    from sparklog.client.cluster.offsets import LATEST

    found, failures = admin.reachable_offsets(dict.fromkeys(partitions, time_ms), patience=_PATIENCE_S)
    younger = [tp for tp, each in found.items() if each is None]
    if younger:
        ends, more = admin.reachable_offsets(dict.fromkeys(younger, LATEST), patience=_PATIENCE_S)
        found, failures = {**found, **ends}, {**failures, **more}
    return {tp: each.offset for tp, each in found.items() if each is not None}, failures
