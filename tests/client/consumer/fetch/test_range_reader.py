from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.retry import Backoff
from sparklog.client.consumer.fetch import range_reader
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.cluster.info import PartitionInfo, TopicInfo
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch
from sparklog.protocol.hot.fetch import FetchedPartition
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_records
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock

_TP = TopicPartition("t", 0)
_ENDPOINT, _NEAR = Endpoint("one", 1), Endpoint("two", 2)
_EPOCH = 3


class _Leader:
    """A cluster of one partition, and the connection to its leader. Each answer takes a second of the given clock."""

    endpoint = _ENDPOINT
    closed = False
    versions = SimpleNamespace(best=lambda api, ceiling: fetch.MAX_VERSION, highest=lambda api: 8)
    local_start = 0

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []  # offsets
        self.fails_at = None
        self.invalidated = []
        self.config = ClientConfig(api_timeout_ms=5_000, retry_backoff_ms=1)
        self.clock = ManualClock()
        self.pool = SimpleNamespace(take=self._take, give_back=lambda connection: None)
        self.brokers = {1: _ENDPOINT, 2: _NEAR}
        self.taken = []
        self.racks = []

    def leader(self, tp):
        partition = PartitionInfo(0, 1, _EPOCH, (1, 2), (1, 2))
        return _ENDPOINT, TopicInfo("t", UUID(int=7), False, (partition,))

    def _take(self, endpoint):
        self.taken.append(endpoint)
        return self

    def backoff(self):
        return Backoff(self.config, self.clock, self.config.api_timeout_ms)

    def invalidate(self, topic):
        self.invalidated.append(topic)

    def send(self, api, version, body):
        if len(self.asked) == self.fails_at:
            self.fails_at = None
            raise ConnectionFailed("the leader has just died")
        request = fetch.decode_request(memoryview(b"".join(map(bytes, body))), version)
        self.racks.append(request.rack_id)
        self.asked += [each.offset for each in request.partitions]
        assert all(each.current_leader_epoch == _EPOCH for each in request.partitions)

    def receive(self):
        self.clock.advance(1)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        partitions, throttle_ms = ([], answer) if isinstance(answer, int) else ([answer], 0)
        body = fetch.encode_response(partitions, fetch.MAX_VERSION, throttle_ms=throttle_ms)
        return ApiKey.FETCH, fetch.MAX_VERSION, memoryview(b"".join(map(bytes, body)))

    def request(self, api, build):
        asked = build(8)
        assert (api, asked.topics[0].partitions[0].timestamp) == (ApiKey.LIST_OFFSETS, -4)
        found = SimpleNamespace(partition_index=0, error_code=0, timestamp=-1, offset=self.local_start, leader_epoch=0)
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[found])])

    def close(self):
        pass

    def read(self, start, end):
        return [batch.base_offset for batch in fetch_range(self, _TP, start, end)]


def _fetched(*batches, error=ErrorCode.NONE, high_watermark=100):
    found = FetchedPartition("t", UUID(int=7), 0, error, high_watermark, high_watermark, 0)
    found.records += batches
    return found


def _batch(base_offset, count):
    builder = RecordBatchBuilder(base_offset=base_offset)
    for _ in range(count):
        builder.append(1, b"k", b"v")
    return builder.build()


def test_a_range_whose_last_records_compaction_took_ends_there():
    leader = _Leader(_fetched(_batch(0, 5)), _fetched())
    assert leader.read(0, 100) == [0]
    assert leader.asked == [0, 5, 5]


def test_what_is_in_remote_storage_is_waited_for():
    nothing = _fetched()
    leader = _Leader(nothing, nothing, nothing, _fetched(_batch(0, 50)), nothing, nothing, _fetched(_batch(50, 50)))
    leader.local_start = 60
    assert leader.read(0, 100) == [0, 50]


def test_remote_storage_that_is_slow_is_told_of():
    leader = _Leader(_fetched())
    leader.local_start = 60
    with pytest.raises(
        ApiError, match=r"nothing at offset 0 .* in the leader's remote storage, which is slow"
    ) as caught:
        leader.read(0, 100)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("sent", range(3))
