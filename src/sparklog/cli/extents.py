"""What partitions hold, as lists show it: of those that can be asked now, and in words why not of the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.errors import SparklogError
    from sparklog.structs import TopicPartition

_NAMED = 5
"""Partitions that one line names; of more it says how many."""


class Extents(NamedTuple):
    """First and end offset of each partition that answered; the others are among the ``failures``."""

    first: dict[TopicPartition, int]
    end: dict[TopicPartition, int]
    failures: dict[TopicPartition, SparklogError]


def find_extents(admin: Admin, partitions: Collection[TopicPartition], patience: float = 1.0) -> Extents:
    """What these partitions hold; a leader that is not there is waited for ``patience`` seconds."""
    from sparklog.client.cluster.offsets import EARLIEST, LATEST, plain_offsets

    if not partitions:
        return Extents({}, {}, {})
    first, failures = admin.reachable_offsets(dict.fromkeys(partitions, EARLIEST), patience=patience)
    last, later = admin.reachable_offsets(dict.fromkeys(first, LATEST), patience=patience) if first else ({}, {})
    answered = {tp: at for tp, at in first.items() if tp in last}
    return Extents(plain_offsets(answered), plain_offsets(last), {**failures, **later})


def say_unreachable(failures: Mapping[TopicPartition, SparklogError], outcome: str) -> None:
    """A line on standard error for each reason, with the partitions and the ``outcome``: ``is`` or ``are`` what."""
    by_reason: dict[str, list[TopicPartition]] = {}
    for tp, error in sorted(failures.items()):
        by_reason.setdefault(_reason(tp, error), []).append(tp)
    for reason, partitions in by_reason.items():
        click.echo(
            f"{name_partitions(partitions)} {'is' if len(partitions) == 1 else 'are'} {outcome}: {reason}", err=True
        )


def name_partitions(partitions: Collection[TopicPartition]) -> str:
    """The first few of them, and how many more there are."""
    named = [str(tp) for tp in partitions][:_NAMED]
    more = len(partitions) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _reason(tp: TopicPartition, error: SparklogError) -> str:
    """The same for all partitions that suffer the same."""
    return str(error).replace(f"no broker leads partition {tp}", "no broker leads it").removeprefix(f"{tp}: ")
