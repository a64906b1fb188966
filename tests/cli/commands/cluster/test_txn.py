"""``sparklog txn`` on a real cluster: what a person sees and ends."""

import json

import pytest
from integration.raw_producer import RawProducer
from integration.test_transactions import make_topic_at, read, settled
from integration.wire import batch_of

from sparklog.clock import SystemClock
from sparklog.config.topic import TopicConfig
from sparklog.errors import ErrorCode
from sparklog.log.log import Log
from sparklog.log.origin import AppendOrigin
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness

pytestmark = pytest.mark.integration


@pytest.fixture
def opened(here, bootstrap, topic):
    """A producer whose id is the topic's name, with a prepared transaction in it."""
    assert here("topic", "create", topic).status == 0
    producer = RawProducer(bootstrap, topic)
    assert producer.init(two_phase=True) is ErrorCode.NONE
    assert producer.write(TopicPartition(topic, 0), b"value") is ErrorCode.NONE
    return producer


@pytest.mark.parametrize(("command", "left"), [("commit", [b"value"]), ("abort", [])])
def test_an_open_transaction_is_seen_and_ended(here, bootstrap, topic, opened, command, left):
    listed = here("txn", "list", "--state", "Ongoing", "--match", topic)
    assert listed.status == 0
    rows = [line.split("\t") for line in listed.out.splitlines()]
    assert rows == [
        ["transactional id", "coordinator", "producer", "state"],
        [topic, "0", str(opened.me.producer_id), "Ongoing"],
    ]
    assert here("txn", "list", "--open-for", 3600, "--match", topic).out.count("\n") == 1
    described = here("txn", "describe", topic)
    assert f"{topic}: Ongoing, producer {opened.me.producer_id} epoch 0, timeout none" in described.out
    assert f"in {topic}-0" in described.out
    (listing,) = json.loads(here("txn", "list", "--match", topic, "--output", "json").out)
    assert listing == {
        "transactional_id": topic, "coordinator": 0, "producer_id": opened.me.producer_id, "state": "Ongoing",
    }  # fmt: skip
    document = json.loads(here("txn", "describe", topic, "--output", "json").out)
    assert (document["state"], document["partitions"]) == ("Ongoing", [{"topic": topic, "partition": 0}])
    rows = [line.split("\t") for line in here("txn", "producers", topic).out.splitlines()]
    assert rows[0] == ["partition", "producer", "epoch", "last sequence", "last written", "open since"]
    assert [(row[0], row[1], row[-1]) for row in rows[1:]] == [("0", str(opened.me.producer_id), "0")]
    (producer,) = json.loads(here("txn", "producers", topic, "--partition", 0, "--output", "json").out)
    assert (producer["producer_id"], producer["open_since"]) == (opened.me.producer_id, 0)
    ended = here("txn", command, topic, "--yes")
    assert (ended.status, ended.err) == (0, "")
    settled(bootstrap, topic)
    assert read(bootstrap, topic) == left
    assert opened.end(commit=True) is ErrorCode.PRODUCER_FENCED
    again = here("txn", command, topic, "--yes")
    assert (again.status, again.err.count("\n")) == (1, 1)
    assert "has no transaction open" in again.err


def test_a_partition_ends_behind_what_is_open_whatever_a_consumer_with_these_settings_reads(
    here, topic, opened, tmp_path
):
    file = tmp_path / "consumer.properties"
    file.write_text("isolation.level=read_committed\n")
    as_consumer = ("--output", "json", "--command-config", file)
    (described,) = json.loads(here("topic", "describe", topic, *as_consumer).out)["partitions"]
    assert (described["first_offset"], described["end_offset"]) == (0, 1)
    (trimmed,) = json.loads(here("topic", "trim", topic, "--before", "latest", "--dry-run", *as_consumer).out)[
        "partitions"
    ]
    assert trimmed["after"] == 1
    assert here("consume", topic, "--command-config", file).out == ""
    assert opened.end(commit=False) is ErrorCode.NONE


def test_what_hangs_is_found_and_aborted(run, tmp_path, chroot):
    """A batch that no coordinator knows of, as older brokers could take one; beside it a transaction that will end."""
    tp = TopicPartition("t", 0)
    with BrokerHarness(tmp_path, chroot) as broker:
        make_topic_at(broker, "t")
        broker.stop()
        hung = batch_of(b"hung", producer_id=9999, producer_epoch=3, base_sequence=0, is_transactional=True)
        log = Log(tmp_path / "broker-0" / "t-0", tp, TopicConfig(), SystemClock(), lambda work: work())
        log.append_as_leader(memoryview(hung), 0, AppendOrigin.COORDINATOR)
        log.close()
        broker.start()
        producer = RawProducer(broker.address, "known")
        producer.init()
        assert producer.write(tp, b"known") is ErrorCode.NONE
        here = ("--bootstrap", broker.address)
        assert run("txn", "find-hanging", "t", *here).out.count("\n") == 1  # it has not been silent for long
        found = run("txn", "find-hanging", "--silent-for", 0, *here)
        rows = [line.split("\t") for line in found.out.splitlines()]
        assert rows == [["topic", "partition", "start offset", "producer", "epoch"], ["t", "0", "0", "9999", "3"]]
        place = ("--topic", "t", "--partition", 0)
        assert run("txn", "abort", *place, "--yes", *here).status == 2
        nothing = run("txn", "abort", *place, "--start-offset", 77, "--yes", *here)
        assert (nothing.status, nothing.err.count("\n")) == (1, 1)
        aborted = run("txn", "abort", *place, "--start-offset", 0, "--yes", *here)
        assert (aborted.status, aborted.err) == (0, "")
        assert aborted.out == "aborted the transaction of producer 9999 at offset 0 of t-0\n"
        assert run("txn", "find-hanging", "--silent-for", 0, *here).out.count("\n") == 1
        assert producer.end(commit=True) is ErrorCode.NONE
        settled(broker.address, "known")
        assert read(broker.address, "t") == [b"known"]
