"""``sparklog group`` on a real cluster."""

import json
from contextlib import closing

import pytest
from confluent_kafka import Consumer

from sparklog.client import Producer
from sparklog.group.classic.group import GroupState
from sparklog.group.consumer.group import ConsumerGroupState
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration


def described(here, name):
    return json.loads(here("group", "describe", name, "--output", "json").out)


def test_a_group_without_members(here, read):
    listed = {each["group"]: each for each in json.loads(here("group", "list", "-o", "json").out)}
    assert listed[read]["state"] == "Empty"
    found = described(here, read)
    assert (found["group"], found["state"], found["members"]) == (read, "Empty", [])
    sizes = [each.pop("lag_bytes") for each in found["offsets"]]
    assert found["offsets"] == [
        {"topic": read, "partition": 0, "committed": 4, "end_offset": 10, "lag": 6, "client": None},
        {"topic": read, "partition": 1, "committed": 10, "end_offset": 10, "lag": 0, "client": None},
    ]
    assert sizes[0] > 0 == sizes[1]
    shown = here("group", "describe", read).out.splitlines()
    assert shown[0] == f"group {read}: Empty, 0 members, lag 6"
    assert shown[1].split("\t")[5] == "lag bytes"
    assert shown[2].split("\t") == [read, "0", "4", "10", "6", str(sizes[0]), "-"]


def test_a_groups_name_gives_no_orders_to_the_terminal_and_makes_no_lines(here, read):
    name = f"{read}\x1b]0;owned\x07\ngroup payments: Stable"
    written = here("group", "reset-offsets", name, "-t", read, "-p", 0, "--to", 4, "--yes")
    shown = here("group", "describe", name)
    deleted = here("group", "delete", name, "--yes")
    again = here("group", "delete", name, "--yes")
    assert [each.status for each in (written, shown, deleted, again)] == [0, 0, 0, 1]
    safe = f"{read}\\x1b]0;owned\\x07\\ngroup payments: Stable"
    assert shown.out.splitlines()[0] == f"group {safe}: Empty, 0 members, lag 6"
    assert deleted.out == f"deleted {safe}\n"
    for each in (written, shown, deleted, again):
        assert not {"\x1b", "\x07"} & {*each.out, *each.err}


def test_several_groups_are_described_each_as_if_alone(here, read):
    other = f"{read}-other"
    assert here("group", "reset-offsets", other, "-t", read, "-p", 1, "--to", 3, "--yes").status == 0
    both = json.loads(here("group", "describe", other, read, "-o", "json").out)
    assert both == [described(here, other), described(here, read)]
    every = json.loads(here("group", "describe", "--all", "-o", "json").out)
    assert [each for each in every if each["group"].startswith(read)] == [both[1], both[0]]
    shown = here("group", "describe", read, other).out
    assert shown == "\n".join(here("group", "describe", each).out for each in (read, other))


@pytest.mark.parametrize("named", [(), ("readers", "--all")])
def test_groups_are_named_or_all_are_meant(run, named):
    done = run("group", "describe", *named, "--bootstrap", "localhost:1")
    assert (done.status, "name the groups to describe, or --all" in done.err) == (2, True)


def test_one_of_several_that_there_is_not_is_named(here, read):
    done = here("group", "describe", read, f"{read}-nope")
    assert (done.status, done.out) == (1, "")
    assert f"there is no group '{read}-nope'" in done.err


def test_groups_are_listed_by_a_state_in_either_case(here, read):
    assert read in here("group", "list", "--state", "empty").out
    assert read not in here("group", "list", "--state", "STABLE").out


def test_a_state_that_there_is_none_of_is_refused(run):
    done = run("group", "list", "--state", "Foo", "--bootstrap", "localhost:1")
    assert (done.status, done.out) == (2, "")
    named = done.err.partition("there is no state 'Foo', only ")[2].strip().split(", ")
    assert sorted(named) == sorted({each.value for each in (*GroupState, *ConsumerGroupState)})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_shown_with_what_they_hold_and_keep_the_group(here, read, bootstrap, protocol):
    settings = {"bootstrap.servers": bootstrap, "group.id": read, "client.id": "reader", "group.protocol": protocol}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    with closing(consumer):
        consumer.subscribe([read])

        def is_assigned():
            consumer.poll(0.1)
            return len(consumer.assignment()) == 2

        eventually(is_assigned, 60)
        found = described(here, read)
        (member,) = found["members"]
        assert (member["client"], member["host"]) == ("reader", "127.0.0.1")
        assert member["partitions"] == [{"topic": read, "partition": 0}, {"topic": read, "partition": 1}]
        assert [(each["committed"], each["client"]) for each in found["offsets"]] == [(4, "reader"), (10, "reader")]
        refused = here("group", "reset-offsets", read, "--to", "earliest", "--yes")
        assert (refused.status, refused.out) == (1, "")
        assert f"group '{read}' has 1 member" in refused.err
        assert "stop its members first" in refused.err
        assert here("group", "delete", read, "--yes").status == 1


def test_a_group_is_deleted_and_an_unknown_one_is_named(here, read):
    assert here("group", "delete", read, "--yes") == (0, f"deleted {read}\n", "")
    result = here("group", "describe", read)
    assert (result.status, result.out, result.err.count("\n")) == (1, "", 1)
    assert f"there is no group '{read}'" in result.err
    assert 'see "sparklog group list"' in result.err


def test_a_group_that_cannot_be_deleted_stops_no_other_deletion(here, read):
    other = f"{read}-other"
    assert here("group", "reset-offsets", other, "-t", read, "--to", 0, "--yes").status == 0
    done = here("group", "delete", read, f"{read}-nope", other, "--yes")
    assert (done.status, done.out, done.err.count("\n")) == (1, f"deleted {read}\ndeleted {other}\n", 1)
    assert f"group '{read}-nope'" in done.err


def test_groups_of_sinks_are_hidden(here, bootstrap, topic):
    here("topic", "create", topic)
    name = f"spark-decisions.{topic}"
    with Producer({"bootstrap.servers": bootstrap, "transactional.id": name}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): (0, -1, "")}, name)
        producer.commit_transaction()
    assert here("group", "reset-offsets", name, "-t", topic, "--to", 0, "--yes").status == 1
    assert name not in here("group", "list").out
    assert name not in here("group", "describe", "--all").out
    assert name in here("group", "list", "--internal").out


def test_a_group_moves_to_zookeeper_and_back(here, read, cluster):
    words = ("group", "migrate", read, "--zookeeper", cluster.zookeeper_connect)
    expected = [{"topic": read, "partition": each, "before": None, "after": at} for each, at in ((0, 4), (1, 10))]
    dry = here(*words, "--to", "zookeeper", "--dry-run", "--output", "json")
    assert json.loads(dry.out) == expected
    assert "dry run" in dry.err
    assert json.loads(here(*words, "--to", "zookeeper", "--yes", "-o", "json").out) == expected
    assert here("group", "reset-offsets", read, "-t", read, "-p", 0, "--to", 6, "--yes").status == 0
    refused = here(*words, "--to", "brokers", "--yes")
    assert refused.status == 1
    assert "from 6 to 4" in refused.err
    assert here(*words, "--to", "brokers", "--back", "--yes").status == 0
    assert described(here, read)["offsets"][0]["committed"] == 4
