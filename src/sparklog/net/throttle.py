"""How long an answer asks its reader to send nothing (KIP-219): the broker stops reading the connection for that time.

From these versions on an answer is sent at once with the time in it; before them the broker held the answer back for
that time, so that nothing is left to wait for. Found without decoding the rest of the answer.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from sparklog.errors import RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce
from sparklog.protocol.messages import is_flexible
from sparklog.protocol.wire import WireReader

_FIRST_VERSIONS: Final = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.ALTER_CONFIGS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_GROUPS: 1,
    ApiKey.ELECT_LEADERS: 0,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 0,
    ApiKey.ALTER_CLIENT_QUOTAS: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
    ApiKey.LEASE_SEGMENTS: 0,
    ApiKey.DESCRIBE_COMPACTION: 0,
    ApiKey.COMPACT_PARTITIONS: 0,
    ApiKey.BEGIN_COMPACTION: 0,
    ApiKey.COMMIT_COMPACTION: 0,
    ApiKey.ERASE_RECORDS: 0,
    ApiKey.ADOPT_SEGMENTS: 0,
    ApiKey.DESCRIBE_RETENTION: 0,
    ApiKey.DESCRIBE_LAG: 0,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
}
"""The first version of each API whose time is the client's to wait; the other APIs have none."""
_TIME = Struct(">i")
_CODE, _RANGE = Struct(">h"), Struct(">hhh")


def throttle_seconds(api: ApiKey, version: int, body: memoryview) -> float:
    """Seconds for which nothing may be sent after this answer; 0 for a malformed one, which its decoder refuses."""
    first = _FIRST_VERSIONS.get(api)
    if first is None or version < first:
        return 0.0
    try:
        return max(_throttle_ms(api, version, body), 0) / 1000
    except RemoteProtocolError:
        return 0.0


def _throttle_ms(api: ApiKey, version: int, body: memoryview) -> int:
    if api is ApiKey.PRODUCE:
        return produce.throttle_ms(body, version)
    reader = WireReader(body, flexible=is_flexible(api, version))
    if api is ApiKey.API_VERSIONS:
        _skip_ranges(reader)
    elif api is ApiKey.OFFSET_DELETE:
        reader.numbers(_CODE)
    return reader.numbers(_TIME)[0]


def _skip_ranges(reader: WireReader) -> None:
    reader.numbers(_CODE)
    for _ in range(reader.array_length()):
        reader.numbers(_RANGE)
        reader.skip_tags()
