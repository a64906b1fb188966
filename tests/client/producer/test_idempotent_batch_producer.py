"""Each batch once and in order, whatever is lost, late or refused: with leaders in memory, and with a broker."""

from collections import deque
from contextlib import nullcontext
from enum import Enum, auto
from types import SimpleNamespace

import pytest
from client.producer.leader_model import Leader
from hypothesis import example, given
from hypothesis import strategies as st
from integration.proxy import Proxy

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.cluster.retry import Backoff
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.client.producer import idempotent_batch_producer
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.client.producer.idempotent_batch_producer import IdempotentBatchProducer, best_producer
from sparklog.client.producer.sequences import Numbering
from sparklog.errors import ApiError, BatchRefused, ConfigError, ConnectionFailed, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce
from sparklog.protocol.hot.produce import ProduceResult
from sparklog.protocol.messages import InitProducerIdResponse
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.layout import MAX_INT32
from sparklog.record.records import iter_records
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock

_E = ErrorCode
_TPS = [TopicPartition("t", number) for number in range(2)]
_VERSION = 9


class Fate(Enum):
    """What becomes of a Produce request."""

    ANSWERED = auto()
    REQUEST_LOST = auto()
    """The connection breaks before the broker has read it, or any behind it."""
    REQUEST_LATE = auto()
    """The same to the client, but the broker reads it yet, behind later ones of other connections."""
    ANSWER_LOST = auto()
    """The connection breaks; this and those behind it are written."""
    REFUSED = auto()
    """Not enough replicas: not written."""
    MOVED = auto()
    """Written and acknowledged; another broker leads from now on, and the client hears of it elsewhere."""
    MOVED_BEFORE = auto()
    """Not written, for another broker leads by now."""
    MOVED_BEHIND = auto()
    """Written, and then another broker leads."""


_MOVES = (Fate.MOVED, Fate.MOVED_BEFORE, Fate.MOVED_BEHIND)
_LOSSES = (Fate.REQUEST_LOST, Fate.REQUEST_LATE, Fate.ANSWER_LOST)


class Cluster:
    """Two brokers, which share what is written: one of them leads all partitions. ``fates`` of the requests to come."""

    def __init__(self, *fates, **settings):
        self.config = ClientConfig(delivery_timeout_ms=600_000, **settings)
        self.clock = ManualClock()
        self.pool = SimpleNamespace(
            take=lambda endpoint: Connection(self, endpoint),
            give_back=lambda connection: None,
            forget=lambda endpoint: None,
            within=nullcontext,
        )
        self.fates = deque(fates)
        self.leaders = {tp: Leader() for tp in _TPS}
        self.current = 0
        self.late = []
        self.id_answers = deque()
        self.ids = 0

    def leader(self, tp):
        return Endpoint("b", self.current), None

    def leaderless(self, partitions):
        return {}

    def invalidate(self, topic):
        pass

    def backoff(self, timeout_ms):
        return Backoff(self.config, self.clock, timeout_ms)

    def request_any(self, api, build):
        assert (api, build(0).transactional_id) == (ApiKey.INIT_PRODUCER_ID, None)
        code = self.id_answers.popleft() if self.id_answers else _E.NONE
        if isinstance(code, Exception):
            raise code
        self.ids += code is _E.NONE
        return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=0)

    def write(self, records):
        results = {}
        for tp, batch in records:
            code, offset = self.leaders[tp].append(batch)
            results[tp] = ProduceResult(code, base_offset=offset)
        return results

    def written(self):
        return {tp: leader.log for tp, leader in self.leaders.items() if leader.log}


