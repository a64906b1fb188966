"""The point of a backup: when it parts no transaction. Coordinators in the middle of an end cannot be had at will, so
what brokers answer is scripted here; the backups of real ones are in ``test_making``.
"""

from contextlib import nullcontext
from itertools import chain, repeat
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.backup import making
from sparklog.backup.cut import take_cut
from sparklog.backup.manifest import GroupOffset, Unseen
from sparklog.client.admin.configs import ConfigEntry
from sparklog.client.admin.groups import GroupListing
from sparklog.client.admin.transactions import TransactionListing
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.offsets import EARLIEST, OffsetAndTimestamp
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.cluster.info import PartitionInfo, TopicInfo
from sparklog.errors import ApiError, ErrorCode
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import BrokerId, TopicPartition
from sparklog.testing.clock import ManualClock

TP = TopicPartition("clicks", 0)


class Brokers:
    """Answers as told: ``ends`` and ``ending`` (whether a transaction is on its way to its end) one after the other."""

    def __init__(self, ends, ending=(), used=True, committed=(), start=0, sees=True):
        self._sees = sees
        self._ends = chain(ends, repeat(ends[-1]))
        self._ending = chain(ending, repeat(False))
        self._used = used
        self._committed = dict(committed)
        self._start = start
        self.asked = []

    def list_offsets(self, wanted, *, isolation=None):
        first = wanted[TP] == EARLIEST
        self.asked.append("start" if first else "end")
        return {TP: OffsetAndTimestamp(self._start if first else next(self._ends), -1)}

    def list_transactions(self, *, states=()):
        if isinstance(self._used, ApiError):
            raise self._used
        found = [TransactionListing("t", BrokerId(0), 1, "Empty")] if self._used else []
        if states:
            self.asked.append("transactions")
            return found if next(self._ending) else []
        return found

    def sees_all_groups(self):
        return self._sees

    def sees_all_transactions(self):
        if isinstance(self._used, ApiError):
            raise self._used
        return self._sees

    def list_groups(self):
        self.asked.append("groups")
        return [GroupListing(group, "consumer", "Empty", "") for group in self._committed]

    def group_offsets(self, group):
        return {TP: OffsetAndMetadata(self._committed[group], metadata="m"), TP._replace(topic="other"): 3}

    def describe_topics(self, names):
        return {each: TopicInfo(each, UUID(int=1), False, (PartitionInfo(0, 0, 0, (0,), (0,)),)) for each in names}

    def topic_configs(self, _):
        settings = {"segment.bytes": "1000", "cleanup.policy": "delete"}
        return [ConfigEntry(name, value, 5, read_only=False, sensitive=False) for name, value in settings.items()]

    def describe_cluster(self):
        return SimpleNamespace(cluster_id="c")


def cut(brokers, patience_s=0.0, clock=None):
    return take_cut(brokers, [TP], patience_s, clock or ManualClock())


def test_groups_are_read_between_looks_at_transactions_and_these_between_the_ends():
    brokers = Brokers([7])
    assert cut(brokers) == ({TP: 0}, {TP: 7}, {}, True, Unseen())
    assert brokers.asked == ["end", "transactions", "groups", "transactions", "end", "start"]


@pytest.mark.parametrize(
    ("brokers", "is_consistent"),
    [
        (Brokers([7, 9]), False),
        (Brokers([7, 9], used=False), True),
        (Brokers([7], ending=[True]), False),
        (Brokers([7], ending=[False, True]), False),
        (Brokers([7], used=ApiError(ErrorCode.UNSUPPORTED_VERSION, "too old")), False),
    ],
)
def test_it_is_whole_where_nothing_ends_or_moves_meanwhile(brokers, is_consistent):
    assert cut(brokers).is_consistent is is_consistent


def test_it_is_not_taken_for_whole_where_transactions_may_be_hidden():
    clock = ManualClock()
    found = cut(Brokers([7], sees=False), patience_s=5.0, clock=clock)
    assert (found.is_consistent, found.unseen) == (False, Unseen(groups=True, transactions=True))
    assert clock.monotonic() == 0


def test_the_later_end_counts():
    assert cut(Brokers([7, 9])).ends == {TP: 9}


def test_another_error_of_a_coordinator_is_raised():
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        cut(Brokers([7], used=ApiError(ErrorCode.NOT_COORDINATOR, "")))


def test_a_quiet_moment_is_waited_for():
    clock = ManualClock()
    assert cut(Brokers([1, 2, 3, 4, 5, 5]), patience_s=5.0, clock=clock).is_consistent
    assert not cut(Brokers(list(range(10_000))), patience_s=5.0, clock=clock).is_consistent
    assert clock.monotonic() < 6


@pytest.mark.parametrize(("committed", "kept"), [(2, 4), (4, 4), (5, 5), (7, 7), (9, 7)])
def test_groups_offsets_lie_within_the_partition(committed, kept):
    groups = cut(Brokers([7], committed={"g": committed}, start=4)).groups
    assert {group: {tp: tuple(at) for tp, at in each.items()} for group, each in groups.items()} == {
        "g": {TP: (kept, "m")}
    }


def test_groups_offsets_lie_within_what_is_left_where_records_are_deleted_before_they_are_copied(place, monkeypatch):
    brokers = Brokers([7], committed={"behind": 2, "within": 6})

    def read(_cluster, _tp, position, end, _topic_id):
        if position < 5:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "retention was here")
        builder = RecordBatchBuilder(base_offset=position)
        for _ in range(position, end):
            builder.append(1, None, b"v")
        yield RecordBatch(bytearray(builder.build()))

    monkeypatch.setattr(making, "Admin", lambda _: nullcontext(brokers))
    monkeypatch.setattr(making, "ClusterMetadata", lambda _: nullcontext())
    monkeypatch.setattr(making, "earliest_offsets", lambda _, tps: dict.fromkeys(tps, 5))
    monkeypatch.setattr(making, "read_everything", read)
    config = ClientConfig.from_properties({"bootstrap.servers": "127.0.0.1:1"})
    backup = making.make_backup(config, place, making.BackupOptions(("clicks",)), clock=ManualClock()).backup
    assert backup.topics["clicks"].partitions[0][:2] == (5, 7)
    assert backup.groups == {"behind": {TP: GroupOffset(5, "m")}, "within": {TP: GroupOffset(6, "m")}}
