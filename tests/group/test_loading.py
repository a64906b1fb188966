from __future__ import annotations

import logging

import pytest

from sparklog.group.classic.group import CommittedOffset, Group, GroupState, Member, Protocol
from sparklog.group.loading import GroupLoader
from sparklog.group.offsets import build_batch, group_record, offset_record
from sparklog.record import _impl
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.usefixtures("codec")
NOW_MS = 1_700_000_000_000
TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@pytest.fixture(params=["python", "native"])
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_impl, "codec", _impl.load(request.param))


def commit(offset: int, group_id: str = "g", tp: TopicPartition = TP) -> tuple[bytes, bytes | None]:
    return offset_record(group_id, tp, CommittedOffset(offset, 0, "", NOW_MS))


def group_metadata(group_id: str = "g", generation: int = 1) -> tuple[bytes, bytes | None]:
    group = Group(group_id, GroupState.STABLE, generation, "consumer", "range", state_timestamp_ms=NOW_MS)
    group.add(Member("m", None, "c", "/h", 10_000, 10_000, (Protocol("range", b""),)))
    return group_record(group, {"m": b"share"})


def batch(*records: tuple[bytes, bytes | None]) -> bytes:
    return build_batch(records, NOW_MS)


def in_transaction(producer_id: int, *records: tuple[bytes, bytes | None]) -> bytes:
    builder = RecordBatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    for key, value in records:
        builder.append(NOW_MS, key, value)
    return builder.build()


def marker(producer_id: int, kind: ControlType) -> bytes:
    return build_marker(EndTransactionMarker(kind, 0), ProducerIdAndEpoch(producer_id, 0), NOW_MS)


def load(*batches: bytes) -> dict[str, Group]:
    """The batches stand in the log one after another; two that have the offset 0 do not."""
    loader = GroupLoader("__consumer_offsets-3")
    for each in in_order(*batches):
        loader.add(each)
    for _ in loader.parse():
        pass
    return loader.groups


def in_order(*batches: bytes) -> list[memoryview]:
    placed, next_offset = [], 0
    for each in batches:
        found = RecordBatch(bytearray(each))
        found.assign(next_offset, 0)
        next_offset = found.next_offset
        placed.append(found.buffer)
    return placed


def offsets(groups: dict[str, Group], group_id: str = "g") -> dict[TopicPartition, int]:
    return {tp: each.offset for tp, each in groups[group_id].offsets.items()}


def test_the_last_record_of_a_key_counts() -> None:
    groups = load(batch(commit(1), commit(2)), batch(commit(5, tp=OTHER), commit(3)), batch(commit(9, "other")))
    assert offsets(groups) == {TP: 3, OTHER: 5}
    assert offsets(groups, "other") == {TP: 9}
    assert groups["g"].state is GroupState.EMPTY


def test_metadata_and_offsets_meet_in_one_group() -> None:
    groups = load(batch(commit(1)), batch(group_metadata(generation=4)), batch(group_metadata(generation=5)))
    assert (groups["g"].generation, groups["g"].state) == (5, GroupState.STABLE)
    assert groups["g"].members["m"].assignment == b"share"
    assert offsets(groups) == {TP: 1}


def test_a_tombstone_takes_back_what_its_key_held() -> None:
    groups = load(batch(commit(1), commit(2, tp=OTHER), group_metadata()), batch((commit(1)[0], None)))
    assert offsets(groups) == {OTHER: 2}
    assert load(batch(group_metadata()), batch((group_metadata()[0], None))) == {}
    assert offsets(load(batch((commit(1)[0], None)), batch(commit(3)))) == {TP: 3}


def test_offsets_of_a_transaction_count_from_its_commit_on() -> None:
    committed = load(
        batch(commit(0)), in_transaction(7, commit(1)), in_transaction(8, commit(2)), marker(7, ControlType.COMMIT)
    )
    assert offsets(committed) == {TP: 1}
    aborted = load(batch(commit(0)), in_transaction(7, commit(1)), marker(7, ControlType.ABORT))
    assert offsets(aborted) == {TP: 0}
    still_open = load(batch(commit(0)), in_transaction(7, commit(1)))
    assert offsets(still_open) == {TP: 0}


def test_the_place_of_an_offset_is_its_record_s_not_the_marker_s() -> None:
    commits = ControlType.COMMIT
    overtaken = load(in_transaction(7, commit(1), commit(5, tp=OTHER)), batch(commit(0)), marker(7, commits))
    assert offsets(overtaken) == {TP: 0, OTHER: 5}
    crossed = load(in_transaction(7, commit(1)), in_transaction(8, commit(2)), marker(8, commits), marker(7, commits))
    assert offsets(crossed) == {TP: 2}
    taken_back = load(
        in_transaction(7, commit(1)), batch((commit(1)[0], None)), in_transaction(7, commit(3)), marker(7, commits)
    )
    assert offsets(taken_back) == {TP: 3}


def test_compressed_batches_are_read() -> None:
    builder = RecordBatchBuilder(CompressionType.ZSTD)
    builder.append(NOW_MS, *commit(4))
    assert offsets(load(builder.build())) == {TP: 4}


def test_a_record_that_cannot_be_read_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        groups = load(
            batch((b"\x00", b""), (commit(0, tp=OTHER)[0], b"\x00\x03"), (group_metadata("h")[0], b"\x00\x09")),
            batch(commit(1), (b"\x00\x03future", b"?")),
        )
    assert offsets(groups) == {TP: 1}
    assert [*groups] == ["g"]
    assert len(caplog.records) == 4
    for offset in (0, 1, 2, 4):
        assert f"__consumer_offsets-3: what lies at offset {offset} cannot be read" in caplog.text


def test_a_batch_that_cannot_be_read_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    """A record claims more bytes than there are; a batch is in no codec that it claims; a marker decides nothing."""
    damaged = bytearray(batch(commit(2), commit(2, tp=OTHER)))
    damaged[61] = 0x7E
    claims_gzip = bytearray(batch(commit(3)))
    claims_gzip[22] |= 1
    strange = bytearray(marker(7, ControlType.COMMIT))
    strange[strange.index(b"\x00\x00\x00\x01", 61) + 3] = 9
    with caplog.at_level(logging.ERROR):
        groups = load(
            batch(commit(1)),
            bytes(damaged),
            in_transaction(7, commit(8)),
            bytes(strange),
            bytes(claims_gzip),
            batch(commit(5, "other")),
        )
    assert offsets(groups) == {TP: 1}
    assert offsets(groups, "other") == {TP: 5}
    assert [each.args[1] for each in caplog.records if isinstance(each.args, tuple)] == [1, 4, 5]


def test_records_of_unknown_kinds_are_counted_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        groups = load(batch((b"\x00\x0bshare", b"?"), (b"\x00\x0bshare too", b"?"), commit(1)))
    assert offsets(groups) == {TP: 1}
    assert "2 records of an unknown kind (11)" in caplog.text


def test_groups_are_made_some_at_a_time() -> None:
    """To make twenty thousand takes 30 ms."""
    loader = GroupLoader("__consumer_offsets-3")
    loader.add(memoryview(batch(*(commit(1, f"g{number}") for number in range(600)))))
    assert sum(1 for _ in loader.parse()) == 6
    assert len(loader.groups) == 600