class Connection:
    """To one of the brokers."""

    versions = SimpleNamespace(best=lambda api, ceiling: _VERSION)

    def __init__(self, cluster, endpoint):
        self.cluster = cluster
        self.endpoint = endpoint
        self.closed = False
        self.answers = deque()
        self.loss = None

    def close(self):
        self.closed = True

    def send(self, api, version, body, *, expect_response):
        assert not self.closed
        data = b"".join(map(bytes, body))
        answer = self._answer(produce.decode_request(memoryview(data), version).records)
        self.answers.append(answer)

    def receive(self):
        answer = self.answers.popleft()
        if answer is None:
            raise ConnectionFailed("lost")
        return ApiKey.PRODUCE, _VERSION, memoryview(b"".join(map(bytes, produce.encode_response(answer, _VERSION))))

    def _answer(self, records):
        """What the broker says; None where nothing arrives any more."""
        cluster = self.cluster
        if self.loss is None and cluster.fates:
            fate = cluster.fates.popleft()
            self.loss = fate if fate in _LOSSES else None
        else:
            fate = self.loss or Fate.ANSWERED
        if fate is Fate.REQUEST_LATE:
            cluster.late.append(records)
        if fate in (Fate.REQUEST_LOST, Fate.REQUEST_LATE):
            return None
        if fate is Fate.REFUSED:
            return {tp: ProduceResult(_E.NOT_ENOUGH_REPLICAS) for tp, _ in records}
        moved = {tp: ProduceResult(_E.NOT_LEADER_OR_FOLLOWER) for tp, _ in records}
        if self.endpoint.port != cluster.current or fate is Fate.MOVED_BEFORE:
            cluster.current = (cluster.current + (fate in _MOVES)) % 2
            return None if self.loss else moved
        results = cluster.write(records)
        while cluster.late:
            cluster.write(cluster.late.pop(0))
        if fate in _MOVES:
            cluster.current = 1 - cluster.current
        if self.loss:
            return None
        return moved if fate is Fate.MOVED_BEHIND else results


def _batch(*values):
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(1, None, b"%d" % value)
    return bytearray(builder.build())


def _send(cluster, partitions):
    """A batch of two numbers to each of the partitions, in this order; what each partition was given."""
    given = {}
    with IdempotentBatchProducer(cluster) as producer:
        for number, tp in enumerate(partitions):
            values = [2 * number, 2 * number + 1]
            producer.send(tp, _batch(*values))
            given.setdefault(tp, []).extend(values)
    assert producer.acknowledged_records == 2 * len(partitions)
    return given


@pytest.mark.parametrize("fate", Fate)
@pytest.mark.parametrize("at", [0, 1, 3])
def test_each_batch_is_written_once_and_in_order(fate, at):
    cluster = Cluster(*[Fate.ANSWERED] * at, fate)
    assert _send(cluster, _TPS[:1] * 12) == cluster.written()
    assert cluster.ids == 1


@given(
    st.lists(st.sampled_from(Fate), max_size=25),
    st.lists(st.sampled_from(_TPS), max_size=40),
    st.sampled_from([1, 2, 5]),
)
@example([Fate.ANSWERED, Fate.MOVED_BEHIND], _TPS[:1] * 12, 5)
@example([Fate.ANSWERED, Fate.MOVED, Fate.ANSWER_LOST], _TPS[:1] * 20, 5)
def test_each_batch_is_written_once_and_in_order_whatever_happens(fates, partitions, max_in_flight):
    cluster = Cluster(*fates, max_in_flight=max_in_flight)
    assert _send(cluster, partitions) == cluster.written()


@given(st.lists(st.sampled_from(Fate), max_size=15), st.integers(0, 20))
def test_numbers_may_wrap(fates, before):
    def near_the_end(producer):
        numbering = Numbering(producer)
        numbering.stamp(MAX_INT32 - before)
        return numbering

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idempotent_batch_producer, "Numbering", near_the_end)
        cluster = Cluster(*fates)
        assert _send(cluster, _TPS[:1] * 20) == cluster.written()


def test_all_that_fits_is_in_flight():
    cluster = Cluster()
    producer = IdempotentBatchProducer(cluster)
    for number in range(7):
        producer.send(_TPS[0], _batch(number))
    (pipeline,) = producer._pipelines.values()
    assert (len(pipeline.in_flight), len(pipeline.filling)) == (5, 1)
    assert len(cluster.written()[_TPS[0]]) == 6


