"""How batches of a transaction are numbered and sent again, with a leader in memory."""

from collections import deque
from types import SimpleNamespace

import pytest

from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.retry import Backoff
from sparklog.client.producer.transaction import LAST_PRODUCE_OF_FIRST_PROTOCOL
from sparklog.client.producer.transactional_batch_producer import TransactionalBatchProducer
from sparklog.errors import BatchRefused, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce
from sparklog.protocol.hot.produce import ProduceResult
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock

_TP = TopicPartition("t", 0)
_E = ErrorCode
_VERSION = LAST_PRODUCE_OF_FIRST_PROTOCOL


class _Leader:
    """A cluster of one partition, and the connection to its leader, which refuses as it is told, else acknowledges."""

    endpoint = Endpoint("one", 1)
    closed = False
    versions = SimpleNamespace(best=lambda api, ceiling: ceiling)

    def __init__(self, *codes):
        self.codes = deque(codes)
        self.asked = []  # base sequences
        self.answers = deque()
        self.invalidated = []
        self.config = ClientConfig(delivery_timeout_ms=5_000, retry_backoff_ms=1)
        self.clock = ManualClock()
        self.pool = SimpleNamespace(take=lambda endpoint: self, give_back=lambda connection: None)

    def leader(self, tp):
        return self.endpoint, None

    def backoff(self, timeout_ms):
        return Backoff(self.config, self.clock, timeout_ms)

    def leaderless(self, partitions):
        return {}

    def invalidate(self, topic):
        self.invalidated.append(topic)

    def send(self, api, version, body, *, expect_response):
        request = produce.decode_request(memoryview(b"".join(map(bytes, body))), version)
        assert (api, request.transactional_id, expect_response) == (ApiKey.PRODUCE, "x", True)
        results = {}
        for tp, records in request.records:
            batch = RecordBatch(records)
            batch.validate()
            assert (batch.producer_id, batch.producer_epoch) == (7, 3)
            self.asked.append(batch.base_sequence)
            results[tp] = ProduceResult(self.codes.popleft() if self.codes else _E.NONE, message="why")
        self.answers.append(memoryview(b"".join(map(bytes, produce.encode_response(results, version)))))

    def receive(self):
        return ApiKey.PRODUCE, _VERSION, self.answers.popleft()

    def produce(self, batches):
        """Send so many batches of two records, and wait for all."""
        producer = TransactionalBatchProducer(self, PreparedTransaction("x", 7, 3), lambda tps: None)
        for _ in range(batches):
            builder = RecordBatchBuilder(is_transactional=True)
            for _ in range(2):
                builder.append(1, None, b"v")
            producer.send(_TP, bytearray(builder.build()))
        producer.flush()
        return producer


def test_batches_are_numbered_by_their_records():
    leader = _Leader()
    assert leader.produce(3).acknowledged_records == 6
    assert leader.asked == [0, 2, 4]


def test_what_was_written_by_an_earlier_attempt_is_acknowledged():
    leader = _Leader(_E.NETWORK_EXCEPTION, _E.DUPLICATE_SEQUENCE_NUMBER)
    assert leader.produce(1).acknowledged_records == 2
    assert leader.asked == [0, 0]
    assert leader.invalidated == ["t"]


@pytest.mark.parametrize("behind", [_E.OUT_OF_ORDER_SEQUENCE_NUMBER, _E.UNKNOWN_PRODUCER_ID])
def test_what_stands_behind_a_refused_batch_is_sent_again_behind_it(behind):
    leader = _Leader(_E.NONE, _E.NOT_ENOUGH_REPLICAS, behind)
    assert leader.produce(3).acknowledged_records == 6
    assert leader.asked == [0, 2, 4, 2, 4]


def test_a_number_that_is_refused_at_its_turn_is_believed_the_second_time():
    leader = _Leader(_E.NONE, *[_E.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2)
    with pytest.raises(BatchRefused, match=r"OUT_OF_ORDER_SEQUENCE_NUMBER \(why\)") as caught:
        leader.produce(2)
    assert caught.value.code is _E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert leader.asked == [0, 2, 2]


@pytest.mark.parametrize("code", [_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED, _E.INVALID_RECORD])
def test_other_refusals_are_final(code):
    with pytest.raises(BatchRefused) as caught:
        _Leader(code).produce(1)
    assert caught.value.code is code
