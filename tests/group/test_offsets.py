"""The records of ``__consumer_offsets``, byte for byte as Kafka's schemas have them, worked out by hand."""

from __future__ import annotations

import pytest

from sparklog.errors import CorruptRecord
from sparklog.group.classic.group import CommittedOffset, Group, GroupState, Member, Protocol
from sparklog.group.offsets import (
    GroupKey,
    OffsetKey,
    build_batch,
    build_tombstones,
    group_key,
    group_record,
    offset_key,
    offset_record,
    partition_for,
    read_group,
    read_key,
    read_offset,
)
from sparklog.record.control import ProducerIdAndEpoch
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition

OFFSET_KEY = bytes.fromhex("0001 0002 6731 0003 6c6f67 00000007")
OFFSET_VALUE_V3 = bytes.fromhex("0003 0000000000000141 00000005 0002 6d64 0000018bcfe56800")
GROUP_KEY = bytes.fromhex("0002 0002 6731")
MEMBER_TAIL = bytes.fromhex("0001 63 0002 2f68 0000ea60 00002710 00000003 737562 00000002 6173")
GROUP_VALUE_V3 = (
    bytes.fromhex("0003 0008 636f6e73756d6572 00000009 0005 72616e6765 0002 6d31 0000018bcfe56800 00000002")
    + (bytes.fromhex("0002 6d31 0001 69") + MEMBER_TAIL)
    + (bytes.fromhex("0002 6d32 ffff") + MEMBER_TAIL)
)
EMPTY_GROUP_VALUE_V3 = bytes.fromhex("0003 0008 636f6e73756d6572 0000000a ffff ffff 0000018bcfe56800 00000000")
NOW_MS = 1_700_000_000_000
TP = TopicPartition("log", 7)


def a_member(member_id: str, instance_id: str | None) -> Member:
    return Member(
        member_id,
        instance_id,
        "c",
        "/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocols=(Protocol("sticky", b"?"), Protocol("range", b"sub")),
    )


def a_group() -> Group:
    group = Group("g1", GroupState.STABLE, 9, "consumer", "range", state_timestamp_ms=NOW_MS)
    group.add(a_member("m1", "i"))
    group.add(a_member("m2", None))
    return group


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    committed = CommittedOffset(321, 5, "md", NOW_MS)
    assert offset_record("g1", TP, committed) == (OFFSET_KEY, OFFSET_VALUE_V3)
    assert read_key(OFFSET_KEY) == OffsetKey("g1", TP)
    assert read_offset(OFFSET_VALUE_V3) == committed


def test_an_offset_that_says_when_it_expires_is_of_version_1() -> None:
    committed = CommittedOffset(321, 5, "md", NOW_MS, expire_timestamp_ms=NOW_MS + 1)
    _, value = offset_record("g1", TP, committed)
    assert value == bytes.fromhex("0001 0000000000000141 0002 6d64 0000018bcfe56800 0000018bcfe56801")
    assert read_offset(value) == committed._replace(leader_epoch=-1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 0000000000000141 0002 6d64 0000018bcfe56800", CommittedOffset(321, -1, "md", NOW_MS)),
        ("0002 0000000000000141 0000 0000018bcfe56800", CommittedOffset(321, -1, "", NOW_MS)),
        ("0004 0000000000000141 00000005 03 6d64 0000018bcfe56800 00", CommittedOffset(321, 5, "md", NOW_MS)),
    ],
)
def test_offsets_of_other_versions_are_read(value: str, expected: CommittedOffset) -> None:
    assert read_offset(bytes.fromhex(value)) == expected


def test_a_group_is_written_as_kafka_writes_it() -> None:
    assert group_record(a_group(), {"m1": b"as", "m2": b"as"}) == (GROUP_KEY, GROUP_VALUE_V3)
    assert read_key(GROUP_KEY) == GroupKey("g1")


def test_an_empty_group_is_written_as_kafka_writes_it() -> None:
    group = Group("g1", generation=10, protocol_type="consumer", state_timestamp_ms=NOW_MS)
    group.subscribed = frozenset()
    assert group_record(group, {}) == (GROUP_KEY, EMPTY_GROUP_VALUE_V3)
    assert read_group("g1", EMPTY_GROUP_VALUE_V3) == group


def test_a_group_is_read_as_the_last_generation_left_it() -> None:
    group = read_group("g1", GROUP_VALUE_V3)
    assert (group.state, group.generation, group.protocol_type, group.protocol) == (
        GroupState.STABLE,
        9,
        "consumer",
        "range",
    )
    assert (group.leader, group.instances, group.state_timestamp_ms) == ("m1", {"i": "m1"}, NOW_MS)
    first, second = group.members.values()
    assert first == Member("m1", "i", "c", "/h", 10_000, 60_000, (Protocol("range", b"sub"),), b"as")
    assert second.instance_id is None
    assert group.supports("consumer", (Protocol("range", b""),))


@pytest.mark.parametrize("leader", ["m1", "m2"])
def test_the_leader_is_whom_the_record_names(leader: str) -> None:
    group = a_group()
    group.leader = leader
    assert read_group("g1", group_record(group, {})[1]).leader == leader


def test_a_group_of_no_protocol_is_read_as_it_was_written() -> None:
    group = Group("g1", generation=1, state_timestamp_ms=NOW_MS)
    found = read_group("g1", group_record(group, {})[1])
    assert (found.protocol_type, found.protocol, found.state) == (None, None, GroupState.EMPTY)