def test_what_a_leader_has_forgotten_is_no_success():
    """As a Kafka broker that is started again, which knows the last batch alone."""
    cluster = Cluster(Fate.ANSWERED, Fate.ANSWER_LOST)
    producer = IdempotentBatchProducer(cluster)
    for number in range(5):
        producer.send(_TPS[0], _batch(number))
    for endpoint in list(producer._pipelines):
        producer._dispatch(endpoint)
    cluster.leaders[_TPS[0]].restart()
    lost = r"t-0 refused.*OUT_OF_ORDER_SEQUENCE_NUMBER; the leader has lost.*may have this one already"
    with pytest.raises(BatchRefused, match=lost) as caught:
        producer.flush()
    assert caught.value.code is _E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert cluster.written() == {_TPS[0]: [0, 1, 2, 3, 4]}


def test_what_the_first_waits_for_is_told():
    told = []
    producer = IdempotentBatchProducer(Cluster(Fate.ANSWERED, Fate.REFUSED), told.append)
    for number in range(4):
        producer.send(_TPS[0], _batch(number))
    producer.flush()
    assert [error.code for error in told] == [_E.NOT_ENOUGH_REPLICAS]


def test_an_id_is_asked_for_again_while_none_can_be_given():
    cluster, told = Cluster(), []
    cluster.id_answers.extend([ConnectionFailed("no broker"), _E.COORDINATOR_NOT_AVAILABLE])
    with IdempotentBatchProducer(cluster, told.append) as producer:
        producer.send(_TPS[0], _batch(1))
    assert cluster.written() == {_TPS[0]: [1]}
    assert [str(error) for error in told] == ["no broker", "no producer id is given: COORDINATOR_NOT_AVAILABLE"]


@pytest.mark.parametrize(
    ("code", "asked"), [(_E.CLUSTER_AUTHORIZATION_FAILED, 1), (_E.COORDINATOR_LOAD_IN_PROGRESS, 600)]
)
def test_an_id_that_is_refused_is_an_error(code, asked):
    cluster = Cluster()
    cluster.id_answers.extend([code] * 2000)
    with pytest.raises(ApiError, match=f"no producer id is given: {code.name}"):
        IdempotentBatchProducer(cluster).send(_TPS[0], _batch(1))
    assert 2000 - len(cluster.id_answers) == pytest.approx(asked, rel=0.1)
    assert cluster.clock.monotonic() <= 600


def test_a_producer_that_writes_nothing_asks_for_no_id():
    cluster = Cluster()
    IdempotentBatchProducer(cluster).flush()
    assert cluster.ids == 0


@pytest.mark.parametrize("settings", [{"acks": "1"}, {"acks": "0"}, {"max_in_flight": 6}])
def test_settings_that_allow_no_numbers(settings):
    cluster = Cluster(**settings)
    assert type(best_producer(cluster)) is BatchProducer
    with pytest.raises(ConfigError, match="writing each batch once needs acks=all, and max"):
        IdempotentBatchProducer(cluster)
    assert type(best_producer(Cluster())) is IdempotentBatchProducer


@pytest.mark.integration
def test_a_broker_whose_answers_are_lost_has_each_batch_once(servers, make_topic, metadata):
    """Its ids, its memory of batches, and answers that are lost behind the append."""
    topic = make_topic(partitions=2)
    with Proxy(int(servers.rpartition(":")[2])) as proxy:
        config = ClientConfig(bootstrap_servers=proxy.address, retry_backoff_ms=1)
        with ClusterMetadata(config) as cluster, IdempotentBatchProducer(cluster) as producer:
            proxy.lose_answers(ApiKey.PRODUCE, every=7)
            for number in range(200):
                producer.send(TopicPartition(topic, number % 2), _batch(number))
        assert proxy.lost > 10
    for partition in range(2):
        tp = TopicPartition(topic, partition)
        end = latest_offsets(metadata, [tp])[tp]
        found = [int(each.value) for batch in fetch_range(metadata, tp, 0, end) for each in iter_records(batch)]
        assert found == list(range(partition, 200, 2))
