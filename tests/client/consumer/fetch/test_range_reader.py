import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.fetch import range_reader
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.client.consumer.fetch.scan import scan
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.errors import ApiError, ConnectionFailed, CorruptRecord, ErrorCode
from sparklog.protocol.hot.fetch import FetchedPartition
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_records
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.clock import ManualClock

_TP = TopicPartition("t", 0)


def _batch(base_offset, count=2, producer=-1, *, transactional=False, control=False):
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        is_transactional=transactional,
        is_control=control,
    )
    for number in range(count):
        builder.append(1000, b"\0\0\0\0" if control else b"k", b"%d" % (base_offset + number))
    return builder.build()


def _answer(*batches, aborted=()):
    fetched = FetchedPartition("t", ZERO_UUID, 0, aborted=list(aborted))
    fetched.records.append(memoryview(b"".join(batches)))
    return fetched


def _visible(fetched, isolation=IsolationLevel.READ_COMMITTED):
    found = scan(_TP, fetched, 0, isolation)
    return [batch.base_offset for batch in found.batches], found.next_offset


def _transactions():
    """Producer 7 aborts, producer 8 commits, then 7 commits."""
    return _answer(
        _batch(0, producer=7, transactional=True),
        _batch(2, producer=8, transactional=True),
        _batch(4, producer=7, transactional=True),
        _batch(6, 1, producer=7, transactional=True, control=True),
        _batch(7, 1, producer=8, transactional=True, control=True),
        _batch(8, producer=7, transactional=True),
        _batch(10, 1, producer=7, transactional=True, control=True),
        _batch(11),
        aborted=[(7, 0)],
    )


def test_read_committed_hides_aborted_transactions_and_no_other():
    assert _visible(_transactions()) == ([2, 8, 11], 13)


def test_read_uncommitted_sees_aborted_records_but_no_control_records():
    assert _visible(_transactions(), IsolationLevel.READ_UNCOMMITTED) == ([0, 2, 4, 8, 11], 13)


def test_an_abort_that_begins_later_leaves_what_came_before():
    answer = _answer(
        _batch(0, producer=7, transactional=True),
        _batch(2, 1, producer=7, transactional=True, control=True),
        _batch(3, producer=7, transactional=True),
        aborted=[(7, 3)],
    )
    assert _visible(answer) == ([0], 5)


def test_a_batch_cut_short_is_left_for_the_next_fetch():
    whole, cut = _batch(0), _batch(2)[:-1]
    assert _visible(_answer(whole, cut)) == ([0], 2)


def test_a_damaged_batch_is_refused():
    damaged = bytearray(_batch(0))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecord, match=r"^partition t-0 at offset 0: .*CRC"):
        scan(_TP, _answer(bytes(damaged)), 0, IsolationLevel.READ_UNCOMMITTED)


def test_what_stands_before_damage_is_given():
    damaged = bytearray(_batch(2))
    damaged[-1] ^= 1
    assert _visible(_answer(_batch(0), bytes(damaged), _batch(4)), IsolationLevel.READ_UNCOMMITTED) == ([0], 2)


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
    batches = fetch_range(metadata, filled, 0, 1000)
    next(batches)
    batches.close()
    assert _offsets(fetch_range(metadata, filled, 0, 10))[0] == 0
