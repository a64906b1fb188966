"""The web page on a real Kafka 3.9.1, and its numbers beside those of Kafka's own tools on our brokers."""

import pytest
from web.serving import Served

from sparklog.client import Admin, NewTopic, Producer
from sparklog.structs import TopicPartition
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka(zookeeper, tmp_path_factory):
    directory = tmp_path_factory.mktemp("kafka")
    with KafkaBroker(directory, f"{zookeeper.connect_string}/web-kafka") as broker:
        yield broker


def fill(settings, name):
    with Admin(settings) as admin, Producer(settings) as producer:
        admin.create_topics([NewTopic(name, 3, 1, {"cleanup.policy": "compact"})])
        for number in range(12):
            producer.send(name, f"value {number}", key=f"k{number}", partition=number % 3)
        producer.flush()
        admin.alter_group_offsets(f"of-{name}", {TopicPartition(name, number): number for number in range(3)})


def test_kafka_is_shown_like_our_own_brokers(kafka, topic):
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    fill(settings, topic)
    with Served(settings, allow_changes=True) as served:
        browser = served.browser()
        (broker,) = browser.rows("/api/cluster")["brokers"]
        assert (broker["protocol"], broker["error"]) == ("3.9", None)
        assert browser.rows(f"/api/topics?search={topic}")["rows"][0]["partitions"] == 3
        partitions = browser.rows(f"/api/topic/partitions?name={topic}")["rows"]
        assert [(each["first"], each["end"]) for each in partitions] == [(0, 4)] * 3
        told = {each["name"]: each["source"] for each in browser.rows(f"/api/topic/settings?name={topic}")}
        assert (told["cleanup.policy"], told["segment.bytes"]) == ("this topic", "default")
        assert len(browser.rows(f"/api/records?topic={topic}&from=oldest")["records"]) == 12
        assert browser.rows(f"/api/groups?search={topic}")["rows"][0]["lag"] == 9
        assert sum(each["replicas"] for each in browser.rows("/api/disks")) >= 3
        assert browser.rows("/api/transactions")["rows"] == []
        assert browser.rows("/api/quotas")["total"] == 0
        assert browser.get("/api/acls").json["error"]["code"] == "SECURITY_DISABLED"
        jobs = browser.rows("/api/jobs")
        assert jobs["cleaners"]["error"]
        assert jobs["moves"] == {"rows": [], "error": None}
        browser.token = browser.rows("/api/session")["token"]
        assert browser.post("/api/topic/delete", {"name": topic, "again": topic}).status == 200


def test_lag_is_what_kafka_s_tool_says(bootstrap, tool, topic):
    settings = {"bootstrap.servers": bootstrap}
    fill(settings, topic)
    told = tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group", f"of-{topic}")
    lines = [line.split() for line in told.splitlines() if topic in line.split()[1:2]]
    of_tool = sorted((int(each[2]), int(each[3]), int(each[4]), int(each[5])) for each in lines)
    with Served(settings) as served:
        rows = served.browser().rows(f"/api/group?id=of-{topic}")["rows"]
    assert [(each["partition"], each["committed"], each["end"], each["lag"]) for each in rows] == of_tool
    assert len(of_tool) == 3
