"""Transactions, by confluent-kafka and kafka-python: commit, abort, fencing, offsets, crashes, restarts."""

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from integration import wire
from integration.raw_producer import UNHURRIED_MS, RawProducer
from kafka import KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.structs import OffsetAndMetadata

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest
from sparklog.structs import TopicPartition as Tp
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration


def producer_of(bootstrap, transactional_id, **settings):
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": UNHURRIED_MS,
            "log_level": 0,
            "linger.ms": 0,
            **settings,
        }
    )
    producer.init_transactions(30)
    return producer


def write(producer, topic, *values, partition=0):
    for value in values:
        producer.produce(topic, value, b"k", partition)
    assert producer.flush(30) == 0


def consumer_of(bootstrap, group="nobody", **settings):
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
            **settings,
        }
    )


def read(bootstrap, topic, partition=0, **settings):
    """What a reader of its isolation level finds before the end that it is told of."""
    consumer = consumer_of(bootstrap, **settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    values = []

    def at_end():
        for message in consumer.consume(100, 0.5):
            if message.error() is None:
                values.append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return True
        return False

    try:
        eventually(at_end)
    finally:
        consumer.close()
    return values


def describe(connection, transactional_id):
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = connection.request(ApiKey.DESCRIBE_TRANSACTIONS, lambda _: request).transaction_states
    return state


def state_of(address, transactional_id):
    """As the cluster's coordinator shows it, or the error."""
    with wire.connect(address) as connection:
        state = describe(connection, transactional_id)
    return state.transaction_state or ErrorCode(state.error_code).name


def settled(address, transactional_id):
    eventually(lambda: state_of(address, transactional_id).startswith(("Complete", "Empty")), 60, transactional_id)


def test_what_is_committed_is_seen_and_not_before(bootstrap, make_topic, topic):
    make_topic(partitions=2)
    producer = producer_of(bootstrap, topic)
    producer.begin_transaction()
    write(producer, topic, b"one", b"two")
    write(producer, topic, b"elsewhere", partition=1)
    assert state_of(bootstrap, topic) == "Ongoing"
    assert read(bootstrap, topic) == []
    assert read(bootstrap, topic, **{"isolation.level": "read_uncommitted"}) == [b"one", b"two"]
    producer.commit_transaction(30)
    settled(bootstrap, topic)
    assert state_of(bootstrap, topic) == "CompleteCommit"
    assert read(bootstrap, topic) == [b"one", b"two"]
    assert read(bootstrap, topic, partition=1) == [b"elsewhere"]


def test_what_is_aborted_is_never_seen(bootstrap, make_topic, topic):
    make_topic()
    producer = producer_of(bootstrap, topic)
    for number, end in enumerate(["abort", "commit", "abort", "commit"]):
        producer.begin_transaction()
        write(producer, topic, b"%s %d" % (end.encode(), number))
        getattr(producer, f"{end}_transaction")(30)
    settled(bootstrap, topic)
    assert read(bootstrap, topic) == [b"commit 1", b"commit 3"]
    assert len(read(bootstrap, topic, **{"isolation.level": "read_uncommitted"})) == 4


def test_a_second_instance_fences_the_first(bootstrap, make_topic, topic):
    make_topic()
    first = producer_of(bootstrap, topic)
    first.begin_transaction()
    write(first, topic, b"of the first")
    second = producer_of(bootstrap, topic)
    second.begin_transaction()
    write(second, topic, b"of the second")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(30)
    assert refused.value.args[0].code() == KafkaError._FENCED
    second.commit_transaction(30)
    settled(bootstrap, topic)
    assert read(bootstrap, topic) == [b"of the second"]


def test_offsets_are_committed_with_the_records_or_not_at_all(bootstrap, make_topic, topic):
    make_topic()
    source = TopicPartition(topic, 0, 7)
    group = f"{topic}-group"
    reader = consumer_of(bootstrap, group)
    reader.subscribe([topic])
    eventually(lambda: reader.poll(0.1) is None and reader.assignment())
    producer = producer_of(bootstrap, topic)

    def committed():
        (found,) = reader.committed([TopicPartition(topic, 0)], 20)
        assert found.error is None, found.error
        return found.offset

    producer.begin_transaction()
    producer.send_offsets_to_transaction([source], reader.consumer_group_metadata(), 30)
    write(producer, topic, b"gone")
    producer.abort_transaction(30)
    settled(bootstrap, topic)
    assert committed() < 0
    producer.begin_transaction()
    producer.send_offsets_to_transaction([source], reader.consumer_group_metadata(), 30)
    write(producer, topic, b"kept")
    producer.commit_transaction(30)
    settled(bootstrap, topic)
    assert committed() == 7
    reader.close()
    assert read(bootstrap, topic) == [b"kept"]


def test_a_batch_of_a_partition_that_was_not_added_is_refused(bootstrap, make_topic, topic):
    make_topic()
    producer_of(bootstrap, topic)
    with wire.connect(bootstrap) as connection:
        state = describe(connection, topic)
        batch = wire.batch_of(
            b"x", producer_id=state.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        error, _, message = wire.produce(connection, Tp(topic, 0), batch)
    assert error is ErrorCode.INVALID_TXN_STATE, message


def test_tools_see_what_is_open(bootstrap, make_topic, topic):
    make_topic()
    producer = producer_of(bootstrap, topic)
    producer.begin_transaction()
    write(producer, topic, b"x")
    with wire.connect(bootstrap) as connection:
        state = describe(connection, topic)
        assert (state.error_code, state.transaction_state, state.producer_epoch) == (0, "Ongoing", 0)
        assert [(each.topic, list(each.partitions)) for each in state.topics] == [(topic, [0])]
        assert describe(connection, "nobody's").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        request = ListTransactionsRequest(
            state_filters=["Ongoing", "Odd"], producer_id_filters=[state.producer_id], duration_filter=-1
        )
        listed = connection.request(ApiKey.LIST_TRANSACTIONS, lambda _: request)
        assert list(listed.unknown_state_filters) == ["Odd"]
        assert [each.transactional_id for each in listed.transaction_states] == [topic]
        asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0, 5])
        answer = connection.request(ApiKey.DESCRIBE_PRODUCERS, lambda _: DescribeProducersRequest(topics=[asked]))
        here, missing = answer.topics[0].partitions
        (active,) = here.active_producers
        assert (active.producer_id, active.last_sequence, active.current_txn_start_offset) == (state.producer_id, 0, 0)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer.abort_transaction(30)