def test_a_member_without_an_assignment_has_an_empty_one() -> None:
    found = read_group("g1", group_record(a_group(), {"m2": b"as"})[1])
    assert [each.assignment for each in found.members.values()] == [b"", b"as"]


def test_a_transactions_offsets_bear_its_producer() -> None:
    (batch,) = iter_batches(build_batch([(OFFSET_KEY, OFFSET_VALUE_V3)], NOW_MS, ProducerIdAndEpoch(7, 3)))
    assert (batch.producer_id, batch.producer_epoch, batch.is_transactional) == (7, 3, True)


GROUP_HEAD = "0008 636f6e73756d6572 00000009 0005 72616e6765 0002 6d31"


@pytest.mark.parametrize(
    ("value", "rebalance_timeout_ms", "timestamp_ms"),
    [
        (f"0000 {GROUP_HEAD} 00000001 0002 6d31 0001 63 0002 2f68 00002710 00000000 00000000", 10_000, -1),
        (f"0001 {GROUP_HEAD} 00000001 0002 6d31 0001 63 0002 2f68 0000ea60 00002710 00000000 00000000", 60_000, -1),
        (
            f"0002 {GROUP_HEAD} 0000018bcfe56800 00000001"
            " 0002 6d31 0001 63 0002 2f68 0000ea60 00002710 00000000 00000000",
            60_000,
            NOW_MS,
        ),
        (
            "0004 09 636f6e73756d6572 00000009 06 72616e6765 03 6d31 0000018bcfe56800"
            " 02 03 6d31 00 02 63 03 2f68 0000ea60 00002710 01 01 00 00",
            60_000,
            NOW_MS,
        ),
    ],
)
def test_groups_of_other_versions_are_read(value: str, rebalance_timeout_ms: int, timestamp_ms: int) -> None:
    group = read_group("g1", bytes.fromhex(value))
    assert group.members["m1"] == Member(
        "m1", None, "c", "/h", 10_000, rebalance_timeout_ms, (Protocol("range", b""),), b""
    )
    assert group.state_timestamp_ms == timestamp_ms


def test_a_leader_that_is_no_member_is_not_believed() -> None:
    value = GROUP_VALUE_V3.replace(b"\x00\x02m1", b"\x00\x02mX", 1)
    assert read_group("g1", value).leader == "m1"


def test_keys_of_newer_protocols_are_passed_over() -> None:
    assert read_key(bytes.fromhex("0003 0002 6731")) is None
    assert read_key(bytes.fromhex("0000 0002 6731 0003 6c6f67 00000007")) == OffsetKey("g1", TP)


@pytest.mark.parametrize("cut", range(len(OFFSET_VALUE_V3)))
def test_a_cut_off_offset_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptRecord):
        read_offset(OFFSET_VALUE_V3[:cut])


@pytest.mark.parametrize("cut", range(len(GROUP_VALUE_V3)))
def test_a_cut_off_group_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptRecord):
        read_group("g1", GROUP_VALUE_V3[:cut])


@pytest.mark.parametrize("cut", range(len(OFFSET_KEY)))
def test_a_cut_off_key_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptRecord):
        read_key(OFFSET_KEY[:cut])


@pytest.mark.parametrize("version", [b"\xff\xff", b"\x00\x05"])
def test_a_value_of_an_unknown_version_is_corrupt(version: bytes) -> None:
    with pytest.raises(CorruptRecord, match="version"):
        read_offset(version + OFFSET_VALUE_V3[2:])
    with pytest.raises(CorruptRecord, match="version"):
        read_group("g1", version + GROUP_VALUE_V3[2:])


def test_tombstones_carry_kafkas_keys() -> None:
    (batch,) = build_tombstones([offset_key("g1", TP), group_key("g1")], NOW_MS)
    (read,) = iter_batches(memoryview(batch))
    assert [(each.key, each.value) for each in iter_records(read)] == [(OFFSET_KEY, None), (GROUP_KEY, None)]
    assert build_tombstones([], NOW_MS) == []


def test_very_many_tombstones_need_no_batch_that_a_log_would_refuse() -> None:
    keys = [group_key(f"{number:030000}") for number in range(100)]
    batches = build_tombstones(keys, NOW_MS)
    assert max(map(len, batches)) < 300_000
    assert [
        each.key for batch in batches for read in iter_batches(memoryview(batch)) for each in iter_records(read)
    ] == keys


def test_a_batch_holds_records_and_tombstones() -> None:
    (batch,) = iter_batches(build_batch([(OFFSET_KEY, OFFSET_VALUE_V3), (GROUP_KEY, None)], NOW_MS))
    batch.validate()
    records = [(each.timestamp, each.key, each.value) for each in iter_records(batch)]
    assert records == [(NOW_MS, OFFSET_KEY, OFFSET_VALUE_V3), (NOW_MS, GROUP_KEY, None)]


@pytest.mark.parametrize(
    ("group_id", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("consumer-group", -1_738_392_088),
        ("\u00e9\U0001f600", 1_996_812),
    ],
)
def test_the_partition_follows_javas_string_hash(group_id: str, hash_code: int) -> None:
    for count in (1, 50, 1009):
        expected = 0 if hash_code == -(2**31) else abs(hash_code) % count
        assert partition_for(group_id, count) == expected
