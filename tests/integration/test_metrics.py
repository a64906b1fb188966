"""The metrics of a real broker against what was done, and against what administrators are told."""

import pytest
from integration import wire
from metrics.pages import Page, get

from sparklog.client import Admin, NewTopic, Producer
from sparklog.errors import ErrorCode
from sparklog.metrics.families import FAMILIES
from sparklog.structs import BrokerId, TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

TOPICS = "kafka_server_brokertopicmetrics_"
REQUESTS = "kafka_network_requestmetrics_"
REPLICAS = "kafka_server_replicamanager_"
TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def broker(tmp_path_factory, zookeeper):
    """One broker for all tests of this module, each of which has a topic of its own."""
    folder = tmp_path_factory.mktemp("metrics")
    settings = {"sparklog.metrics.port": 0}
    with BrokerHarness(folder, f"{zookeeper.connect_string}/metrics-{folder.name}", settings=settings) as harness:
        yield harness


def page_of(broker):
    status, text = get(f"{broker.metrics_url}/metrics")
    assert status == 200
    return Page(text)


@pytest.fixture
def made(broker, topic):
    """A topic with two partitions."""
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, topic, 2)[0] is ErrorCode.NONE
    return topic


def test_what_was_produced_and_consumed_is_told(broker, made):
    one, other = TopicPartition(made, 0), TopicPartition(made, 1)
    batches = {one: [wire.batch_of(b"a", b"b", b"c"), wire.batch_of(b"d")], other: [wire.batch_of(b"e" * 1000)]}
    before = page_of(broker)
    with wire.connect(broker.address) as connection:
        for tp, sent in batches.items():
            for batch in sent:
                assert wire.produce(connection, tp, batch)[0] is ErrorCode.NONE
        assert len(wire.fetch(connection, one, 0).records) == 1
        wire.fetch(connection, other, 0)
    page = page_of(broker)
    size = {tp: sum(map(len, sent)) for tp, sent in batches.items()}
    counted = {name: page.value(f"{TOPICS}{name}_total", topic=made) for name in ("messagesin", "bytesin", "bytesout")}
    assert counted == {"messagesin": 5, "bytesin": sum(size.values()), "bytesout": sum(size.values())}
    for name, value in counted.items():  # of all topics, by as much
        name = f"{TOPICS}{name}_total"
        assert page.value(name) - before.value(name) == value
    assert page.value(f"{TOPICS}totalproducerequests_total", topic=made) == 3
    assert page.value(f"{TOPICS}totalfetchrequests_total", topic=made) == 2
    for tp, records in ((one, 4), (other, 1)):
        labels = {"topic": made, "partition": str(tp.partition)}
        assert page.value("kafka_log_log_logendoffset", **labels) == records
        assert page.value("kafka_log_log_size", **labels) == size[tp]


def test_logs_are_told_as_administrators_are_told_them(broker, made):
    tp = TopicPartition(made, 1)
    with wire.connect(broker.address) as connection:
        for number in range(5):
            wire.produce(connection, tp, wire.batch_of(b"%d" % number))
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.delete_records({tp: 2})
        (log_dir,) = admin.log_dirs()[BrokerId(0)]
    page = page_of(broker)
    told = {
        TopicPartition(found["topic"], int(found["partition"])): value
        for found, value in ((dict(labels), value) for labels, value in page.of("kafka_log_log_size").items())
    }
    assert told == log_dir.sizes
    labels = {"topic": made, "partition": "1"}
    assert page.value("kafka_log_log_logstartoffset", **labels) == 2
    assert page.value("kafka_log_log_logendoffset", **labels) == 5
    assert page.value(REPLICAS + "partitioncount") == page.value(REPLICAS + "leadercount") == len(told)


def test_requests_are_counted_by_api_and_timed(broker, made):
    before = page_of(broker)
    with wire.connect(broker.address) as connection:
        for _ in range(7):
            wire.produce(connection, TopicPartition(made, 0), wire.batch_of(b"x"))
    page = page_of(broker)
    labels = {"request": "Produce", "version": str(wire.PRODUCE_VERSION)}
    name = REQUESTS + "requests_total"
    assert page.value(name, **labels) - (before.value(name, **labels) or 0) == 7
    name = REQUESTS + "totaltimems_count"
    assert page.value(name, request="Produce") - (before.value(name, request="Produce") or 0) == 7
    assert page.value(REQUESTS + "totaltimems", request="Produce", quantile="0.99") > 0
    assert page.value("sparklog_request_loop_seconds_total", request="Produce") > 0


