"""The APIs by their numbers: the one list of them.

An API's name is that of its messages: ``LIST_OFFSETS`` has ``ListOffsetsRequest`` and ``ListOffsetsResponse``
(``message_classes``). A broker serves the APIs that have a handler (``broker/registry``).
"""

from __future__ import annotations

from enum import IntEnum


class ApiKey(IntEnum):
    """The ``api_key`` of a request header, for every API that sparklog speaks."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75
    LEASE_SEGMENTS = 20000
    """Sparklog's own; far above what Kafka numbers."""
    PROBE_BROKER = 20001
    """Sparklog's own too."""
    GET_REPLICA_LOG_INFO = 20002
    """Sparklog's own too: named as in KIP-966, for what Kafka 3.9 has not."""
    DESCRIBE_COMPACTION = 20003
    """Sparklog's own: what there is to compact on a broker. Kafka's tell that by JMX only."""
    COMPACT_PARTITIONS = 20004
    """Sparklog's own: Kafka has no way to ask for it."""
    BEGIN_COMPACTION = 20005
    """Sparklog's own: somebody else than the broker cleans a log of it."""
    COMMIT_COMPACTION = 20006
    """Sparklog's own: the broker takes over what was written so."""
    ERASE_RECORDS = 20007
    """Sparklog's own: a broker removes the records of some keys from its replicas, or searches for them."""
    ADOPT_SEGMENTS = 20008
    """Sparklog's own: the leader takes over segments that somebody else has built."""
    DESCRIBE_RETENTION = 20010
    """Sparklog's own: what retention holds back on a broker, and where it deletes nothing."""
    DESCRIBE_LAG = 20011
    """Sparklog's own: how many bytes there are from an offset on."""
