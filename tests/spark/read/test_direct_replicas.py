"""Direct reads where there are replicas: the files of any that is in sync, as far as it shows its log."""

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from integration import wire
from metrics.pages import Page, get

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.cluster.leases import RangeLease, lease_ranges
from sparklog.client.consumer.fetch.segment_files import NOT_VISIBLE, SegmentFiles
from sparklog.config.broker import RACK_AWARE_SELECTOR
from sparklog.errors import NotDirect
from sparklog.spark.read import direct, fetch_paths
from sparklog.spark.read.batch_reader import SparklogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
NOTICED_S = 60.0
COUNT = 50
RACKS = ("r0", "r1", "r2")
_ALL = source_schema(include_headers=True)


class Watched(ClusterHarness):
    """Its brokers tell what they gave."""

    metrics_port = 0


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    """Three brokers in three racks."""
    settings = {"replica.selector.class": RACK_AWARE_SELECTOR}
    with Watched(tmp_path_factory.mktemp("trio"), 3, settings, RACKS) as harness:
        yield harness


def leader_of(trio, topic):
    with Admin({"bootstrap.servers": trio.bootstrap_servers}) as admin:
        return admin.describe_topics([topic])[topic].partitions[0].leader


@pytest.fixture
def filled(trio, topic):
    """A topic with committed and aborted transactions on three replicas; its name."""
    with Admin({"bootstrap.servers": trio.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic(topic, 1, 3, {"retention.ms": "-1"})])
        eventually(lambda: len(admin.describe_topics([topic])[topic].partitions[0].isr) == 3, NOTICED_S, "in sync")
    for name, keeps in (("kept", True), ("gone", False), ("too", True)):
        producer = Producer(
            {"bootstrap.servers": trio.bootstrap_servers, "transactional.id": f"{topic}-{name}", "log_level": 0}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(COUNT):
            producer.produce(topic, b"%s %d" % (name.encode(), number))
        assert producer.flush(60) == 0
        if keeps:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    return topic


@pytest.fixture(autouse=True)
def taken(monkeypatch):
    """What the readers of this test did."""
    sums = fetch_paths.ReadPathCounters()
    monkeypatch.setattr(fetch_paths, "PROCESS", sums)
    return sums


@pytest.fixture
def granted(monkeypatch):
    """The brokers that granted leases."""
    brokers = []

    def lease(*args, **kwargs):
        found = lease_ranges(*args, **kwargs)
        brokers.extend(each.broker.port for each in found[:1] if isinstance(each, RangeLease))
        return found

    monkeypatch.setattr(direct, "lease_ranges", lease)
    return brokers


def rows(trio, topic, **options):
    settings = {"kafka.bootstrap.servers": trio.bootstrap_servers, "subscribe": topic, **options}
    reader = SparklogReader(ReadOptions.for_batch(settings), _ALL)
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    return pa.Table.from_batches(batches).combine_chunks()


@pytest.fixture
def hidden(monkeypatch):
    """``hidden(broker)``: its files are not here."""

    def hide(broker):
        plain = SegmentFiles.open

        def opened(self, path, tp):
            if path.startswith(str(broker.spec.data_dir)):
                raise NotDirect(NOT_VISIBLE, path)
            return plain(self, path, tp)

        monkeypatch.setattr(SegmentFiles, "open", opened)

    return hide


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_files_of_a_follower_are_read_where_the_leaders_are_not_here(
    trio, filled, hidden, granted, taken, isolation
):
    level = {"kafka.isolation.level": isolation}
    shown = COUNT * (2 if isolation == "read_committed" else 3)

    def all_that_is_shown():
        found = rows(trio, filled, directRead="never", **level)
        return found if len(found) == shown else None

    fetched = eventually(all_that_is_shown, 60, "the transactions' markers")
    leader = trio.broker(leader_of(trio, filled))
    hidden(leader)
    assert rows(trio, filled, directRead="always", **level) == fetched
    assert granted[0] == leader.spec.port
    assert granted[-1] != leader.spec.port
    assert taken.direct_bytes > 0


def given(trio, broker_id, topic):
    """Bytes of the topic's records that a broker has given consumers."""
    status, text = get(f"{trio.broker(broker_id).metrics_url}/metrics")
    assert status == 200
    return Page(text).value("kafka_server_brokertopicmetrics_bytesout_total", topic=topic)


def test_a_task_fetches_from_the_follower_in_the_rack_that_its_option_names(trio, filled):
    tp, leader = TopicPartition(filled, 0), leader_of(trio, filled)
    near, far = {0, 1, 2} - {leader}
    end = 3 * COUNT + 3  # with the markers
    with wire.connect(trio.broker(near).address) as connection:  # a read at the end, which gives no records
        eventually(lambda: wire.fetch(connection, tp, end, max_wait_ms=0).high_watermark == end, NOTICED_S, "its end")
    found = rows(trio, filled, directRead="never")
    size = given(trio, leader, filled)
    assert size > 0
    assert [given(trio, each, filled) for each in (near, far)] == [0, 0]
    assert rows(trio, filled, directRead="never", **{"kafka.client.rack": RACKS[near]}) == found
    assert [given(trio, each, filled) for each in (leader, near, far)] == [size, size, 0]


def test_what_a_follower_does_not_show_yet_is_waited_for_or_fetched(trio, filled, hidden, monkeypatch, taken):
    """A driver plans up to the leader's end, and a follower hears of that a moment later."""
    leader = trio.broker(leader_of(trio, filled))
    hidden(leader)
    late = []

    def lease(*args, **kwargs):
        found = lease_ranges(*args, **kwargs)
        first = found[0]
        if isinstance(first, RangeLease) and first.broker.port != leader.spec.port and len(late) < 2:
            late.append(first)
            return [first._replace(files=[], end_offset=0), *found[1:]]
        return found

    monkeypatch.setattr(direct, "lease_ranges", lease)
    fetched = rows(trio, filled, directRead="never")
    assert rows(trio, filled, directRead="auto") == fetched
    assert (len(late), taken.direct_bytes) == (2, 0), "of neither follower, so it was fetched"
    late.clear()
    assert rows(trio, filled, directRead="always") == fetched
    assert len(late) == 2
    assert taken.direct_bytes > 0


def test_a_task_whose_leader_has_died_reads_from_a_follower(trio, filled, granted, taken):
    settings = {"kafka.bootstrap.servers": trio.bootstrap_servers, "subscribe": filled}
    reader = SparklogReader(ReadOptions.for_batch(settings), _ALL)
    tasks = reader.partitions()
    before, leader = rows(trio, filled, directRead="never"), leader_of(trio, filled)
    trio.kill_broker(leader)
    try:
        batches = [batch for each in tasks for batch in reader.read(each)]
    finally:
        trio.start_broker(leader)
    assert pa.Table.from_batches(batches).combine_chunks() == before