def test_a_request_that_cannot_be_sent_loses_no_answer(sent):
    leader = _Leader(_fetched(_batch(0, 5)), _fetched(_batch(5, 5)), _fetched(_batch(10, 5)))
    leader.fails_at = sent
    assert leader.read(0, 15) == [0, 5, 10]
    assert leader.asked == [0, 5, 10]


def test_a_high_watermark_that_does_not_come_back_is_told_of():
    leader = _Leader(_fetched(_batch(0, 5)), _fetched(high_watermark=5))
    with pytest.raises(ApiError, match=r"gave nothing at offset 5 \(of 0 to 100\) for 5000 ms") as caught:
        leader.read(0, 100)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_quota_makes_a_range_slow_and_does_not_end_it():
    leader = _Leader(_fetched(_batch(0, 5)), *[1_000] * 20, _fetched(_batch(5, 5)))
    assert leader.read(0, 10) == [0, 5]
    assert leader.clock.monotonic() > leader.config.api_timeout_ms / 1000
    assert leader.invalidated == []


def test_answers_without_the_partition_that_ask_for_no_wait_end_it():
    with pytest.raises(ApiError, match="THROTTLING_QUOTA_EXCEEDED"):
        _Leader(_fetched(_batch(0, 5)), 0).read(0, 10)


def test_records_that_are_no_whole_batch_are_refused():
    with pytest.raises(RemoteProtocolError, match="partition t-0 at offset 0: an answer without a whole batch"):
        _Leader(_fetched(_batch(0, 5)[:-1])).read(0, 5)


@pytest.mark.parametrize(
    ("code", "invalidated"), [(ErrorCode.NOT_LEADER_OR_FOLLOWER, ["t"]), (ErrorCode.THROTTLING_QUOTA_EXCEEDED, [])]
)
def test_metadata_is_asked_for_again_where_the_leader_may_be_another(code, invalidated):
    leader = _Leader(_fetched(error=code), _fetched(_batch(0, 5)))
    assert leader.read(0, 5) == [0]
    assert leader.invalidated == invalidated


@pytest.fixture
def filled(metadata, make_topic):
    """1,000 records of 1 KB in batches of 10."""
    tp = TopicPartition(make_topic(), 0)
    with BatchProducer(metadata) as producer:
        for base in range(0, 1000, 10):
            builder = RecordBatchBuilder()
            for number in range(base, base + 10):
                builder.append(1_700_000_000_000 + number, b"%d" % number, bytes(1000))
            producer.send(tp, builder.build())
    return tp


def _offsets(batches):
    return [record.offset for batch in batches for record in iter_records(batch)]


@pytest.mark.integration
@pytest.mark.parametrize(("start", "end"), [(0, 1000), (5, 995), (37, 38), (990, 1000)])
def test_a_range_is_covered_by_whole_batches(metadata, filled, start, end):
    offsets = _offsets(fetch_range(metadata, filled, start, end))
    assert offsets[0] <= start
    assert offsets[-1] >= end - 1
    assert offsets == list(range(offsets[0], offsets[-1] + 1))


@pytest.mark.integration
def test_small_fetches_give_the_same(servers, filled):
    from sparklog.client.cluster.config import ClientConfig
    from sparklog.client.cluster.metadata import ClusterMetadata

    config = ClientConfig(bootstrap_servers=servers, max_partition_fetch_bytes=15_000)
    with ClusterMetadata(config) as cluster:
        assert _offsets(fetch_range(cluster, filled, 0, 1000)) == list(range(1000))


@pytest.mark.integration
def test_an_empty_range_asks_nothing(metadata, filled):
    assert list(fetch_range(metadata, filled, 500, 500)) == []


