"""What a Fetch of version 0 to 3 is answered: message sets of magic 0 (versions 0 and 1) or 1, made of batches.

A thread of its own (``preparation``) makes them, partition by partition, so that one partition's are in memory beside
the answer. It makes as many bytes as the client takes of the partition, and one batch more at most. Versions 0 to 2
take that many to the byte: what lies behind is cut off, which tells the client to ask for more.

Other answers are sent from the file. These wait in memory until their client reads them, so they hold a megabyte or so,
however much the client asks for.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sparklog.clock import monotonic_ms
from sparklog.errors import CorruptRecord, ErrorCode
from sparklog.protocol.hot.fetch import FIRST_VERSION_WITH_LIMIT, FetchedPartition, FetchPartition, FetchRequest
from sparklog.record.legacy.conversion import MessageSet, UnfitRecords, to_message_set
from sparklog.structs import Chunk, FileSlice

if TYPE_CHECKING:
    from sparklog.broker.context import ApiRequest, BrokerContext
    from sparklog.broker.fetch_sessions import FetchAnswer
    from sparklog.protocol.slices import Steps

    Serving: TypeAlias = FetchAnswer | Awaitable[FetchAnswer] | Steps[FetchAnswer | Awaitable[FetchAnswer]]
    Serve: TypeAlias = Callable[[BrokerContext, ApiRequest[FetchRequest]], Serving]

_FIRST_VERSION_OF_MAGIC_1 = 2
_LARGEST = 1 << 20
"""Bytes that are read from the log for an answer; each partition gets a batch all the same before version 3."""
Passed = dict[tuple[str, int], int]
"""By topic and partition, the offset behind what was read of it and has no record to tell of."""
_logger = logging.getLogger(__name__)


async def in_old_format(broker: BrokerContext, request: ApiRequest[FetchRequest], serve: Serve) -> FetchAnswer:
    """What ``serve`` answers, with message sets in the place of batches.

    Where no batch has a record to tell of, it goes on behind these batches for the rest of the time that the client
    waits. Before version 4 a client does not see that they are there: it would ask for the same again at once, and
    for ever where more of them lie in a row than it takes bytes.
    """
    until_ms = monotonic_ms(broker.clock) + request.message.max_wait_ms
    most = min(request.message.max_bytes, _LARGEST)
    request = request._replace(message=replace(request.message, max_bytes=most))
    while True:
        answer = await broker.turns.outcome(serve(broker, request), lambda: "a Fetch of many partitions")
        asked = {(each.topic, each.partition): each for each in request.message.partitions}
        passed: Passed = {}
        for each in answer.partitions:
            if each.records:
                await _convert(broker, request.version, asked[each.topic, each.partition], each, passed)
        if not passed or any(each.records or each.error is not ErrorCode.NONE for each in answer.partitions):
            return answer
        partitions = request.message.partitions
        rest = [each._replace(offset=passed.get((each.topic, each.partition), each.offset)) for each in partitions]
        wait_ms = max(until_ms - monotonic_ms(broker.clock), 0)
        request = request._replace(message=replace(request.message, partitions=rest, max_wait_ms=wait_ms))


async def _convert(
    broker: BrokerContext, version: int, asked: FetchPartition, told: FetchedPartition, passed: Passed
) -> None:
    """Batches without a record to tell of are noted in ``passed``."""
    try:
        message_set = await broker.preparation.convert(partial(_message_set, told.records, asked, version))
    except UnfitRecords:
        told.error, told.records = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, []
    except (CorruptRecord, OSError) as error:
        _logger.error("cannot convert %s-%d at offset %d: %s", asked.topic, asked.partition, asked.offset, error)
        told.error, told.records = ErrorCode.KAFKA_STORAGE_ERROR, []
    else:
        broker.replicas.traffic.convert(asked.topic, message_set.records, is_fetch=True)
        told.records = [_cut(message_set.data, asked, version)] if message_set.data else []
        if not message_set.data and message_set.end_offset > asked.offset:
            passed[asked.topic, asked.partition] = message_set.end_offset


def _message_set(chunks: Sequence[Chunk], asked: FetchPartition, version: int) -> MessageSet:
    magic = 0 if version < _FIRST_VERSION_OF_MAGIC_1 else 1
    batches = b"".join(each.read() if isinstance(each, FileSlice) else each for each in chunks)
    return to_message_set(batches, magic, asked.offset, asked.max_bytes)


def _cut(message_set: bytes, asked: FetchPartition, version: int) -> bytes:
    return message_set if version >= FIRST_VERSION_WITH_LIMIT else message_set[: max(asked.max_bytes, 0)]
