"""A group's commits, as many as there may be in a broker's life: ``__consumer_offsets`` stays small, and a broker that
starts again knows the last of each.
"""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetCommitRequest, OffsetFetchRequest, decode_response, encode
from sparklog.structs import OFFSETS_TOPIC, TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

GROUPS = ["g0", "g1", "g2"]
PARTITIONS = 100
TOPIC = "t"
UNDER_WAY = 8
"""Requests that wait for their answers."""
RECORD_BYTES = 130
"""An offset in the log, with its key and its share of a batch's header, or less."""
BATCH_BYTES = PARTITIONS * RECORD_BYTES
MAX_LOAD_CPU_S = 10.0
COMMIT_VERSION, FETCH_VERSION = 7, 8


def commit(group, round_number):
    """One request that commits an offset of every partition; which one tells the round."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        topic.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset_of(round_number, number), committed_metadata=""
        )
        for number in range(PARTITIONS)
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[topic(name=TOPIC, partitions=partitions)],
    )


def offset_of(round_number, partition):
    return round_number * PARTITIONS + partition


def commit_all(connection, rounds):
    """So many rounds, in each a request a group, as fast as the broker takes them; how many offsets were committed."""
    requests = ((group, number) for number in range(rounds) for group in GROUPS)
    waiting, committed = deque(), 0
    for group, number in requests:
        connection.send(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, [encode(commit(group, number), COMMIT_VERSION)])
        waiting.append(group)
        if len(waiting) == UNDER_WAY:
            committed += _answered(connection, waiting)
    while waiting:
        committed += _answered(connection, waiting)
    return committed


def _answered(connection, waiting):
    waiting.popleft()
    _, version, body = connection.receive()
    answer: Any = decode_response(ApiKey.OFFSET_COMMIT, version, body)
    answers = [each for topic in answer.topics for each in topic.partitions]
    assert {each.error_code for each in answers} == {ErrorCode.NONE}
    return len(answers)


def committed_of(connection, group):
    """Partition → offset; None while the broker does not know them yet."""
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None, member_epoch=-1)
    request = OffsetFetchRequest(groups=[asked], require_stable=True)
    (found,) = wire.ask(connection, ApiKey.OFFSET_FETCH, FETCH_VERSION, request).groups
    if found.error_code:
        return None
    return {each.partition_index: each.committed_offset for topic in found.topics for each in topic.partitions}


def size_of_log(home):
    """Bytes of the batches of ``__consumer_offsets``, of which there is one partition."""
    total = 0
    for path in Path(home, str(TopicPartition(OFFSETS_TOPIC, 0))).glob("*.log"):
        with suppress(FileNotFoundError):  # replaced in between
            total += path.stat().st_size
    return total


def cpu_s(pid):
    """What the process has worked, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check(tmp_path, chroot, rounds, segment_bytes):
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": segment_bytes,
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.dedupe.buffer.size": 1 << 22,
    }
    most = bound(segment_bytes)
    with BrokerHarness(tmp_path, chroot, settings=settings) as broker:
        home = broker.spec.data_dir
        with wire.connect(broker.address) as connection:
            assert wire.create_topic(connection, TOPIC, PARTITIONS)[0] is ErrorCode.NONE
            for group in GROUPS:
                eventually(lambda group=group: wire.find_coordinator(connection, group) >= 0, 60, "the coordinator")
                eventually(lambda group=group: committed_of(connection, group) is not None, 60, "the group")
            committed = commit_all(connection, rounds)
        assert committed == rounds * len(GROUPS) * PARTITIONS > 5 * most / RECORD_BYTES
        eventually(lambda: size_of_log(home) <= most, 60, f"at most {most} bytes of {committed} commits")
        broker.stop()
        broker.start()
        begun = cpu_s(broker.pid)
        last = {number: offset_of(rounds - 1, number) for number in range(PARTITIONS)}
        with wire.connect(broker.address) as connection:
            for group in GROUPS:
                eventually(lambda group=group: committed_of(connection, group) is not None, 60, "the group")
                assert committed_of(connection, group) == last
        assert cpu_s(broker.pid) - begun < MAX_LOAD_CPU_S
        assert size_of_log(home) <= most


def bound(segment_bytes):
    """What may be left: each key once in the clean section, as much again that is dirty and not worth a cleaning, the
    active segment, and one that a batch more has made it roll.
    """
    live = len(GROUPS) * BATCH_BYTES
    return 2 * live + 2 * segment_bytes + BATCH_BYTES


@pytest.mark.timeout(120)
def test_fifteen_thousand_commits_leave_a_small_log(tmp_path, chroot):
    """150 requests."""
    check(tmp_path, chroot, rounds=50, segment_bytes=30_000)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_commits_leave_a_small_log(tmp_path, chroot):
    """10,002 requests."""
    check(tmp_path, chroot, rounds=3334, segment_bytes=1_000_000)
