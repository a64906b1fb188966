"""Kafka's DumpLogSegments decodes the records of groups and offsets, and the tombstones that take them back."""

import json
import re

import pytest
from compat.dumped import dump

from sparklog.group.classic.group import CommittedOffset, Group, GroupState, Member, Protocol
from sparklog.group.offsets import build_batch, build_tombstones, group_key, group_record, offset_key, offset_record
from sparklog.structs import TopicPartition

pytestmark = [pytest.mark.peer, pytest.mark.slow]

NOW_MS = 1_700_000_000_000
TP = TopicPartition("t", 7)
TO_T = bytes.fromhex("0000 00000001 0001 74 ffffffff")
T_7 = bytes.fromhex("0000 00000001 0001 74 00000001 00000007 ffffffff")
OF_GROUP = {"type": "2", "data": {"group": "g"}}
OF_OFFSET = {"type": "1", "data": {"group": "g", "topic": "t", "partition": 7}}


def decoded(directory, batch):
    """Key and value of each record, as Kafka shows them."""
    path = directory / "00000000000000000000.log"
    path.write_bytes(batch)
    text, complaints = dump([path], "--offsets-decoder")
    assert complaints == []
    found = re.findall(r" key: (\{.*\}) payload: (.*)", text)
    return [(json.loads(key), None if value == "<DELETE>" else json.loads(value)) for key, value in found]


def test_it_decodes_a_static_member_and_an_offset(tmp_path):
    group = Group("g", GroupState.STABLE, 3, "consumer", "range", state_timestamp_ms=NOW_MS)
    group.add(Member("i-1", "i", "c", "/h", 10_000, 60_000, (Protocol("range", TO_T),)))
    records = [group_record(group, {"i-1": T_7}), offset_record("g", TP, CommittedOffset(5, 2, "md", NOW_MS))]
    (group_found, metadata), offset_found = decoded(tmp_path, build_batch(records, NOW_MS))
    (member,) = metadata["data"].pop("members")
    assert group_found == OF_GROUP
    assert metadata["data"] == {
        "protocolType": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": "i-1",
        "currentStateTimestamp": NOW_MS,
    }
    assert (member["memberId"], member["groupInstanceId"]) == ("i-1", "i")
    assert (member["sessionTimeout"], member["rebalanceTimeout"]) == (10_000, 60_000)
    assert member["subscription"]["topics"] == ["t"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "t", "partitions": [7]}]
    committed = {"offset": 5, "leaderEpoch": 2, "metadata": "md", "commitTimestamp": NOW_MS}
    assert offset_found == (OF_OFFSET, {"version": "3", "data": committed})


def test_it_decodes_tombstones(tmp_path):
    (batch,) = build_tombstones([offset_key("g", TP), group_key("g")], NOW_MS)
    assert decoded(tmp_path, batch) == [(OF_OFFSET, None), (OF_GROUP, None)]
