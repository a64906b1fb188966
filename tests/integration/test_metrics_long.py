"""A scrape of a broker with 10,000 partitions, by HTTP and while clients are served: what it costs the broker."""

import threading
from contextlib import contextmanager
from itertools import pairwise
from statistics import median

import pytest
from metrics.pages import Page, get

from sparklog.client import Admin, Consumer, NewTopic, Producer
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPICS, PARTITIONS, GROUPS, SCRAPES = 200, 50, 10, 20
CPU_S = 0.15
"""What a page may cost the loop's thread in processor time: twice what docs/metrics.md has of a crowded machine."""
PATIENCE = {"default.api.timeout.ms": 900_000, "request.timeout.ms": 900_000}


def name_of(number):
    return f"a-topic-with-a-name-{number}"


@pytest.fixture
def broker(tmp_path, zookeeper):
    settings = {"sparklog.metrics.port": 0}
    with BrokerHarness(tmp_path, f"{zookeeper.connect_string}/metrics-long", settings=settings) as harness:
        with Admin({"bootstrap.servers": harness.address} | PATIENCE) as admin:
            admin.create_topics([NewTopic(name_of(number), PARTITIONS, 1) for number in range(TOPICS)])
            for number in range(GROUPS):
                offsets = {TopicPartition(name_of(number), partition): 0 for partition in range(PARTITIONS)}
                admin.alter_group_offsets(f"readers-{number}", offsets)
        yield harness


@contextmanager
def load(address):
    """A producer and a group's consumer at work, both of which have begun."""
    ended, begun = threading.Event(), [threading.Event(), threading.Event()]

    def produce():
        with Producer(bootstrap_servers=address) as producer:
            while not ended.is_set():
                for number in range(TOPICS):
                    producer.send(name_of(number), b"x" * 100)
                producer.flush()
                begun[0].set()

    def consume():
        settings = {"bootstrap.servers": address, "group.id": "at-work", "auto.offset.reset": "earliest"}
        with Consumer(settings) as consumer:
            consumer.subscribe([name_of(number) for number in range(10)])
            while not ended.is_set():
                if consumer.poll(1):
                    begun[1].set()

    threads = [threading.Thread(target=each) for each in (produce, consume)]
    for each in threads:
        each.start()
    try:
        assert all(each.wait(60) for each in begun)
        yield
    finally:
        ended.set()
        for each in threads:
            each.join()


def page_of(broker):
    status, text = get(f"{broker.metrics_url}/metrics")
    assert status == 200
    return text


def test_a_page_of_ten_thousand_partitions_costs_little_under_load(broker, record_property):
    name = "sparklog_scrape_cpu_seconds_total"
    with load(broker.address):
        texts = [page_of(broker) for _ in range(SCRAPES + 1)]
    spent = [float(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith(f"{name} ")]
    costs = sorted(after - before for before, after in pairwise(spent))
    last = Page(texts[-1])
    assert len(last.of("kafka_log_log_size")) >= TOPICS * PARTITIONS
    assert len(last.of("kafka_consumergroup_lag")) >= GROUPS * PARTITIONS
    first = Page(texts[0])
    served = "kafka_network_requestmetrics_requests_total"
    assert sum(last.of(served).values()) > sum(first.of(served).values())
    record_property("cpu_seconds_of_a_page", median(costs))
    figures = f"least {costs[0] * 1000:.1f}, median {median(costs) * 1000:.1f}, most {costs[-1] * 1000:.1f} ms"
    print(f"a page of {len(texts[-1]):,} bytes costs the loop {figures} of processor time")  # noqa: T201 (a figure)
    assert costs[0] < CPU_S