@pytest.fixture
def broker(tmp_path, chroot):
    """A broker of this test's own, which looks for transactions that take too long again and again."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with BrokerHarness(tmp_path, chroot, settings=settings) as harness:
        yield harness


def make_topic_at(broker, name, **configs):
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, name, 1, configs)[0] is ErrorCode.NONE


@pytest.mark.parametrize("stop", ["stop", "kill"])
def test_a_transaction_goes_on_after_a_restart(broker, stop):
    make_topic_at(broker, "t")
    producer = producer_of(broker.address, "worker")
    producer.begin_transaction()
    write(producer, "t", b"before")
    getattr(broker, stop)()
    broker.start()
    write(producer, "t", b"after")
    assert read(broker.address, "t") == []
    producer.commit_transaction(30)
    settled(broker.address, "worker")
    assert read(broker.address, "t") == [b"before", b"after"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_that_a_topic_made_again_has_no_more_holds_up_no_transaction(broker, version):
    gone = Tp("t", 3)
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, "t", 4)[0] is ErrorCode.NONE
    producer = RawProducer(broker.address, "worker", version)
    assert producer.init() is ErrorCode.NONE
    if version == 1:
        assert producer.add(gone) is ErrorCode.NONE
    assert producer.write(gone, b"of the topic before") is ErrorCode.NONE
    with wire.connect(broker.address) as connection:
        assert wire.delete_topic(connection, "t") is ErrorCode.NONE
        assert wire.create_topic(connection, "t", 1)[0] is ErrorCode.NONE
    assert producer.end(commit=True) is ErrorCode.NONE
    settled(broker.address, "worker")
    assert producer.init() is ErrorCode.NONE


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(broker):
    make_topic_at(broker, "t")
    producer = producer_of(broker.address, "slow", **{"transaction.timeout.ms": 2000})
    producer.list_topics("t", timeout=60)  # so that nothing of the two seconds is spent on looking for its leader

    def is_begun():
        """On a slow machine the record is too late before the transaction has begun: then it is begun once more."""
        producer.begin_transaction()
        producer.produce("t", b"too late")
        producer.flush(60)  # acknowledged or refused: it is too late in the end
        if state_of(broker.address, "slow") != "Empty":
            return True
        producer.abort_transaction(60)
        return False

    eventually(is_begun)
    eventually(lambda: state_of(broker.address, "slow") == "CompleteAbort")
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    with wire.connect(broker.address) as connection:
        assert describe(connection, "slow").producer_epoch == 1
    assert read(broker.address, "t") == []


def test_a_timeout_beyond_the_brokers_is_refused(bootstrap, topic):
    with pytest.raises(KafkaException) as refused:
        producer_of(bootstrap, topic, **{"transaction.timeout.ms": 900_001})
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_kafka_pythons_producer_speaks_the_same(bootstrap, make_topic, topic):
    make_topic()
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    for end in ("commit", "abort", "commit"):
        producer.begin_transaction()
        producer.send(topic, end.encode(), partition=0)
        offsets = {KafkaPythonPartition(topic, 0): OffsetAndMetadata(len(end), "", -1)}
        producer.send_offsets_to_transaction(offsets, f"{topic}-group")
        getattr(producer, f"{end}_transaction")()
    producer.close()
    settled(bootstrap, topic)
    assert read(bootstrap, topic) == [b"commit", b"commit"]
    consumer = consumer_of(bootstrap, f"{topic}-group")
    (committed,) = consumer.committed([TopicPartition(topic, 0)], 20)
    consumer.close()
    assert committed.offset == len("commit")
