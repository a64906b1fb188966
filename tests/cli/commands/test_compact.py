"""``sparklog compact`` on a real cluster."""

import json

import pytest

from sparklog.client import Producer
from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

KEYS, TIMES = 10, 20


@pytest.fixture
def users(bootstrap, topic):
    """A compacted topic of two partitions; in 0 each of ten keys was written twenty times, 1 is empty."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        # Nothing is due by itself: what is cleaned was asked for.
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
        admin.create_topics([NewTopic(topic, 2, 1, settings)])
    write(bootstrap, topic)
    return topic


def write(bootstrap, topic):
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(KEYS * TIMES):
            producer.send(topic, b"v%d" % number, key=b"k%d" % (number % KEYS), partition=0)


def rows(text):
    lines = [line.split("\t") for line in text.splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def status(here, *topics):
    done = here("compact", "status", *topics, "--output", "json")
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_a_topic_is_cleaned_when_it_is_asked_for(here, users):
    before = status(here, users)["replicas"]
    assert [(each["partition"], each["broker"]) for each in before] == [(0, 0), (1, 0)]
    assert [each["last_run"] for each in before] == [None, None]

    done = here("compact", "run", users)
    assert (done.status, done.err) == (0, "")
    full, empty = rows(done.out)
    assert (full["topic"], full["partition"], full["broker"], full["result"]) == (users, "0", "0", "cleaned")
    assert int(full["records before"]) == KEYS * TIMES
    assert KEYS <= int(full["records after"]) < KEYS * TIMES
    assert int(full["bytes after"]) < int(full["bytes before"])
    assert float(full["reduction %"]) > 0
    assert float(full["seconds"]) >= 0
    assert (empty["partition"], empty["bytes before"], empty["records after"]) == ("1", "-", "-")
    assert empty["result"].startswith("nothing is to be cleaned")

    after = status(here, users)["replicas"][0]
    assert (after["clean_up_to"], after["dirty_percent"], after["cleanable_bytes"]) == (KEYS * TIMES, 0, 0)
    assert after["last_run"]["messages_after"] == int(full["records after"])
    table = here("compact", "status", users)
    assert [line.split("\t")[0] for line in table.out.splitlines()] == ["broker", "0", "topic", users, users]
    read = here("consume", users, "--keys")
    assert sorted({line.split("\t")[0] for line in read.out.splitlines()}) == sorted(f"k{n}" for n in range(KEYS))


def test_a_second_run_has_nothing_to_do_until_something_is_written(here, users, bootstrap):
    assert here("compact", "run", users, "--partition", "0").status == 0
    (again,) = rows(here("compact", "run", users, "--partition", "0").out)
    assert again["result"].startswith("nothing is to be cleaned")
    write(bootstrap, users)
    (third,) = json.loads(here("compact", "run", users, "--partition", "0", "--output", "json").out)
    assert third["result"] == "cleaned"
    assert third["records_before"] > KEYS * TIMES
    assert third["reduction_percent"] > 0


def test_all_topics_are_cleaned(here, users):
    done = here("compact", "run", "--all", "--output", "json")
    assert done.status == 0, done.err
    results = {(each["topic"], each["partition"]): each["result"] for each in json.loads(done.out)}
    assert results[users, 0] == "cleaned"
    assert status(here)["brokers"][0]["threads"] == 1


def test_a_topic_that_is_not_compacted_is_not_cleaned(here, topic):
    here("topic", "create", topic)
    done = here("compact", "run", topic)
    assert done.status == 1
    assert rows(done.out)[0]["result"] == f"not cleaned: {topic}-0: its cleanup.policy is delete"
    assert done.err == f"sparklog: 1 replica not cleaned: {topic}-0: its cleanup.policy is delete\n"
    told = here("compact", "status", topic)
    assert told.status == 1
    assert "--config cleanup.policy=compact" in told.err
    here("topic", "alter", topic, "--config", "cleanup.policy=compact")
    eventually(lambda: here("compact", "status", topic).status == 0)


@pytest.mark.parametrize("command", [["run"], ["status"]])
def test_a_topic_that_there_is_not_is_named(here, command):
    done = here("compact", *command, "no-such-topic")
    assert (done.status, done.out) == (1, "")
    assert "no-such-topic" in done.err


def test_a_partition_that_there_is_not_is_named(here, users):
    done = here("compact", "run", users, "--partition", "7")
    assert (done.status, done.out) == (1, "")
    assert f"topic '{users}' has no partition 7" in done.err


def test_the_admin_client_takes_topics_and_partitions(bootstrap, users):
    with Admin(bootstrap_servers=bootstrap) as admin:
        outcomes = admin.compact([users, TopicPartition(users, 0)])
        assert [(each.tp, each.broker) for each in outcomes] == [(TopicPartition(users, n), 0) for n in (0, 1)]
        full, empty = outcomes.values()
        assert (full.error, full.note, full.run.messages_before) == (None, None, KEYS * TIMES)
        assert (empty.error, empty.run) == (None, None)
        found = admin.describe_compaction([users])
        state = next(iter(found.replicas.values()))
        assert (state.last_run, state.error, state.uncleanable, state.dirty_ratio) == (full.run, None, None, 0)
        assert found.brokers[0].is_enabled
