"""Producer and AsyncProducer against a cluster of ours and, under the marker ``peer``, against Kafka."""

import asyncio
import os
import threading

import pyarrow as pa
import pytest

from sparklog.client import AsyncProducer, Producer
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import EARLIEST, latest_offsets
from sparklog.client.consumer.batch_consumer import BatchConsumer
from sparklog.errors import ApiError, ClientClosed, ErrorCode
from sparklog.record.partitioning import partition_for
from sparklog.structs import IsolationLevel, TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def producer(servers):
    with Producer(bootstrap_servers=servers) as producer:
        yield producer


def _read(servers, topic, partitions=1, isolation="read_committed"):
    """Every record of the topic that is to be seen, partition by partition."""
    config = ClientConfig(bootstrap_servers=servers, isolation=isolation)
    with ClusterMetadata(config) as cluster:
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        ends = latest_offsets(cluster, tps, IsolationLevel.READ_COMMITTED)
        found = list(BatchConsumer(cluster, dict.fromkeys(tps, EARLIEST)).records(until=ends))
    return {tp.partition: [each for each in found if each.tp == tp] for tp in tps}


def _values(servers, topic, **how):
    return [each.value for group in _read(servers, topic, **how).values() for each in group]


def test_futures_say_where_records_are(producer, servers, make_topic):
    topic = make_topic(partitions=3)
    futures = [producer.send(topic, b"%d" % number, key=b"key-%d" % (number % 10)) for number in range(1000)]
    producer.flush()
    found = _read(servers, topic, 3)
    for number, future in enumerate(futures):
        metadata = future.result(0)
        assert metadata.partition == partition_for(b"key-%d" % (number % 10), 3)
        record = found[metadata.partition][metadata.offset]
        assert (record.value, record.timestamp) == (b"%d" % number, metadata.timestamp)
    for group in found.values():
        numbers = [int(each.value) for each in group]
        assert numbers == sorted(numbers)


def test_what_a_record_holds(producer, servers, make_topic):
    topic = make_topic()
    producer.send(topic, "välue", "kéy", headers={"a": b"1", "b": None}, timestamp=123).result(30)
    producer.send(topic, None, headers=[("a", b"x"), ("a", b"y")], partition=0).result(30)
    first, second = _read(servers, topic)[0]
    assert (first.key, first.value, first.timestamp) == ("kéy".encode(), "välue".encode(), 123)
    assert list(first.headers) == [("a", b"1"), ("b", None)]
    assert (second.key, second.value, list(second.headers)) == (None, None, [("a", b"x"), ("a", b"y")])


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed(servers, make_topic, compression):
    topic = make_topic()
    with Producer({"bootstrap.servers": servers, "compression.type": compression, "batch.size": 2000}) as producer:
        for number in range(500):
            producer.send(topic, b"number %d" % number)
    assert _values(servers, topic) == [b"number %d" % number for number in range(500)]


def test_the_callers_own_functions(servers, make_topic):
    topic = make_topic(partitions=4)
    told = []
    with Producer(
        bootstrap_servers=servers,
        value_serializer=lambda value: str(value).encode(),
        key_serializer=lambda key: None if key is None else bytes([key]),
        partitioner=lambda topic, key, value, count: int(value) % count,
    ) as producer:
        for number in range(8):
            producer.send(topic, number, key=1, on_delivery=lambda *outcome: told.append(outcome))
    assert {number: [int(each.value) for each in group] for number, group in _read(servers, topic, 4).items()} == {
        0: [0, 4],
        1: [1, 5],
        2: [2, 6],
        3: [3, 7],
    }
    assert len(told) == 8
    assert all(error is None and metadata.topic == topic for metadata, error in told)


def test_keyless_records_use_all_partitions(servers, make_topic):
    topic = make_topic(partitions=3)
    with Producer(bootstrap_servers=servers, batch_size=200) as producer:
        for number in range(300):
            producer.send(topic, b"%d" % number)
    assert all(_read(servers, topic, 3).values())


@pytest.mark.parametrize("acks", ["0", "1"])
def test_with_fewer_acknowledgements(servers, make_topic, acks):
    topic = make_topic()
    with Producer(bootstrap_servers=servers, acks=acks) as producer:
        assert not producer.config.enable_idempotence
        future = producer.send(topic, b"x")
        assert future.result(30).offset == (-1 if acks == "0" else 0)
    with Producer(bootstrap_servers=servers) as producer:
        assert producer.send(topic, b"y").result(30).offset >= 0


def test_many_threads_and_little_memory(servers, make_topic):
    topic = make_topic(partitions=2)
    with Producer(bootstrap_servers=servers, buffer_memory=20_000, batch_size=2000) as producer:

        def send(thread):
            for number in range(500):
                producer.send(topic, b"%d" % number, partition=thread % 2, headers={"thread": bytes([thread])})

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    by_thread = {}
    for group in _read(servers, topic, 2).values():
        for each in group:
            by_thread.setdefault(each.headers[0][1], []).append(int(each.value))
    assert by_thread == {bytes([number]): list(range(500)) for number in range(4)}


