"""Offsets of groups that are kept in ZooKeeper, for the first versions of OffsetCommit and OffsetFetch.

Every broker answers them, without the group's coordinator. It does not check whether the client is a member of the
group. After each ``_AT_A_TIME`` partitions the broker's other calls to ZooKeeper have their turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from sparklog.broker.context import BrokerContext
from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.zk.consumer_offsets import StoredOffsets

_AT_A_TIME = 200


async def stored_offsets(
    broker: BrokerContext, group_id: str, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ErrorCode]]:
    """The offsets that the group has stored of these partitions, and why not of the others."""
    offsets: dict[TopicPartition, int] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for start in range(0, len(partitions), _AT_A_TIME):
        asked = partitions[start : start + _AT_A_TIME]
        try:
            found: StoredOffsets = await broker.run_zk(broker.zk.consumer_offsets.read, group_id, asked)
        except ApiError as error:
            errors.update(dict.fromkeys(asked, error.code))
            continue
        offsets.update(found.offsets)
        errors.update(dict.fromkeys(found.unreadable, ErrorCode.UNKNOWN_SERVER_ERROR))
    none = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return offsets, {tp: errors.get(tp, none) for tp in partitions if tp not in offsets}


async def store_offsets(
    broker: BrokerContext, group_id: str, offsets: dict[TopicPartition, int]
) -> dict[TopicPartition, ErrorCode]:
    """Store them; what is said of each."""
    codes: dict[TopicPartition, ErrorCode] = {}
    left = iter(offsets.items())
    while some := dict(islice(left, _AT_A_TIME)):
        try:
            refused = await broker.run_zk(broker.zk.consumer_offsets.write, group_id, some)
        except ApiError as error:
            codes.update(dict.fromkeys(some, error.code))
            continue
        codes.update(dict.fromkeys(some, ErrorCode.NONE))
        codes.update(dict.fromkeys(refused, ErrorCode.UNKNOWN_SERVER_ERROR))
    return codes
