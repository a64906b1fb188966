"""Making and taking away many partitions: the disk is waited for off the loop, a slice of them at a time.

Invariants: what makes or takes away partitions holds ``replicas.changing`` for a slice, so no other finds one half made
or half gone. A partition that was made ahead is served from the turn of the loop in which the fence lets it be, or is
removed before the slice ends. A slice that was begun is finished, also if its request is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from sparklog.broker.context import BrokerContext
from sparklog.errors import ErrorCode
from sparklog.log.directories.departures import Departure
from sparklog.log.directories.making import MadePartition, NewPartition
from sparklog.net.tasks import to_its_end
from sparklog.structs import TopicPartition

T = TypeVar("T")
SLICE = 32
"""Partitions that are made, or taken away, in one go on the disk thread."""
Made = dict[TopicPartition, MadePartition]


def slices(items: Iterable[T]) -> Iterable[list[T]]:
    """The items, ``SLICE`` at a time."""
    rest = iter(items)
    while some := list(islice(rest, SLICE)):
        yield some


async def apply_slice(
    broker: BrokerContext, new: Sequence[NewPartition], applies: Iterable[Callable[[Made], ErrorCode]]
) -> list[ErrorCode]:
    """What each of ``applies`` answers, a partition each, when those that are ``new`` have been made;
    one takes what was made for it from what it is handed."""
    return await to_its_end(_apply_slice(broker, new, applies))


async def _apply_slice(
    broker: BrokerContext, new: Sequence[NewPartition], applies: Iterable[Callable[[Made], ErrorCode]]
) -> list[ErrorCode]:
    async with broker.replicas.changing:
        lacking = [each for each in new if not broker.replicas.holds(each.tp)]
        made = await broker.run_disk(broker.replicas.plan(lacking)) if lacking else {}
        left, codes = dict(made), []
        async for apply in broker.turns.paced(applies):
            codes.append(apply(left))
        if left:
            await broker.run_disk(broker.replicas.discard, left)
        return codes


async def take_away(broker: BrokerContext, asked: Sequence[Callable[[], Departure | ErrorCode]]) -> list[ErrorCode]:
    """What becomes of a slice of partitions: each of ``asked`` begins its departure, or says why not."""
    return await to_its_end(_take_away(broker, asked))


async def _take_away(broker: BrokerContext, asked: Sequence[Callable[[], Departure | ErrorCode]]) -> list[ErrorCode]:
    async with broker.replicas.changing:
        begun = [begin() async for begin in broker.turns.paced(asked)]
        departures = [each for each in begun if isinstance(each, Departure)]
        if departures:
            await broker.run_disk(broker.replicas.rename_away, departures)
        codes = []
        async for each in broker.turns.paced(begun):
            codes.append(broker.replicas.departed(each) if isinstance(each, Departure) else each)
        return codes