def test_arrow(producer, servers, make_topic):
    topic = make_topic(partitions=3)
    keys = pa.array([b"key-%d" % (number % 7) for number in range(1000)], pa.binary())
    values = pa.array([b"%d" % number for number in range(1000)], pa.binary())
    times = pa.array(range(1000), pa.int64())
    futures = producer.send_arrow(topic, pa.table({"key": keys, "value": values, "timestamp": times}))
    assert sum(future.result(30).records for future in futures) == 1000
    found = _read(servers, topic, 3)
    for number, group in found.items():
        mine = [each for each in range(1000) if partition_for(b"key-%d" % (each % 7), 3) == number]
        assert [(int(each.value), each.timestamp) for each in group] == [(each, each) for each in mine]


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("ms")])
def test_arrow_rows_of_before_1970_are_refused_whole(producer, servers, make_topic, kind):
    topic = make_topic()
    times = pa.array([1, None, -1], pa.int64()).cast(kind)
    with pytest.raises(ValueError, match="the earliest of these is -1"):
        producer.send_arrow(topic, pa.table({"value": ["a", "b", "c"], "timestamp": times}))
    none = pa.table({"value": ["a"], "timestamp": pa.nulls(1, kind)})
    assert sum(future.result(30).records for future in producer.send_arrow(topic, none)) == 1
    assert len(_read(servers, topic, 1)[0]) == 1


def test_arrow_rows_that_name_their_partition(producer, servers, make_topic):
    topic = make_topic(partitions=2)
    rows = pa.record_batch(
        {"value": pa.array(["a", "b", "c", "d"]), "partition": pa.array([1, 0, None, 1], pa.int32())}
    )
    producer.send(topic, b"before", partition=1)
    for future in producer.send_arrow(topic, rows):
        future.result(30)
    found = {number: [each.value for each in group] for number, group in _read(servers, topic, 2).items()}
    assert found[1][:3] == [b"before", b"a", b"d"] or found[1][:2] == [b"before", b"a"]
    assert sorted(found[0] + found[1]) == [b"a", b"b", b"before", b"c", b"d"]
    with pytest.raises(ApiError, match="a row names partition 9"):
        producer.send_arrow(topic, rows.set_column(1, "partition", pa.array([9] * 4, pa.int32())))


def test_a_partition_that_is_not_there(producer, make_topic):
    topic = make_topic()
    producer.send(topic, b"x").result(30)
    with pytest.raises(ApiError, match="has no partition 5, only 0 to 0"):
        producer.send(topic, b"x", partition=5)


def test_what_is_no_bytes_needs_a_serializer(producer, make_topic):
    topic = make_topic()
    with pytest.raises(TypeError, match="pass a value_serializer"):
        producer.send(topic, 5)
    with pytest.raises(TypeError, match="pass a key_serializer"):
        producer.send(topic, b"x", key=1.5)
    assert producer.send(topic, bytearray(b"y"), memoryview(b"k")).result(30).offset == 0


def test_a_record_that_can_never_be_sent(producer, make_topic):
    with pytest.raises(ApiError, match=r"max\.request\.size=\d+ allows; raise it, and the topic's max\.message\.bytes"):
        producer.send(make_topic(), bytes(producer.config.max_request_size))


def test_a_record_that_the_topic_refuses(producer, servers, make_topic):
    topic = make_topic(max_message_bytes=1000)
    small = [producer.send(topic, b"%d" % number * 30) for number in range(50)]  # halved until they fit
    large = producer.send(topic, bytes(5000))
    after = producer.send(topic, b"after")
    assert large.exception(30).code is ErrorCode.MESSAGE_TOO_LARGE
    offsets = [each.result(30).offset for each in (*small, after)]
    assert offsets == list(range(51))


def test_after_close(servers, make_topic):
    topic = make_topic()
    producer = Producer(bootstrap_servers=servers)
    future = producer.send(topic, b"x")
    producer.close()
    assert future.result(0).offset == 0
    for use in (lambda: producer.send(topic, b"x"), producer.flush, lambda: producer.partitions_for(topic)):
        with pytest.raises(ClientClosed):
            use()
    producer.close()


def test_a_callback_that_waits_for_its_own_producer_is_refused(producer, make_topic):
    topic, told = make_topic(), []

    def waits(*_):
        try:
            told.append(producer.send(topic, b"second").result())
        except ClientClosed as error:
            told.append(str(error))

    producer.send(topic, b"first", on_delivery=waits)
    producer.flush(30)
    producer.flush(30)
    assert len(told) == 1
    assert "callback" in told[0]


