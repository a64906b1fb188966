"""Kafka's Java clients of the consumer protocol against our broker, and Kafka's decoder on our records."""

import json
import re
from uuid import UUID

import pytest
from compat.dumped import dump

from sparklog.group.classic.group import Protocol
from sparklog.group.consumer.assignment import TopicIdPartition
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import ClassicSide, ConsumerMember, MemberState
from sparklog.group.consumer.records import changes
from sparklog.group.consumer.topics import TopicDescription
from sparklog.group.offsets import build_batch
from sparklog.structs import uuid_to_text
from sparklog.testing.kafka import run_kafka_tool
from sparklog.testing.steps import finish

pytestmark = [pytest.mark.peer, pytest.mark.slow]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
NEW_PROTOCOL = ("--consumer-property", "group.protocol=consumer")
NOW_MS = 1_700_000_000_000
TOPIC = TopicDescription(UUID(int=1 << 100 | 7), "t", 3)


@pytest.fixture
def tool(bootstrap):
    """Run a tool against our broker: its standard output."""

    def run(main_class, *arguments, stdin=""):
        return run_kafka_tool(main_class, "--bootstrap-server", bootstrap, *arguments, stdin=stdin)

    return run


def test_the_console_consumer_reads_and_goes_on_where_it_stopped(tool, topic):
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "3")
    lines = [f"value {number}" for number in range(30)]

    def read(count):
        arguments = ("--topic", topic, "--group", topic, "--max-messages", str(count), *NEW_PROTOCOL)
        return tool(CONSOLE_CONSUMER, *arguments, "--consumer-property", "auto.offset.reset=earliest").splitlines()

    tool(CONSOLE_PRODUCER, "--topic", topic, stdin="".join(f"{each}\n" for each in lines))
    assert sorted(read(30)) == sorted(lines)
    tool(CONSOLE_PRODUCER, "--topic", topic, stdin="later\n")
    assert read(1) == ["later"], "its offsets were committed under its member epoch"
    assert topic in tool(GROUPS, "--list", "--type", "consumer").split()
    assert topic not in tool(GROUPS, "--list", "--type", "classic").split()
    state = tool(GROUPS, "--describe", "--group", topic, "--state")
    assert "Empty" in state
    assert "uniform" in state


def group_of(*members, epoch=5):
    group = ConsumerGroup("g", epoch=epoch, assignment_epoch=epoch, topics={"t": TOPIC})
    for member in members:
        group.put(member)
        group.target[member.member_id] = member.assigned
    return group


def tips(*numbers):
    return frozenset(TopicIdPartition(TOPIC.topic_id, number) for number in numbers)


def decoded(directory, records):
    """Key and value of each record, as Kafka shows them."""
    path = directory / "00000000000000000000.log"
    path.write_bytes(build_batch(records, NOW_MS))
    text, complaints = dump([path], "--offsets-decoder")
    assert complaints == []
    found = re.findall(r" key: (\{.*\}) payload: (.*)", text)
    return [(json.loads(key), None if value == "<DELETE>" else json.loads(value)) for key, value in found]


def test_dump_log_segments_decodes_a_consumer_group(tmp_path):
    new = ConsumerMember(
        "m", "i", "r", "c", "/h", frozenset({"t"}), "t.*", 60_000, "range", None, 5, 4,
        MemberState.UNREVOKED_PARTITIONS, tips(0, 2), tips(1),
    )  # fmt: skip
    classic = ClassicSide(9000, (Protocol("range", b"\0\1"), Protocol("sticky", b"")))
    old = ConsumerMember("o", client_id="c", client_host="/h", topics=frozenset({"t"}), classic=classic, epoch=5)
    found = decoded(tmp_path, finish(changes(None, group_of(new, old))))
    by_key = {(key["type"], key["data"].get("memberId")): value["data"] for key, value in found}
    topic_id = uuid_to_text(TOPIC.topic_id)
    assert {key["data"]["groupId"] for key, _ in found} == {"g"}
    assert by_key["3", None] == {"epoch": 5}
    (described,) = by_key["4", None]["topics"]
    assert (described["topicId"], described["topicName"], described["numPartitions"]) == (topic_id, "t", 3)
    told = by_key["5", "m"]
    assert (told["instanceId"], told["rackId"], told["clientId"], told["clientHost"]) == ("i", "r", "c", "/h")
    assert (told["subscribedTopicNames"], told["subscribedTopicRegex"]) == (["t"], "t.*")
    assert (told["rebalanceTimeoutMs"], told["serverAssignor"]) == (60_000, "range")
    assert "classicMemberMetadata" not in told
    side = by_key["5", "o"]["classicMemberMetadata"]
    assert (side["sessionTimeoutMs"], [each["name"] for each in side["supportedProtocols"]]) == (
        9000,
        ["range", "sticky"],
    )
    assert by_key["6", None] == {"assignmentEpoch": 5}
    assert by_key["7", "m"] == {"topicPartitions": [{"topicId": topic_id, "partitions": [0, 2]}]}
    current = by_key["8", "m"]
    assert (current["memberEpoch"], current["previousMemberEpoch"], current["state"]) == (5, 4, 1)
    assert current["assignedPartitions"] == [{"topicId": topic_id, "partitions": [0, 2]}]
    assert current["partitionsPendingRevocation"] == [{"topicId": topic_id, "partitions": [1]}]


def test_dump_log_segments_decodes_its_tombstones(tmp_path):
    found = decoded(tmp_path, finish(changes(group_of(ConsumerMember("m", assigned=tips(0))), None)))
    assert [(key["type"], value) for key, value in found] == [(each, None) for each in "876543"]
