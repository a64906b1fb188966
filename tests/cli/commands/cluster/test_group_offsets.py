"""``sparklog group reset-offsets`` and ``delete-offsets`` on a real cluster."""

import json
from contextlib import closing

import pytest
from confluent_kafka import Consumer

from sparklog.client import Admin, Producer
from sparklog.clock import SystemClock
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
HOUR_MS = 3_600_000


def committed(here, name):
    """Of each partition, in their order."""
    return [each["committed"] for each in json.loads(here("group", "describe", name, "-o", "json").out)["offsets"]]


@pytest.mark.parametrize(
    ("to", "expected"), [("earliest", [0, 0]), ("latest", [10, 10]), ("7", [7, 7]), ("2013-07-04", [0, 0])]
)
def test_offsets_are_reset_for_all_that_the_group_has_read(here, read, to, expected):
    result = here("group", "reset-offsets", read, "--to", to, "--yes")
    assert result.status == 0
    rows = [line.split("\t") for line in result.out.splitlines()]
    assert rows == [
        ["topic", "partition", "before", "after"],
        [read, "0", "4", str(expected[0])],
        [read, "1", "10", str(expected[1])],
    ]
    assert committed(here, read) == expected


@pytest.mark.parametrize(("to", "told"), [(99, "ends at offset 10"), (3, "begins at offset 5")])
def test_an_offset_that_a_partition_does_not_have_is_told(here, read, bootstrap, to, told):
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({TopicPartition(read, 1): 5})
    result = here("group", "reset-offsets", read, "-t", read, "-p", 1, "--to", to, "--yes")
    assert result.status == 0
    assert result.err.splitlines()[0] == f"{read}-1 {told}: it has no {to}"


@pytest.mark.parametrize(("by", "expected", "told"), [(2, [6, 10], [12]), (-3, [1, 7], []), (-5, [0, 5], [-1])])
def test_offsets_are_shifted_within_what_the_partitions_have(here, read, by, expected, told):
    result = here("group", "reset-offsets", read, "--shift-by", by, "--yes")
    assert result.status == 0
    assert committed(here, read) == expected
    assert [f"it has no {each}" in result.err for each in told] == [True] * len(told)
    assert result.err.count("it has no") == len(told)


@pytest.mark.parametrize(("ago", "expected"), [("3h", 0), ("90m", 1), ("30s", 2)])
def test_a_group_reads_on_at_the_first_record_that_is_no_older(here, topic, bootstrap, ago, expected):
    here("topic", "create", topic)
    now_ms = SystemClock().now_ms()
    with Producer(bootstrap_servers=bootstrap) as producer:
        for hours in (2, 1):
            producer.send(topic, "v", timestamp=now_ms - hours * HOUR_MS)
    assert here("group", "reset-offsets", topic, "-t", topic, "--by-duration", ago, "--yes").status == 0
    assert committed(here, topic) == [expected]


def test_a_dry_run_shows_what_would_be_set_and_sets_nothing(here, read):
    words = ("group", "reset-offsets", read, "--to", "earliest", "--dry-run")
    shown = here(*words)
    assert (shown.status, shown.err) == (0, "nothing was set: this is a dry run\n")
    assert shown.out.splitlines()[1].split("\t") == [read, "0", "4", "0"]
    assert json.loads(here(*words, "-o", "json").out)["offsets"] == [
        {"topic": read, "partition": 0, "before": 4, "after": 0},
        {"topic": read, "partition": 1, "before": 10, "after": 0},
    ]
    assert committed(here, read) == [4, 10]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "say where the group is to read on: --to, --shift-by or --by-duration"),
        (("--to", "earliest", "--shift-by", 1), "say where the group is to read on"),
        (("--by-duration", "PT1H"), "'PT1H' is no time: write 30s, 10m, 2h or 1d"),
        (("--shift-by", "1.5"), "'1.5' is not a valid integer"),
        (("--to", 0, "--partition", 1), "--partition needs the one --topic that it is of"),
    ],
)
def test_where_a_group_reads_on_is_said_once(run, given, said):
    done = run("group", "reset-offsets", "readers", *given, "--bootstrap", "localhost:1")
    assert (done.status, done.out) == (2, "")
    assert said in done.err


def test_only_what_was_committed_is_shifted(here, read):
    new = f"{read}-new"
    refused = here("group", "reset-offsets", new, "-t", read, "--shift-by", 1, "--yes")
    assert (refused.status, refused.out) == (2, "")
    assert f"group {new} has committed nothing of {read}-0, {read}-1: give --to" in refused.err


def test_what_is_not_there_is_named_before_anything_changes(here, read):
    unknown = here("group", "reset-offsets", read, "-t", read, "-p", 5, "--to", 0, "--yes")
    assert (unknown.status, unknown.out) == (2, "")
    assert f"topic '{read}' has no partition 5" in unknown.err
    nothing = here("group", "reset-offsets", f"{read}-new", "--to", 0, "--yes")
    assert nothing.status == 2
    assert "has committed nothing: say which --topic" in nothing.err


def test_offsets_of_a_topic_are_deleted_and_others_stay(here, read, make):
    other = make(suffix="-other")
    assert here("group", "reset-offsets", read, "-t", other, "--to", 0, "--yes").status == 0
    one = here("group", "delete-offsets", read, "-t", read, "-p", 1, "--yes")
    assert one.status == 0
    assert [line.split("\t") for line in one.out.splitlines()] == [
        ["topic", "partition", "committed"],
        [read, "1", "10"],
    ]
    done = here("group", "delete-offsets", read, "-t", read, "--yes", "-o", "json")
    assert json.loads(done.out) == {"group": read, "deleted": [{"topic": read, "partition": 0, "committed": 4}]}
    left = json.loads(here("group", "describe", read, "-o", "json").out)["offsets"]
    assert {each["topic"] for each in left} == {other}


def test_offsets_that_a_group_does_not_have_are_named(here, read):
    done = here("group", "delete-offsets", read, "-t", read, "-p", 0, "-p", 7, "--yes")
    assert (done.status, done.out) == (2, "")
    assert f"group {read} has committed nothing of partition 7 of {read}" in done.err
    done = here("group", "delete-offsets", f"{read}-new", "-t", read, "--yes")
    assert f"group {read}-new has committed nothing of topic {read}" in done.err
    assert committed(here, read) == [4, 10]


def test_members_that_read_a_topic_keep_its_offsets(here, read, bootstrap):
    settings = {"bootstrap.servers": bootstrap, "group.id": read, "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([read])
        eventually(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2, 60)
        refused = here("group", "delete-offsets", read, "-t", read, "--yes")
    assert refused.status == 1
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in refused.err
    assert "stop the members that read it first" in refused.err
    assert committed(here, read) == [4, 10]