def test_a_task_that_blocks_its_own_loop_is_refused(servers, make_topic):
    async def run():
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            future = await producer.send(make_topic(), b"x")
            with pytest.raises(ClientClosed, match="await"):
                future.result()
            assert (await future).offset == future.result().offset == 0

    asyncio.run(run())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_in_a_forked_child(producer, make_topic):
    topic = make_topic()
    producer.send(topic, b"x").result(30)
    producer.send(topic, b"w")  # a batch is open when the fork comes
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            producer.send(topic, b"y")
        except ClientClosed as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert b"make one in the child" in pipe.read()
    os.waitpid(child, 0)
    assert producer.send(topic, b"z").result(30).offset == 2


def test_on_the_callers_loop(servers, make_topic):
    topic = make_topic(partitions=2)

    async def produce():
        async with AsyncProducer(bootstrap_servers=servers, linger_ms=0) as producer:
            first = await (await producer.send(topic, b"x", partition=1))
            (second,) = [await each for each in await producer.send_arrow(topic, pa.table({"value": ["y"]}))]
            assert len(await producer.partitions_for(topic)) == 2
            return first, second

    first, second = asyncio.run(produce())
    assert (first.partition, first.offset, second.records) == (1, 0, 1)


# Transactions.


@pytest.fixture
def writer(servers, topic):
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        yield producer


def test_a_transaction_is_seen_whole_or_not_at_all(writer, servers, make_topic):
    topic = make_topic(partitions=2)
    for number, end in enumerate([writer.commit_transaction, writer.abort_transaction, writer.commit_transaction]):
        writer.begin_transaction()
        for partition in (0, 1):
            writer.send(topic, b"%d" % number, partition=partition)
        end()
    assert _values(servers, topic, partitions=2) == [b"0", b"2"] * 2


def test_a_transaction_that_was_written_and_aborted(writer, servers, make_topic):
    topic = make_topic()
    writer.begin_transaction()
    written = writer.send(topic, b"gone")
    writer.flush()
    writer.abort_transaction()
    assert written.exception(0) is None
    writer.begin_transaction()
    for future in writer.send_arrow(topic, pa.table({"value": ["kept"]})):
        future.result(30)
    writer.commit_transaction()
    assert _values(servers, topic) == [b"kept"]


def test_an_empty_transaction(writer):
    writer.begin_transaction()
    writer.commit_transaction()
    writer.begin_transaction()
    writer.abort_transaction()


def test_offsets_are_part_of_it(writer, servers, make_topic):
    topic = make_topic()
    group = f"group-of-{topic}"
    for offset, end in [(5, writer.commit_transaction), (9, writer.abort_transaction)]:
        writer.begin_transaction()
        writer.send(topic, b"x")
        writer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group)
        end()
    assert _committed(servers, group, topic) == 5


def _committed(servers, group, topic):
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Wanted

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "isolation.level": "read_committed"})
    try:
        (found,) = consumer.committed([Wanted(topic, 0)], timeout=30)
        return found.offset
    finally:
        consumer.close()


def test_who_is_fenced_stops(writer, servers, make_topic, topic):
    name = make_topic()
    writer.begin_transaction()
    writer.send(name, b"old").result(30)
    with Producer(bootstrap_servers=servers, transactional_id=topic) as heir:
        heir.init_transactions()
        late = writer.send(name, b"late")
        writer.flush()
        assert late.exception(30).code is ErrorCode.PRODUCER_FENCED
        for use in (writer.commit_transaction, writer.abort_transaction, writer.begin_transaction):
            with pytest.raises(ApiError, match="this producer cannot go on"):
                use()
        heir.begin_transaction()
        heir.send(name, b"new")
        heir.commit_transaction()
    assert _values(servers, name) == [b"new"]


def test_a_spoiled_transaction_can_only_be_aborted(writer, servers, make_topic):
    topic = make_topic(max_message_bytes=1000)
    writer.begin_transaction()
    writer.send(topic, b"x")
    refused = writer.send(topic, bytes(5000))
    with pytest.raises(ApiError, match="call abort_transaction"):
        writer.commit_transaction()
    assert refused.exception(0).code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(ApiError, match="call abort_transaction"):
        writer.send(topic, b"y")
    writer.abort_transaction()
    writer.begin_transaction()
    writer.send(topic, b"z")
    writer.commit_transaction()
    assert _values(servers, topic) == [b"z"]


def test_out_of_place(writer, servers, make_topic):
    topic = make_topic()
    with pytest.raises(ApiError, match="call begin_transaction first"):
        writer.send(topic, b"x")
    with pytest.raises(ApiError, match="call begin_transaction first"):
        writer.commit_transaction()
    writer.begin_transaction()
    with pytest.raises(ApiError, match="commit or abort it first"):
        writer.begin_transaction()
    with pytest.raises(ApiError, match="initialized already"):
        writer.init_transactions()


def test_closing_in_a_transaction_aborts_it(servers, make_topic, topic):
    name = make_topic()
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"x")
    assert _values(servers, name) == []