def test_a_fetch_that_waits_is_timed_to_its_answer(broker, made):
    with wire.connect(broker.address) as connection:
        wire.send_fetch(connection, {TopicPartition(made, 0): 0}, max_wait_ms=1500, min_bytes=1)
        wire.receive_fetch(connection)
    page = page_of(broker)
    assert page.value(REQUESTS + "totaltimems", request="FetchConsumer", quantile="0.999") >= 1400
    assert page.value(REQUESTS + "requests_total", request="Fetch", version=str(wire.BY_NAME)) > 0


def test_a_topic_that_is_deleted_has_no_series_and_its_numbers_stay_in_the_sum(broker, made):
    name = f"{TOPICS}messagesin_total"
    with wire.connect(broker.address) as connection:
        wire.produce(connection, TopicPartition(made, 0), wire.batch_of(b"x", b"y"))
        before = page_of(broker)
        assert wire.delete_topic(connection, made) is ErrorCode.NONE
    eventually(lambda: page_of(broker).value(name, topic=made) is None)
    after = page_of(broker)
    assert after.value(name) >= before.value(name)
    assert not any(dict(labels)["topic"] == made for labels in after.of("kafka_log_log_size"))


def test_the_process_is_told_and_so_is_the_scrape(broker):
    first, second = page_of(broker), page_of(broker)
    assert first.value("process_resident_memory_bytes") > 10e6
    assert second.value("sparklog_scrapes_total") > first.value("sparklog_scrapes_total")
    assert second.value("sparklog_scrape_loop_seconds_total") > 0


def test_the_lag_of_a_group_is_what_administrators_are_told(broker, made):
    group, tps = f"group of {made}", [TopicPartition(made, number) for number in range(2)]
    with wire.connect(broker.address) as connection:
        for number in range(10):
            wire.produce(connection, tps[0], wire.batch_of(b"%d" % number))
        with Admin(bootstrap_servers=broker.address) as admin:
            admin.alter_group_offsets(group, {tps[0]: 4, tps[1]: 0})
            committed = admin.group_offsets(group)
            sizes = admin.lag_bytes({tp: each.offset for tp, each in committed.items()})
        ends = {tp: wire.list_offset(connection, tp, -1)[1] for tp in tps}
    page = page_of(broker)
    for tp in tps:
        labels = {"consumergroup": group, "topic": made, "partition": str(tp.partition)}
        assert page.value("kafka_consumergroup_current_offset", **labels) == committed[tp].offset
        assert page.value("kafka_consumergroup_lag", **labels) == ends[tp] - committed[tp].offset
        assert page.value("sparklog_group_lag_bytes", **labels) == sizes[tp]
    assert 6 * len(wire.batch_of(b"0")) <= sizes[tps[0]] <= 10 * len(wire.batch_of(b"0"))
    assert sizes[tps[1]] == 0
    assert page.value("kafka_consumergroup_members", consumergroup=group) == 0
    assert page.value("sparklog_groups", protocol="classic", state="Empty") >= 1


