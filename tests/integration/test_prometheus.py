"""A real Prometheus beside a real cluster: its answers are our numbers, and it raises the alerts."""

import threading

import pytest
from fix_programs import lack_of
from integration.prometheus import Prometheus
from metrics.pages import Page, get

from sparklog.client import Admin, NewTopic, Producer
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

LACK = lack_of("prometheus")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,  # half a minute of waiting for scrapes; promtool tries every rule in every run
    pytest.mark.skipif(bool(LACK), reason=LACK),
]

LOAD = [TopicPartition("load", number) for number in range(4)]
GROUP = "late"
RECORDS = 8_000
LIMITS = {"sparklog_group_lag_seconds > 300": "sparklog_group_lag_seconds > 0.5"}
BY_DEATH = {"SparklogBrokerDown", "SparklogUnderReplicated", "SparklogUnderMinIsr", "SparklogOfflinePartitions"}


class Watched(ClusterHarness):
    """Its brokers keep their ports for Prometheus over restarts."""

    metrics_port = 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two brokers, a topic of which both have all, one of which each has half, and a group that reads nothing."""
    settings = {"replica.lag.time.max.ms": 3000}
    with Watched(tmp_path_factory.mktemp("cluster"), 2, settings) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            twice = NewTopic("load", len(LOAD), 2, {"min.insync.replicas": "2"})
            admin.create_topics([twice, NewTopic("alone", 4, 1)])
            admin.alter_group_offsets(GROUP, dict.fromkeys(LOAD, 0))
        yield cluster


@pytest.fixture(scope="module")
def prometheus(cluster, tmp_path_factory):
    targets = [each.metrics_url.removeprefix("http://") for each in cluster.brokers]
    with Prometheus(tmp_path_factory.mktemp("prometheus"), targets, LIMITS) as server:
        eventually(lambda: server.number('sum(up{job="sparklog"})') == 2)
        yield server


def load(cluster):
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(RECORDS):
            producer.send("load", b"x" * 100, partition=number % len(LOAD))
            if number % 100 == 0:
                producer.flush()


@pytest.fixture(scope="module")
def loaded(cluster, prometheus):
    """The load is over, and Prometheus has looked at the brokers meanwhile."""
    name = 'sum(kafka_server_brokertopicmetrics_messagesin_total{topic="load"})'
    thread = threading.Thread(target=load, args=(cluster,))
    thread.start()
    eventually(lambda: (prometheus.number(name) or 0) > 0)
    thread.join(120)
    eventually(lambda: prometheus.number(name) == RECORDS)


def target_of(broker):
    return broker.metrics_url.removeprefix("http://")


def samples(broker):
    """What its page tells of the broker, by the labels that Prometheus gives to it."""
    own = {"job": "sparklog", "instance": target_of(broker)}
    return {
        frozenset((own | {"__name__": sample.name} | sample.labels).items()): sample.value
        for family in Page(get(f"{broker.metrics_url}/metrics")[1]).families
        if family.name.startswith(("kafka_", "sparklog_"))
        for sample in family.samples
    }


def differences(prometheus, broker):
    """What Prometheus answers otherwise than the page, of the series that do not change by themselves."""
    before = samples(broker)
    found = prometheus.series(f'{{instance="{target_of(broker)}", __name__=~"kafka_.+|sparklog_.+"}}')
    after = samples(broker)
    at_rest = [labels for labels, value in after.items() if before.get(labels) == value]
    assert len(at_rest) > 200
    return {labels: (found.get(labels), after[labels]) for labels in at_rest if found.get(labels) != after[labels]}


def test_its_answers_are_the_pages(cluster, prometheus, loaded):
    for broker in cluster.brokers:
        eventually(lambda broker=broker: not differences(prometheus, broker), what=f"the page of {broker.name}")


def test_its_answers_are_what_administrators_are_told(cluster, prometheus, loaded):
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        every_dir = [each for dirs in admin.log_dirs().values() for each in dirs]
    size = sum(size for each in every_dir for tp, size in each.sizes.items() if tp.topic == "load")
    eventually(lambda: prometheus.number('sum(kafka_log_log_size{topic="load"})') == size)
    eventually(lambda: prometheus.number(f'sum(kafka_consumergroup_lag{{consumergroup="{GROUP}"}})') == RECORDS)
    assert prometheus.number('sum(kafka_log_log_logendoffset{topic="load"})') == 2 * RECORDS
    assert prometheus.number(f'sum(sparklog_group_lag_bytes{{consumergroup="{GROUP}"}})') == size / 2


def test_alerts_are_raised_for_a_killed_broker_and_end_when_it_is_back(cluster, prometheus, loaded):
    eventually(lambda: not BY_DEATH & prometheus.alerts().keys() and "SparklogGroupBehind" in prometheus.alerts())
    behind = prometheus.alerts()["SparklogGroupBehind"]
    assert (behind["consumergroup"], behind["topic"], behind["severity"]) == (GROUP, "load", "warning")
    dead = target_of(cluster.broker(1))
    cluster.kill_broker(1)
    try:
        eventually(lambda: BY_DEATH | {"SparklogGroupBehind"} <= prometheus.alerts().keys())
        down = prometheus.alerts()["SparklogBrokerDown"]
        assert (down["instance"], down["severity"]) == (dead, "critical")
    finally:
        cluster.start_broker(1)
    eventually(lambda: not BY_DEATH & prometheus.alerts().keys())
