"""EraseRecords, with an eraser that does what each test says."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.broker.apis.cleaning import erase_records
from sparklog.broker.context import ApiRequest
from sparklog.compaction.erased_keys import digest_of, pack_keys
from sparklog.compaction.erasure import ErasureStats, Progress, ScannedSegment
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.messages import EraseRecordsRequest, decode_request, decode_response, encode
from sparklog.replica.erasing import Erasing, RoundId, State
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition

TP = TopicPartition("users", 0)
ID, OTHER_ID, ERASURE = UUID(int=1), UUID(int=2), UUID(int=3)
KEYS = pack_keys([b"a"])
ROUND = RoundId(ERASURE, 2)


class Eraser:
    """Knows the rounds that were begun, and what became of ``replicas``."""

    def __init__(self):
        self.begun = []
        self.asked = []
        self.replicas = {}

    def begin(self, round_id, keys, digest, *, scan_only):
        self.begun.append((round_id, bytes(keys), digest, scan_only))

    def ask(self, round_id, tp, end_offset):
        self.asked.append((round_id, tp, end_offset))
        return self.replicas.get(tp, Erasing(tp, end_offset)) if self.begun else None


class Held:
    """Partition 0 is here, 1 is a follower; the topic has ``ID``."""

    def __init__(self, tp):
        self._tp = tp

    def check_topic(self, topic_id):
        if topic_id != ID:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, "another one")

    def check_leader(self):
        if self._tp.partition == 1:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it does not lead")


class Broker:
    authorizer = AllowEverything()

    def __init__(self):
        self.eraser = Eraser()
        self.turns = SimpleNamespace(paced=self._unpaced)
        self.replicas = SimpleNamespace(log_end=lambda tp, _: (5, 40 + tp.partition))

    @property
    def loop(self):
        return asyncio.get_running_loop()

    async def _unpaced(self, items):
        for each in items:
            yield each

    def held(self, tp):
        if tp.partition > 1:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is elsewhere")
        return Held(tp)


@pytest.fixture
def broker():
    return Broker()


def answered(broker, ends, *, keys=None, topic="users", topic_id=ID, scan_only=False):
    message = EraseRecordsRequest(
        version=0,
        erasure_id=ERASURE,
        round=2,
        scan_only=scan_only,
        keys=keys,
        topic=topic,
        topic_id=topic_id,
        partitions=[EraseRecordsRequest.ErasedPartition(partition_index=n, end_offset=e) for n, e in ends.items()],
    )
    received = decode_request(erase_records.API, 0, memoryview(encode(message, 0)))
    answer = asyncio.run(erase_records.handle(broker, ApiRequest(erase_records.API, 0, "me", Caller("h"), received)))
    return decode_response(erase_records.API, 0, memoryview(encode(answer, 0)))


def test_the_keys_come_with_the_first_request(broker):
    first = answered(broker, {0: 7})
    assert (first.needs_keys, first.partitions[0].state) == (True, State.WAITING)
    second = answered(broker, {0: 7}, keys=KEYS, scan_only=True)
    assert (second.needs_keys, broker.eraser.begun) == (False, [(ROUND, KEYS, digest_of(KEYS), True)])
    assert broker.eraser.asked == [(ROUND, TP, 7)] * 2


def test_all_of_a_replica_is_told(broker):
    stats = ErasureStats(1, 100, 5000, 4, 2, [ScannedSegment(0, 3000, "ab" * 32), ScannedSegment(60, 2000, "cd" * 32)])
    broker.eraser.replicas[TP] = Erasing(TP, 7, State.DONE, "", Progress(2, 2), 3, stats)
    (told,) = answered(broker, {0: 7}, keys=KEYS).partitions
    assert (told.error_code, told.error_message, told.state, told.end_offset) == (0, None, State.DONE, 7)
    assert (told.log_start_offset, told.segments_done, told.segments_total) == (3, 2, 2)
    assert (told.records_scanned, told.bytes_scanned, told.records_found, told.segments_rewritten) == (100, 5000, 4, 2)
    assert [(each.base_offset, each.size, bytes(each.sha256).hex()) for each in told.segments] == stats.segments
    broker.eraser.replicas[TP] = Erasing(TP, 7, State.WAITING, "it lags")
    (told,) = answered(broker, {0: 7}).partitions
    assert (told.state, told.error_message) == (State.WAITING, "it lags")


def test_the_leader_tells_where_the_log_ends_and_begins_nothing(broker):
    zero, one = answered(broker, {0: -1, 1: -1}).partitions
    assert (zero.error_code, zero.state, zero.end_offset) == (ErrorCode.NONE, State.DONE, 40)
    assert (one.error_code, one.error_message) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, "it does not lead")
    assert broker.eraser.asked == []


def test_what_is_not_meant_is_refused(broker):
    (elsewhere,) = answered(broker, {2: 7}, keys=KEYS).partitions
    assert (elsewhere.error_code, elsewhere.state) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, State.FAILED)
    (other,) = answered(broker, {0: 7}, topic_id=OTHER_ID, keys=KEYS).partitions
    assert other.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    for topic in ("__consumer_offsets", "__spark_decisions"):
        internal = answered(broker, {0: 7}, topic=topic, keys=KEYS)
        assert (internal.error_code, list(internal.partitions)) == (ErrorCode.INVALID_TOPIC_EXCEPTION, [])
    assert broker.eraser.asked == []


def test_too_many_keys_are_refused(broker, monkeypatch):
    monkeypatch.setattr(erase_records, "MOST_BYTES", len(KEYS) - 1)
    refused = answered(broker, {0: 7}, keys=KEYS)
    assert (refused.error_code, broker.eraser.begun) == (ErrorCode.INVALID_REQUEST, [])
