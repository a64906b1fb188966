from contextlib import nullcontext
from types import SimpleNamespace
from uuid import UUID

import pytest
from client.interrupts import interruptions

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.offsets import EARLIEST, LATEST, latest_offsets
from sparklog.client.cluster.retry import Backoff, retrying
from sparklog.client.consumer.batch_consumer import BatchConsumer
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.errors import ApiError, ErrorCode, RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch
from sparklog.protocol.hot.fetch import FetchedPartition
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID = UUID(int=7)


class _Leader:
    """A cluster of one topic, and the connection to the leader of its partitions."""

    endpoint = Endpoint("one", 1)
    closed = False
    topic_id = ID
    versions = SimpleNamespace(best=lambda api, ceiling: fetch.MAX_VERSION, highest=lambda api: 8)
    local_start = 0

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.config = ClientConfig(api_timeout_ms=0)
        self.clock, self.brokers = ManualClock(), {}
        self.pool = SimpleNamespace(
            take=lambda endpoint: self, give_back=lambda connection: None, borrow=lambda endpoint: nullcontext(self)
        )

    def led(self, partitions):
        return {self.endpoint: list(partitions)}, []

    def by_leader(self, partitions):
        return {self.endpoint: found} if (found := list(partitions)) else {}

    def topic(self, name):
        return SimpleNamespace(topic_id=self.topic_id, partition=lambda number: None)

    def invalidate(self, topic):
        """The next call of ``topic`` tells what is so now, as all do here."""

    def backoff(self, timeout_ms=None):
        return Backoff(self.config, ManualClock(), self.config.api_timeout_ms)

    def retrying(self, attempt, *, between):
        return retrying(self.backoff(), attempt, between=between)

    def request(self, api, build):
        (topic,) = build(8).topics
        assert [each.timestamp for each in topic.partitions] == [-4] * len(topic.partitions)
        found = [
            SimpleNamespace(
                partition_index=each.partition_index,
                error_code=0,
                timestamp=-1,
                offset=self.local_start,
                leader_epoch=0,
            )
            for each in topic.partitions
        ]
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=found)])

    def close(self):
        """What it was asked is not answered any more."""

    def send(self, api, version, body):
        request = fetch.decode_request(memoryview(b"".join(map(bytes, body))), version)
        self.asked.append([(each.partition, each.offset) for each in request.partitions])

    def receive(self):
        body = fetch.encode_response(self.answers.pop(0), fetch.MAX_VERSION)
        return ApiKey.FETCH, fetch.MAX_VERSION, memoryview(b"".join(map(bytes, body)))


def _fetched(tp, *batches):
    found = FetchedPartition("t", ID, tp.partition, ErrorCode.NONE, 100, 100, 0)
    found.records += batches
    return found


def _batch(base_offset):
    builder = RecordBatchBuilder(base_offset=base_offset)
    builder.append(1, b"k", b"v")
    return builder.build()


def test_a_gap_is_passed_over_when_two_answers_without_any_record_show_it():
    busy = [[_fetched(A, _batch(base)), _fetched(B)] for base in range(3)]
    idle = [[_fetched(A), _fetched(B)] for _ in range(2)]
    consumer = BatchConsumer(_Leader(*busy, *idle), {A: 0, B: 5})
    for _ in range(4):
        consumer.poll()
        assert consumer.positions[B] == 5
    assert consumer.poll() == {}
    assert consumer.positions == {A: 100, B: 100}


def test_what_is_in_remote_storage_is_no_gap():
    leader = _Leader([_fetched(A)], [_fetched(A)], [_fetched(A)], [_fetched(A, _batch(0))])
    leader.local_start = 60
    consumer = BatchConsumer(leader, {A: 0})
    for _ in range(3):
        assert consumer.poll() == {}
    assert [each.base_offset for each in consumer.poll()[A]] == [0]


def test_a_topic_that_was_made_anew_is_not_read_on_at_the_offset_of_the_one_before():
    leader = _Leader([_fetched(A, _batch(0))])
    consumer = BatchConsumer(leader, {A: 0})
    consumer.poll()
    leader.topic_id = UUID(int=8)
    with pytest.raises(ApiError, match="topic 't' was deleted and created again") as raised:
        consumer.poll()
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(leader.asked) == 1
    assert consumer.positions == {A: 1}