def test_an_open_transaction_is_told_until_it_ends(broker, made):
    name = "sparklog_transactions"
    with Producer(bootstrap_servers=broker.address, transactional_id=f"id of {made}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(made, b"x").result(60)
        with Admin(bootstrap_servers=broker.address) as admin:
            ongoing = sum(each.state == "Ongoing" for each in admin.list_transactions())
        assert page_of(broker).value(name, state="Ongoing") == ongoing >= 1
        before = page_of(broker).value("sparklog_transactions_ended_total", outcome="commit", kind="plain")
        producer.commit_transaction()
    ended = "sparklog_transactions_ended_total"
    eventually(lambda: page_of(broker).value(ended, outcome="commit", kind="plain") == before + 1)
    eventually(lambda: page_of(broker).value(name, state="Ongoing") == ongoing - 1)


def test_a_request_that_waits_is_in_purgatory_and_its_connection_is_counted(broker, made):
    waiting = "kafka_server_delayedoperationpurgatory_purgatorysize"
    opened = "kafka_server_socketservermetrics_connection_count"
    labels = {"listener": "PLAINTEXT", "network_processor": "0"}
    eventually(lambda: page_of(broker).value(waiting, delayedOperation="Fetch") == 0)
    before = page_of(broker).value(opened, **labels)
    with wire.connect(broker.address) as connection:
        wire.send_fetch(connection, {TopicPartition(made, 0): 0}, max_wait_ms=600_000)
        eventually(lambda: page_of(broker).value(waiting, delayedOperation="Fetch") == 1)
        assert page_of(broker).value(opened, **labels) == before + 1
    eventually(lambda: page_of(broker).value(waiting, delayedOperation="Fetch") == 0)
    assert page_of(broker).value(opened, **labels) == before


def test_the_controller_tells_of_the_cluster(broker, made):
    with Admin(bootstrap_servers=broker.address) as admin:
        topics = admin.list_topics(internal=True)
    page, name = page_of(broker), "kafka_controller_kafkacontroller_"
    assert page.value(name + "activecontrollercount") == page.value(name + "activebrokercount") == 1
    assert page.value(name + "globaltopiccount") == len(topics)
    assert page.value(name + "globalpartitioncount") == sum(len(each.partitions) for each in topics)
    assert page.value(name + "offlinepartitionscount") == 0
    assert page.value("kafka_server_kafkaserver_brokerstate") == 3
    assert page.value("sparklog_broker_registered") == page.value("sparklog_zookeeper_connected") == 1
    assert page.value("sparklog_loop_lag_seconds_count") > 0


def test_a_cleaning_is_counted(broker, topic):
    before = page_of(broker).value("sparklog_cleanings_total", outcome="done")
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, topic, 1, {"cleanup.policy": "compact"})[0] is ErrorCode.NONE
        for value in (b"a", b"b", b"c"):
            wire.produce(connection, TopicPartition(topic, 0), wire.batch_of(value))
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.compact([TopicPartition(topic, 0)])
    page = page_of(broker)
    assert page.value("sparklog_cleanings_total", outcome="done") - before == 1
    assert 0 < page.value("kafka_log_logcleaner_cleaner_recopy_percent") < 100


def test_everything_that_the_page_of_metrics_lists_is_told(broker):
    _, text = get(f"{broker.metrics_url}/metrics")
    told = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE "))
    assert {each.name: each.kind for each in FAMILIES}.items() <= told.items()
    others = told.keys() - {each.name for each in FAMILIES}
    assert all(each.startswith(("process_", "python_")) for each in others)


def test_health_and_readiness(broker):
    assert get(f"{broker.metrics_url}/health") == (200, "ok\n")
    assert get(f"{broker.metrics_url}/ready") == (200, "ready\n")
    assert get(f"{broker.metrics_url}/nothing")[0] == 404


def test_a_broker_with_a_token_tells_its_metrics_to_nobody_else(tmp_path, chroot):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    settings = {"sparklog.metrics.port": 0, "sparklog.metrics.token.file": tmp_path / "token"}
    with BrokerHarness(tmp_path, chroot, settings=settings) as broker:
        for wrong in (None, "another", TOKEN + "x", "é"):
            status, text = get(f"{broker.metrics_url}/metrics", wrong)
            assert (status, "kafka" in text) == (401, False)
        assert get(f"{broker.metrics_url}/metrics", TOKEN)[0] == 200
        assert get(f"{broker.metrics_url}/ready")[0] == 200
        assert TOKEN not in broker.output()


def test_a_broker_that_waits_for_zookeeper_is_alive_and_not_ready(tmp_path):
    from sparklog.local.ports import free_port

    broker = BrokerHarness(tmp_path, f"127.0.0.1:{free_port()}", settings={"sparklog.metrics.port": 0})
    broker.spawn()
    try:
        eventually(lambda: broker.metrics_url)
        assert get(f"{broker.metrics_url}/health") == (200, "ok\n")
        assert get(f"{broker.metrics_url}/ready") == (503, "the broker is starting\n")
        assert get(f"{broker.metrics_url}/metrics")[0] == 503
    finally:
        broker.kill()


@pytest.fixture
def pair(tmp_path):
    """Two brokers."""
    settings = {"sparklog.metrics.port": 0, "replica.lag.time.max.ms": 3000}
    with ClusterHarness(tmp_path, 2, settings) as cluster:
        yield cluster