@pytest.mark.integration
def test_a_lost_connection_is_resumed_where_it_broke(metadata, filled, monkeypatch):
    from sparklog.net.connection import BlockingConnection

    metadata.config.__dict__["max_partition_fetch_bytes"] = 100_000
    receive = BlockingConnection.receive
    calls = []

    def failing(self):
        calls.append(1)
        if len(calls) in (2, 5):
            self._socket.close()
        return receive(self)

    monkeypatch.setattr(BlockingConnection, "receive", failing)
    assert _offsets(fetch_range(metadata, filled, 0, 1000)) == list(range(1000))
    assert len(calls) > 5


@pytest.mark.integration
def test_failures_in_a_row_are_followed_by_pauses_that_grow(servers, filled, monkeypatch):
    answer, left, pauses = range_reader._RangeReader._answer, [4], []

    def failing(self):
        if left[0]:
            left[0] -= 1
            raise ConnectionFailed("the leader has just died")
        return answer(self)

    clock = ManualClock()
    monkeypatch.setattr(clock, "sleep", pauses.append)
    monkeypatch.setattr(range_reader._RangeReader, "_answer", failing)
    with ClusterMetadata(ClientConfig(bootstrap_servers=servers, retry_backoff_ms=10), clock) as metadata:
        assert _offsets(fetch_range(metadata, filled, 0, 1000)) == list(range(1000))
    assert pauses == [0.01, 0.02, 0.04, 0.08]


@pytest.mark.integration
def test_an_offset_out_of_range_names_what_there_is(metadata, filled):
    with pytest.raises(ApiError, match=r"5000.*holds 0 to 1000") as caught:
        list(fetch_range(metadata, filled, 5000, 6000))
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert str(filled) in str(caught.value)


@pytest.mark.integration
def test_a_connection_goes_back_to_the_pool(metadata, filled):
    for _ in range(3):
        list(fetch_range(metadata, filled, 0, 100))
    endpoint, _ = metadata.leader(filled)
    assert len(metadata.pool._idle[endpoint]) == 1


@pytest.mark.integration
def test_giving_up_half_way_closes_the_connection(metadata, filled):
    metadata.config.__dict__["max_partition_fetch_bytes"] = 15_000
    batches: Any = fetch_range(metadata, filled, 0, 1000)
    with closing(batches):
        next(batches)
    assert _offsets(fetch_range(metadata, filled, 0, 10))[0] == 0


def _to_the_near_one():
    return FetchedPartition("t", UUID(int=7), 0, high_watermark=100, last_stable_offset=100, preferred_read_replica=2)


def test_the_replica_that_the_leader_names_is_read():
    cluster = _Leader(_to_the_near_one(), _fetched(_batch(0, 2)), _fetched(_batch(2, 2)))
    assert cluster.read(0, 4) == [0, 2]
    assert (cluster.taken, cluster.asked) == ([_ENDPOINT, _NEAR], [0, 0, 2])


def test_what_the_replica_has_not_is_asked_of_the_leader():
    refused = _fetched(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    cluster = _Leader(_to_the_near_one(), refused, _fetched(_batch(0, 2)))
    assert cluster.read(0, 2) == [0]
    assert cluster.taken == [_ENDPOINT, _NEAR, _ENDPOINT]


def test_a_replica_that_does_not_get_on_is_left_and_no_other_is_named_for_a_while():
    cluster = _Leader(_to_the_near_one(), _fetched(high_watermark=0), _fetched(_batch(0, 2)))
    cluster.config = replace(cluster.config, client_rack="here")
    assert cluster.read(0, 2) == [0]
    assert (cluster.taken, cluster.racks) == ([_ENDPOINT, _NEAR, _ENDPOINT], ["here", "here", ""])


def test_a_replica_that_cannot_be_reached_is_left():
    cluster = _Leader(_to_the_near_one(), _fetched(_batch(0, 2)))
    cluster.fails_at = 1
    cluster.config = replace(cluster.config, client_rack="here")
    assert cluster.read(0, 2) == [0]
    assert (cluster.taken, cluster.racks) == ([_ENDPOINT, _NEAR, _ENDPOINT], ["here", ""])
