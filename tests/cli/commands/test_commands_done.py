"""Commands that change something say what they did as one line of JSON, where they are asked to."""

import json

import pytest
from integration.raw_producer import RawProducer

from sparklog.client import Admin
from sparklog.errors import ErrorCode
from sparklog.structs import BrokerId, TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def done(here):
    """Runs a command with ``--output json`` and gives the objects that it printed, one a line."""

    def call(*arguments, stdin=b""):
        result = here(*arguments, "--output", "json", stdin=stdin)
        assert (result.status, result.err) == (0, "")
        return [json.loads(line) for line in result.out.splitlines()]

    return call


def test_topics_and_settings(done, topic):
    settings = {"retention.ms": "3600000"}
    made = done("topic", "create", topic, "--partitions", 2, "--config", "retention.ms=3600000")
    assert made == [{"created": topic, "partitions": 2, "copies": 1, "settings": settings}]
    altered = done("topic", "alter", topic, "--delete-config", "retention.ms", "--partitions", 3)
    assert altered == [{"altered": topic, "settings": {"retention.ms": None}, "partitions": 3}]
    set_ = done("config", "alter", "--topic", topic, "--config", "retention.ms=3600000")
    assert set_ == [{"altered": f"topic {topic}", "settings": settings}]
    assert done("topic", "delete", topic, "--yes") == [{"deleted": topic}]


def test_records_and_groups(done, topic):
    done("topic", "create", topic)
    (produced,) = done("produce", topic, stdin=b"one\ntwo\n")
    assert produced.pop("seconds") >= 0
    assert produced == {"topic": topic, "records": 2, "bytes": 6}
    reset = done("group", "reset-offsets", topic, "--topic", topic, "--to", "1", "--yes")
    assert reset == [{"group": topic, "offsets": [{"topic": topic, "partition": 0, "before": None, "after": 1}]}]
    assert done("group", "delete", topic, "--yes") == [{"deleted": topic}]


def test_replicas(done, topic, bootstrap):
    done("topic", "create", topic)
    with Admin(bootstrap_servers=bootstrap) as admin:
        path = str(admin.log_dirs()[BrokerId(0)][0].path)
    moved = done("log", "move", topic, "--broker", 0, "--to", path)
    replicas = [{"topic": topic, "partition": 0}]
    assert moved == [{"moved": True, "broker": 0, "directory": path, "replicas": replicas}]
    assert done("cluster", "reassign", "--topic", topic, "--brokers", "0") == [{"moved": []}]
    assert done("cluster", "reassign", "--cancel", "--topic", topic) == [{"given_up": []}]
    assert done("cluster", "reassign", "--list") == [[]]


@pytest.mark.parametrize(("command", "outcome"), [("commit", "committed"), ("abort", "aborted")])
def test_transactions(done, topic, bootstrap, command, outcome):
    done("topic", "create", topic)
    producer = RawProducer(bootstrap, topic)
    assert producer.init(two_phase=True) is ErrorCode.NONE
    assert producer.write(TopicPartition(topic, 0), b"value") is ErrorCode.NONE
    ended = {"transactional_id": topic, "producer_id": producer.me.producer_id, "outcome": outcome}
    assert done("txn", command, topic, "--yes") == [{**ended, "partitions": [{"topic": topic, "partition": 0}]}]


def test_writes(done, topic):
    scope = f"{topic}@{topic}"
    declared = done("writes", "declare", scope, "--last-batch", 7, "--yes", "--force")
    assert declared == [{"scope": scope, "last_batch": 7}]
    assert done("writes", "finish", scope, "--yes") == []  # nothing is open


def test_users_and_quotas(done, topic, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    mechanism = "SCRAM-SHA-512"
    added = done("user", "add", topic, "--mechanism", mechanism, "--password-file", secret)
    assert added == [{"user": topic, "added": [mechanism]}]
    assert done("user", "set-password", topic, "--password-file", secret) == [{"user": topic, "changed": [mechanism]}]
    assert done("user", "delete", topic, "--yes") == [{"user": topic, "deleted": [mechanism]}]
    whose, rate = {"entity": {"user": topic}}, "producer_byte_rate"
    assert done("quota", "set", "--user", topic, f"{rate}=1024") == [{**whose, "set": {rate: 1024}}]
    assert done("quota", "remove", "--user", topic, rate) == [{**whose, "removed": [rate]}]


def test_lists_of_rights(done, chroot):
    where = ("--zookeeper", chroot, "--allow-principal", "User:alice", "--operation", "Read", "--topic", "clicks")
    entry = {"type": "TOPIC", "name": "clicks", "pattern": "LITERAL", "principal": "User:alice", "host": "*"}
    entry |= {"operation": "READ", "permission": "ALLOW"}
    assert done("acl", "add", *where) == [{"added": entry}]
    assert done("acl", "remove", *where, "--yes") == [{"removed": entry}]
