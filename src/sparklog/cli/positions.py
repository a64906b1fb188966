"""What ``--from`` and ``--to`` mean: ends, offsets and points in time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sparklog.client.metadata import ClusterMetadata
    from sparklog.structs import TopicPartition

Position = str | int | datetime
"""``earliest``, ``latest``, an offset, or a point in time."""


METAVAR = "earliest|latest|OFFSET|TIME"


def parse_position(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Position | None:
    """What an option's text means (a click callback); a time without a zone is UTC."""
    if text is None or text in ("earliest", "latest"):
        return text
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is none of: earliest, latest, an offset (42), a time (2013-07-04T12:00, UTC if not said)"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def resolve_position(
    cluster: ClusterMetadata, partitions: Iterable[TopicPartition], position: Position
) -> dict[TopicPartition, int]:
    """The offset that ``position`` is in each partition, held within what the partition has."""
    from sparklog.client.batch_consumer import positions_at
    from sparklog.client.offsets import earliest_offsets, latest_offsets

    wanted = list(partitions)
    if isinstance(position, datetime):
        return positions_at(cluster, wanted, round(position.timestamp() * 1000))
    first = earliest_offsets(cluster, wanted)
    if position == "earliest":
        return first
    last = latest_offsets(cluster, wanted)
    if isinstance(position, int):
        return {tp: min(max(position, first[tp]), last[tp]) for tp in wanted}
    return last