def lags_at(cluster, name="kafka_consumergroup_lag"):
    """The lag of each partition, as the coordinator of the only group tells it."""
    found = {}
    for broker in cluster.brokers:
        for labels, lag in page_of(broker).of(name).items():
            found[int(dict(labels)["partition"])] = lag
    return found


def test_lags_at_other_leaders_and_what_lacks_a_replica_since_a_broker_died(pair):
    first, second = pair.brokers
    spread = [TopicPartition("spread", number) for number in range(6)]
    with Admin(bootstrap_servers=pair.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("spread", len(spread), 1), NewTopic("twice", 4, 2)])
        with Producer(bootstrap_servers=pair.bootstrap_servers) as producer:
            for tp in spread:
                for _ in range(tp.partition + 1):
                    producer.send("spread", b"x", partition=tp.partition).result(60)
                producer.send("twice", b"x").result(60)
        admin.alter_group_offsets("far", dict.fromkeys(spread, 1))
        sizes = {tp.partition: size for tp, size in admin.lag_bytes(dict.fromkeys(spread, 1)).items()}
    eventually(lambda: lags_at(pair) == {tp.partition: tp.partition for tp in spread})
    assert sizes.keys() == set(range(6)), "both leaders told"
    eventually(lambda: lags_at(pair, "sparklog_group_lag_bytes") == sizes)

    def are_in_sync():
        pages = [page_of(each) for each in pair.brokers]
        copied, sent = (
            sum(page.value(f"{TOPICS}replicationbytes{way}_total") for page in pages) for way in ("in", "out")
        )
        return copied == sent > 0 and all(page.value(REPLICAS + "underreplicatedpartitions") == 0 for page in pages)

    eventually(are_in_sync)
    controller = "kafka_controller_kafkacontroller_"
    assert sum(page_of(each).value(controller + "activecontrollercount") for each in pair.brokers) == 1
    second.kill()

    def is_told():
        page = page_of(first)
        named = {dict(labels).get("topic") for labels in page.of("kafka_cluster_partition_underreplicated")}
        return (
            "twice" in named
            and page.value(REPLICAS + "underreplicatedpartitions") >= 4
            and page.value(controller + "activebrokercount") == page.value(controller + "activecontrollercount") == 1
            and page.value(controller + "offlinepartitionscount") == 3
            and page.value("sparklog_leader_elections_total") >= 2
            and page.value("kafka_controller_controllerstats_leaderelectionrateandtimems_count") >= 1
            and page.value("kafka_controller_controllerstats_uncleanleaderelections_total") == 0
        )

    eventually(is_told)


def test_what_is_refused_is_told_by_its_code_and_its_bytes(broker, topic):
    settings, batch = {"max.message.bytes": "100"}, wire.batch_of(b"x" * 1000)
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, topic, 1, settings)[0] is ErrorCode.NONE
        assert wire.produce(connection, TopicPartition(topic, 0), batch)[0] is ErrorCode.MESSAGE_TOO_LARGE
    page = page_of(broker)
    errors = REQUESTS + "errors_total"
    assert page.value(errors, request="Produce", error="MESSAGE_TOO_LARGE") == 1
    assert page.value(TOPICS + "bytesrejected_total", topic=topic) == len(batch)


def test_the_room_of_each_log_directory_is_told(broker):
    page = page_of(broker)
    with Admin(bootstrap_servers=broker.address) as admin:
        (log_dir,) = admin.log_dirs()[BrokerId(0)]
    labels = {"directory": str(log_dir.path)}
    assert page.value("sparklog_log_directory_total_bytes", **labels) == log_dir.total_bytes
    assert 0 < page.value("sparklog_log_directory_free_bytes", **labels) <= log_dir.total_bytes


def test_what_the_broker_waits_for_is_told(broker, made):
    page = page_of(broker)
    assert page.value("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count") > 0
    assert page.value("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", quantile="0.99") > 0
    assert page.value("kafka_server_replicafetchermanager_maxlag", clientId="Replica") == 0
    assert page.value("sparklog_request_queue_seconds_total", request="CreateTopics") >= 0
    assert 0 <= page.value("kafka_network_socketserver_networkprocessoravgidle_percent") <= 1
    assert page.value("sparklog_loop_cpu_seconds_total") > 0
