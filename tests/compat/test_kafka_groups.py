"""Consumer groups by Kafka's own Java clients and tools, of two releases, on our broker."""

import json
import threading

import pytest
from compat.kafka_tools import CONSOLE_CONSUMER, GROUPS, offsets, write

from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.peer, pytest.mark.slow]

VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"


@pytest.fixture
def group(topic):
    return f"group-of-{topic}"


@pytest.fixture
def filled(tool, made):
    """A topic of two partitions with 20 records."""
    write(tool, made, *(f"k{number}:{number}" for number in range(20)))
    return made


def read(tool, topic, group, count):
    asked = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000", "--group", group)
    return tool(CONSOLE_CONSUMER, "--topic", topic, *asked).splitlines()


def committed(tool, group):
    """The group's offset in each partition."""
    rows = (line.split() for line in tool(GROUPS, "--describe", "--group", group).splitlines())
    return {int(row[2]): int(row[3]) for row in rows if len(row) > 5 and row[0] == group and row[3] != "-"}


def test_a_group_goes_on_where_it_stopped(tool, filled, group):
    first = read(tool, filled, group, 20)
    assert sorted(map(int, first)) == list(range(20))
    write(tool, filled, "k:after")
    assert read(tool, filled, group, 1) == ["after"]


RESETS = {
    "earliest": (("--to-earliest",), lambda start, end: start),
    "latest": (("--to-latest",), lambda start, end: end),
    "an offset": (("--to-offset", "3"), lambda start, end: 3),
    "back": (("--shift-by", "-2"), lambda start, end: end - 2),
    "a time before all": (("--to-datetime", "2020-01-01T00:00:00.000"), lambda start, end: start),
    "an hour ago": (("--by-duration", "PT1H"), lambda start, end: start),
}


@pytest.mark.parametrize("how", RESETS)
def test_offsets_are_reset(tool, filled, group, how):
    arguments, expected = RESETS[how]
    read(tool, filled, group, 20)
    ends = offsets(tool, filled, "latest")
    assert committed(tool, group) == ends
    tool(GROUPS, "--reset-offsets", "--group", group, "--topic", filled, *arguments, "--execute")
    assert committed(tool, group) == {number: expected(0, end) for number, end in ends.items()}


def test_the_verifiable_consumer_reads_and_commits(tool, filled, group):
    wanted = ("--topic", filled, "--group-id", group, "--reset-policy", "earliest", "--max-messages", "20")
    events = [json.loads(line) for line in tool(VERIFIABLE_CONSUMER, *wanted).splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 20
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert sum(committed(tool, group).values()) == 20


def test_two_members_share_the_partitions(tool, made, group):
    """Each is assigned one; both end when they have read what is written meanwhile."""
    wanted = ("--topic", made, "--group-id", group, "--reset-policy", "earliest", "--max-messages", "10")
    said = {}
    members = [
        threading.Thread(target=lambda number=number: said.update({number: tool(VERIFIABLE_CONSUMER, *wanted)}))
        for number in range(2)
    ]
    for member in members:
        member.start()
    eventually(lambda: assigned(tool, group) == [1, 1], timeout=90)
    write_into_both(tool, made)
    for member in members:
        member.join(90)
    events = [[json.loads(line) for line in text.splitlines()] for text in said.values()]
    counts = [sum(event["count"] for event in each if event["name"] == "records_consumed") for each in events]
    assert min(counts) >= 10
    assert sum(counts) <= 60, "none is read twice"


def assigned(tool, group):
    """How many partitions each member has."""
    rows = (line.split() for line in tool(GROUPS, "--describe", "--group", group, "--members").splitlines())
    return [int(row[-1]) for row in rows if row and row[0] == group]


def write_into_both(tool, topic):
    """At least 10 records in each partition, whatever the keys hash to."""
    write(tool, topic, *(f"k{number}:{number}" for number in range(60)))
    assert min(offsets(tool, topic, "latest").values()) >= 10


def test_the_streams_reset_tool_rewinds_an_application(tool, filled, group):
    read(tool, filled, group, 20)
    tool("org.apache.kafka.tools.StreamsResetter", "--application-id", group, "--input-topics", filled)
    assert committed(tool, group) == {0: 0, 1: 0}


def test_records_go_there_and_back_one_by_one(java, bootstrap, made):
    said = java("org.apache.kafka.tools.EndToEndLatency", bootstrap, made, "20", "all", "100")
    assert "Percentiles" in said
