"""The streaming reader on a real cluster, asked as Spark asks it but without a session."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from spark.micro_batches import Query

from sparklog.client.admin.admin import Admin, AdminClient, NewTopic, OffsetAndMetadata
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.spark.stream.group_progress import PAUSE_S, GroupProgress
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import run_kafka_tool

pytestmark = pytest.mark.integration


@pytest.fixture
def query(servers):
    running = []

    def start(checkpoint=None, **options):
        running.append(Query(servers, checkpoint, **options))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def create_again(metadata):
    """Deletes a topic and creates it again."""

    def create(topic, partitions=1):
        admin = AdminClient(metadata)
        admin.delete_topics([topic])

        def created():
            try:
                admin.create_topics([NewTopic(topic, partitions, 1)])
            except ApiError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return False
                raise
            return True

        eventually(created, 60, "the topic can be created again")

    return create


def test_read_limits_are_told_to_spark(query, make_topic):
    topic = make_topic()
    limits = {"maxOffsetsPerTrigger": ReadMaxRows(5), "minOffsetsPerTrigger": ReadMinRows(5)}
    limits["maxBytesPerTrigger"] = ReadMaxBytes(5)
    for option, limit in limits.items():
        assert query(subscribe=topic, **{option: "5"}).reader.getDefaultReadLimit() == limit
    assert query(subscribe=topic).reader.getDefaultReadLimit() == ReadAllAvailable()


def test_partitions_that_are_added_are_read_from_their_beginning(query, servers, metadata, make_topic, produce):
    topic = make_topic()
    produce(topic, {"value": b"a"})
    running = query(subscribe=topic)
    assert running.batch() == [b"a"]
    with Admin(metadata.config) as admin:
        admin.create_partitions({topic: 3})
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, b"b", partition=0)
        producer.send(topic, b"c", partition=2)
    found = []
    eventually(lambda: found.extend(running.batch()) or len(found) == 2, 60, "the new partition is known")
    assert sorted(found) == [b"b", b"c"]
    assert query(running.checkpoint, subscribe=topic).batch() == []


@pytest.mark.parametrize("restarted", [True, False])
def test_a_topic_created_again_is_noticed(query, create_again, make_topic, produce, restarted):
    topic = make_topic()
    produce(topic, *({"value": b"old"} for _ in range(5)))
    running = query(subscribe=topic)
    assert len(running.batch()) == 5
    create_again(topic)
    produce(topic, *({"value": b"new"} for _ in range(7)))
    checkpoint = running.checkpoint
    again = query(checkpoint, subscribe=topic) if restarted else running
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_DATA_LOSS_RECREATED.*'{topic}', read up to \{{0: 5\}}"):
        again.batch()
    lenient = query(checkpoint, subscribe=topic, failOnDataLoss="false")
    assert lenient.batch() == [b"new"] * 7
    assert lenient.batch() == []


@pytest.mark.parametrize("available_now", [False, True])
def test_a_partition_that_never_was_is_refused_at_a_restart_too(query, make_topic, available_now):
    topic = make_topic()
    running = query(assign=json.dumps({topic: [0]}))
    running.batch()
    again = query(running.checkpoint, assign=json.dumps({topic: [0, 7]}), failOnDataLoss="false")
    if available_now:
        again.reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataSourceError, match=f"SPARKLOG_UNKNOWN_TOPIC.*{topic}-7"):
        again.batch()


def test_a_query_goes_on_without_a_partition_that_a_topic_created_again_has_not(
    query, create_again, make_topic, produce
):
    topic = make_topic(partitions=2)
    running = query(assign=json.dumps({topic: [0, 1]}), failOnDataLoss="false")
    running.batch()
    create_again(topic)
    for value in (b"a", b"b"):
        produce(topic, {"value": value})
        assert running.batch() == [value]


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("available_now", [False, True])
def test_a_query_that_reads_committed_records_alone_from_now_on_waits_for_what_is_open(
    query, servers, make_topic, available_now, fail
):
    topic = make_topic()
    with Producer({"bootstrap.servers": servers, "transactional.id": topic}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"a")
        producer.flush()
        running = query(subscribe=topic)
        assert running.batch() == [b"a"]
        committed = {"kafka.isolation.level": "read_committed", "fetchOffset.numRetries": "0", "failOnDataLoss": fail}
        later = query(running.checkpoint, subscribe=topic, **committed)
        if available_now:
            later.reader.prepareForTriggerAvailableNow()
        assert [later.batch(), later.batch()] == [[], []], "it is not lost"
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"b")
        producer.commit_transaction()
        assert query(later.checkpoint, subscribe=topic, **committed).batch() == [b"b"]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_query_may_start_behind_the_first_open_transaction(query, servers, make_topic, produce, fail):
    topic = make_topic()
    with Producer({"bootstrap.servers": servers, "transactional.id": topic}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"a")
        producer.flush()
        produce(topic, {"value": b"b"}, {"value": b"c"})
        options = {"kafka.isolation.level": "read_committed", "startingOffsets": json.dumps({topic: {"0": 2}})}
        running = query(subscribe=topic, failOnDataLoss=fail, **options)
        assert running.batch() == []
        producer.commit_transaction()
        found = []
        eventually(lambda: found.extend(running.batch()) or found, 60, "what is behind the transaction is read")
        assert found == [b"c"]


def test_a_topic_that_is_deleted(query, metadata, make_topic, produce):
    gone, there = make_topic(suffix="-gone"), make_topic(suffix="-there")
    produce(gone, {"value": b"a"})
    produce(there, {"value": b"b"})
    both = f"{gone},{there}"
    running = query(subscribe=both)
    assert sorted(running.batch()) == [b"a", b"b"]
    AdminClient(metadata).delete_topics([gone])
    produce(there, {"value": b"c"})
    impatient = {"subscribe": both, "kafka.default.api.timeout.ms": "3000"}
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_DATA_LOSS_DELETED.*{gone}-0, read up to offset 1"):
        query(running.checkpoint, **impatient).batch()
    lenient = query(running.checkpoint, **impatient, failOnDataLoss="false")
    assert lenient.batch() == [b"c"]
    assert lenient.batch() == []
    assert query(lenient.checkpoint, **impatient, failOnDataLoss="false").batch() == []


def test_a_batch_is_of_about_so_many_bytes(query, make_topic, produce):
    topic = make_topic(partitions=2)
    for _ in range(10):
        produce(topic, *({"value": bytes(1000), "partition": 0} for _ in range(10)))
        produce(topic, {"value": b"small", "partition": 1})
    running = query(subscribe=topic, maxBytesPerTrigger="20k")
    batches = []
    eventually(lambda: batches.append(running.batch()) or not batches[-1], 60, "all is read")
    assert sum(map(len, batches)) == 110
    assert all(b"small" in batch for batch in batches[:3])
    assert all(sum(map(len, batch)) < 22_000 for batch in batches)
    assert len(batches) <= 9


def test_progress_is_committed_to_a_group_when_spark_goes_on(query, metadata, make_topic, produce):
    topic, group = make_topic(), make_topic(suffix="-group")
    tp = TopicPartition(topic, 0)
    produce(topic, *({"value": b"x"} for _ in range(5)))
    running = query(subscribe=topic, commitToGroup=group)
    with Admin(metadata.config) as admin:
        running.batch()
        assert admin.group_offsets(group)[tp].offset == 0, "Spark may still fail to write what was read"
        running.batch()
        assert admin.group_offsets(group)[tp].offset == 5
        produce(topic, {"value": b"y"})
        running.batch()
        query(running.checkpoint, subscribe=topic, commitToGroup=group).batch()
        assert admin.group_offsets(group)[tp].offset == 6, "a restart commits what the last run had left"


def test_a_topic_created_again_is_committed_only_where_it_was_read_itself(
    query, create_again, metadata, make_topic, produce, monkeypatch
):
    topic, group, committed = make_topic(), make_topic(suffix="-group"), []
    monkeypatch.setattr(GroupProgress, "commit", lambda _self, offsets: committed.append(offsets))
    tp = TopicPartition(topic, 0)
    produce(topic, *({"value": b"x"} for _ in range(5)))
    running = query(subscribe=topic, commitToGroup=group, failOnDataLoss="false")
    running.batch()
    running.batch()
    create_again(topic)
    produce(topic, {"value": b"new"})
    assert running.batch() == [b"new"]
    running.batch()
    assert committed == [{tp: 0}, {tp: 5}, {}, {tp: 1}]


@pytest.mark.peer
def test_kafkas_own_tool_shows_the_progress(query, servers, make_topic, produce):
    topic, group = make_topic(), make_topic(suffix="-group")
    produce(topic, *({"value": b"x"} for _ in range(5)))
    running = query(subscribe=topic, commitToGroup=group, maxOffsetsPerTrigger="3")
    running.batch()
    running.batch()
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    shown = run_kafka_tool(tool, "--bootstrap-server", servers, "--describe", "--group", group)
    (row,) = [line.split() for line in shown.splitlines() if topic in line and not line.startswith("GROUP")]
    assert row[3:6] == ["3", "5", "2"], shown


def test_a_group_that_cannot_be_committed_to_does_not_stop_the_query(query, make_topic, produce, caplog, monkeypatch):
    topic = make_topic()
    produce(topic, {"value": b"x"})
    running = query(subscribe=topic, commitToGroup="g")

    def refuse(self, group, offsets):
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "it has members")

    monkeypatch.setattr(Admin, "alter_group_offsets", refuse)
    assert running.batch() == [b"x"]
    assert "not committed to group 'g'" in caplog.text


def test_a_commit_that_was_refused_is_made_good_though_nothing_new_is_read(servers, metadata, make_topic, caplog):
    topic, group = make_topic(), make_topic(suffix="-group")
    tp, clock = TopicPartition(topic, 0), ManualClock()
    progress = GroupProgress(metadata.config, group, clock)
    with Consumer(bootstrap_servers=servers, group_id=group) as member:
        member.subscribe([topic])
        eventually(lambda: member.poll(timeout=0.1) or member.assignment, 60, "the group has a member")
        progress.commit({tp: 5})
    assert f"not committed to group '{group}'" in caplog.text
    clock.advance(PAUSE_S)
    progress.commit({tp: 5})
    progress.close()
    with Admin(metadata.config) as admin:
        assert admin.group_offsets(group)[tp].offset == 5


def test_what_was_committed_is_committed_again_only_when_that_is_asked_for(metadata, monkeypatch):
    asked = []
    monkeypatch.setattr(Admin, "alter_group_offsets", lambda _admin, group, offsets: asked.append((group, offsets)))
    progress = GroupProgress(metadata.config, "g", ManualClock(), "so it is")
    tp = TopicPartition("t", 0)
    for _ in range(2):
        progress.commit({tp: 5})
        progress.commit({tp: 5})
        progress.repeat()
    progress.close()
    assert asked == [("g", {tp: OffsetAndMetadata(5, metadata="so it is")})] * 2


def test_a_query_that_is_idle_repeats_a_refused_commit_now_and_then(metadata, caplog, monkeypatch):
    clock, asked = ManualClock(), []

    def refuse(self, group, offsets):
        asked.append(clock.monotonic())
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "it has members")

    monkeypatch.setattr(Admin, "alter_group_offsets", refuse)
    progress = GroupProgress(metadata.config, "g", clock)
    for _ in range(21):
        progress.commit({TopicPartition("t", 0): 5})
        clock.advance(1)
    progress.close()
    assert asked == [0, PAUSE_S, 2 * PAUSE_S]
    assert caplog.text.count("not committed to group 'g'") == 1


def test_a_restart_of_the_broker_costs_a_retry_not_the_query(tmp_path, topic):
    with ClusterHarness(tmp_path) as harness, ThreadPoolExecutor(1) as thread:
        with Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, 2, 1)])
        with Producer(bootstrap_servers=harness.bootstrap_servers) as producer:
            producer.send(topic, b"x")
        running = Query(harness.bootstrap_servers, subscribePattern=f"^{topic}$")
        try:
            harness.stop_broker(0)
            batch = thread.submit(running.batch)
            harness.start_broker(0)
            assert batch.result(60) == [b"x"]
            harness.stop_broker(0)
            harness.start_broker(0)
            assert running.batch() == []
        finally:
            running.stop()