def test_an_answer_without_a_whole_batch_holds_up_its_partition_alone():
    answers = [[_fetched(A, _batch(0)[:-1]), _fetched(B, _batch(0))], [_fetched(A, _batch(0)[:-1]), _fetched(B)]]
    consumer = BatchConsumer(_Leader(*answers), {A: 0, B: 0})
    assert [batch.base_offset for batch in consumer.poll()[B]] == [0]
    with pytest.raises(RemoteProtocolError, match="partition t-0 at offset 0"):
        consumer.poll()
    assert consumer.positions == {A: 0, B: 1}


def test_a_poll_that_is_interrupted_has_moved_nothing():
    def begun():
        leader = _Leader([_fetched(A, _batch(0)), _fetched(B, _batch(5))])
        consumer = BatchConsumer(leader, {A: 0, B: 5})
        return consumer, consumer.poll

    for consumer in interruptions(begun):
        assert consumer.positions == {A: 0, B: 5}


def test_a_poll_that_fails_moves_no_position_past_a_batch(monkeypatch):
    consumer = BatchConsumer(
        _Leader(*([_fetched(A, _batch(0)), _fetched(B, _batch(5))] for _ in range(2))), {A: 0, B: 5}
    )
    with monkeypatch.context() as patch:
        patch.setattr(consumer, "_readers", _FailingReaders(consumer._readers, B))
        with pytest.raises(RuntimeError):
            consumer.poll()
    assert consumer.positions == {A: 0, B: 5}
    assert {tp: [batch.base_offset for batch in batches] for tp, batches in consumer.poll().items()} == {A: [0], B: [5]}
    assert consumer.positions == {A: 1, B: 6}


class _FailingReaders:
    """FetchPositions of which one fails."""

    def __init__(self, readers, tp):
        self._readers = readers
        self._tp = tp

    def at(self, tp, offset):
        if tp == self._tp:
            raise RuntimeError(tp)
        return self._readers.at(tp, offset)


@pytest.fixture
def partitions(metadata, make_topic):
    topic = make_topic(partitions=2)
    return [TopicPartition(topic, partition) for partition in (0, 1)]


def _put(metadata, tp, *values):
    builder = RecordBatchBuilder()
    for number, value in enumerate(values):
        builder.append(1_700_000_000_000 + number, b"k", value, [("h", b"1"), ("n", None)])
    with BatchProducer(metadata) as producer:
        producer.send(tp, builder.build())


@pytest.mark.integration
def test_reads_up_to_an_end(metadata, partitions):
    for tp in partitions:
        _put(metadata, tp, b"a", b"", b"c")
    consumer = BatchConsumer(metadata, dict.fromkeys(partitions, EARLIEST))
    found = list(consumer.records(until=latest_offsets(metadata, partitions)))
    assert sorted((r.tp, r.offset, r.value) for r in found) == [
        (tp, offset, value) for tp in partitions for offset, value in enumerate([b"a", b"", b"c"])
    ]
    assert found[0].headers == (("h", b"1"), ("n", None))
    assert {r.timestamp for r in found} == {1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002}


@pytest.mark.integration
def test_starts_in_the_middle_of_a_batch_and_ends_there(metadata, partitions):
    tp = partitions[0]
    _put(metadata, tp, b"a", b"b", b"c", b"d")
    consumer = BatchConsumer(metadata, {tp: 1})
    assert [r.value for r in consumer.records(until={tp: 3})] == [b"b", b"c"]


@pytest.mark.integration
def test_follows_what_comes_after_latest(metadata, partitions):
    tp = partitions[0]
    _put(metadata, tp, b"old")
    consumer = BatchConsumer(metadata, {tp: LATEST})
    records = consumer.records()
    _put(metadata, tp, b"new", b"newer")
    assert [next(records).value, next(records).value] == [b"new", b"newer"]


@pytest.mark.integration
def test_poll_gives_batches_and_moves_on(metadata, partitions):
    tp = partitions[0]
    _put(metadata, tp, b"a")
    consumer = BatchConsumer(metadata, {tp: 0})
    assert [batch.record_count for batch in consumer.poll()[tp]] == [1]
    assert consumer.positions == {tp: 1}
    assert consumer.poll(max_wait_ms=1) == {}
