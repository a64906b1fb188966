"""Groups, transactions and logs that do not go on."""

import pytest

from sparklog.cli.doctor.finding import Severity
from sparklog.cli.doctor.progress import (
    GroupProgress,
    compaction_findings,
    group_findings,
    rebalance_findings,
    rebalancing,
    transaction_findings,
)
from sparklog.cli.extents import Extents
from sparklog.client.admin.compaction import BrokerCompaction, Compaction, CompactionDescription, CompactionState
from sparklog.client.admin.groups import GroupListing
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.admin.transactions import ActiveProducer, TransactionListing
from sparklog.structs import TopicPartition

TP, OTHER = TopicPartition("a", 0), TopicPartition("a", 1)
MIB = 1 << 20
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("state", "lag", "severity"),
    [("Stable", 10, None), ("Stable", 11, Severity.WARNING), ("Empty", 11, Severity.NOTE), ("Empty", 10, None)],
)
def test_how_far_behind_is_too_far(state, lag, severity):
    groups = [GroupProgress("g", state, {TP: 100 - lag, OTHER: 50})]
    found = list(group_findings(groups, Extents({TP: 0, OTHER: 0}, {TP: 100, OTHER: 50}, {}), 10))
    assert [each.severity for each in found] == ([] if severity is None else [severity])


def test_what_was_deleted_unread():
    groups = [GroupProgress("g", "Stable", {TP: 5, OTHER: 9})]
    (found,) = group_findings(groups, Extents({TP: 8, OTHER: 9}, {TP: 10, OTHER: 10}, {}), 10)
    assert (found.severity, found.where) == (Severity.WARNING, ("group g", "a-0"))
    assert found.what.startswith("3 offsets were deleted")


@pytest.mark.parametrize(
    ("state", "is_it"),
    [
        ("PreparingRebalance", True),
        ("CompletingRebalance", True),
        ("Assigning", True),
        ("Reconciling", True),
        ("Stable", False),
        ("Empty", False),
    ],
)
def test_states_of_a_rebalance(state, is_it):
    listed = [GroupListing("g", "consumer", state, "classic")]
    assert rebalancing(listed) == ({"g"} if is_it else set())


def test_a_group_in_which_a_member_is_waited_for():
    (found,) = rebalance_findings({"pay day"}, 10)
    assert (found.severity, found.where) == (Severity.WARNING, ("group pay day",))
    assert "10 s" in found.what
    assert "sparklog group describe 'pay day'" in found.advice
    assert "max.poll.interval.ms" in found.advice


def test_transactions():
    hanging = {TP: [ActiveProducer(7, 0, 1, 2, 3, 4711)]}
    found = list(transaction_findings(hanging, [TransactionListing("pay", 0, 7, "Ongoing")], 900))
    assert [(each.severity, each.where, each.advice) for each in found] == [
        (Severity.ERROR, ("a-0",), "sparklog txn abort --topic a --partition 0 --start-offset 4711"),
        (Severity.WARNING, ("pay",), "sparklog txn describe pay; sparklog writes list"),
    ]


def state(uncleanable=None, *, clean=0, dirty=0, delay_ms=0, is_due=False, last=None):
    return CompactionState(None, 0, 0, clean, dirty, delay_ms, is_due, False, None, uncleanable, 0, last)


def described(replicas, threads=1):
    brokers = {each: BrokerCompaction(each != 2, threads, 0, 0, 0, 0) for each in (0, 1, 2)}
    return CompactionDescription(brokers, replicas)


def test_compaction():
    replicas = {Replica(TP, 0): state(), Replica(TP, 1): state("a batch is damaged")}
    (found,) = compaction_findings(described(replicas), {})
    assert (found.severity, found.where) == (Severity.ERROR, ("a-0 on broker 1",))
    (found,) = compaction_findings(described({Replica(TP, 2): state()}), {})
    assert (found.severity, found.where) == (Severity.WARNING, ("broker 2",))


def test_logs_that_are_overdue_for_more_than_an_hour():
    replicas = {
        Replica(TP, 0): state(delay_ms=2 * HOUR_MS, is_due=True),
        Replica(TP, 1): state(delay_ms=HOUR_MS, is_due=True),
        Replica(OTHER, 0): state(delay_ms=3 * HOUR_MS, is_due=True),
    }
    (found,) = compaction_findings(described(replicas), {})
    assert (found.severity, found.where) == (Severity.WARNING, ("a-0 on broker 0", "a-1 on broker 0"))
    assert "by up to 3 h" in found.what
    assert found.advice.startswith("sparklog compact status a; ")
    assert "sparklog config alter --broker 0 --config log.cleaner.threads=2" in found.advice


@pytest.mark.parametrize(
    ("last", "threads", "limit", "is_told"),
    [
        ((100 * MIB, 100), 1, None, True),
        ((100 * MIB, 100), 2, None, False),
        ((100 * MIB, 10), 1, None, False),
        ((100 * MIB, 10), 1, float(MIB), True),
        ((1 * MIB, 1), 1, None, False),
        (None, 1, None, False),
    ],
)
def test_logs_that_take_more_than_an_hour_to_clean(last, threads, limit, is_told):
    run = None if last is None else Compaction(0, last[1], last[0], 0, 0, 0)
    replicas = {
        Replica(TP, 0): state(clean=1000 * MIB, dirty=3000 * MIB, is_due=True, last=run),
        Replica(OTHER, 0): state(clean=9000 * MIB, dirty=3000 * MIB, last=run),
    }
    found = list(compaction_findings(described(replicas, threads), {} if limit is None else {0: limit}))
    assert [each.where for each in found] == ([("broker 0",)] if is_told else [])


def test_a_limit_of_what_is_read_and_written_is_what_to_raise():
    replicas = {Replica(TP, 0): state(dirty=MIB, is_due=True)}
    (found,) = compaction_findings(described(replicas), {0: 100.0})
    assert found.advice.endswith("sparklog config alter --broker 0 --delete-config log.cleaner.io.max.bytes.per.second")
    assert list(compaction_findings(described(replicas), {0: 1000.0})) == []


def test_what_is_to_be_typed_runs_nothing_else():
    groups = [GroupProgress("g; reboot", "Empty", {TP: 0})]
    (found,) = group_findings(groups, Extents({TP: 0}, {TP: 100}, {}), 10)
    assert found.advice.endswith("sparklog group delete 'g; reboot'")
    (found,) = transaction_findings({}, [TransactionListing("$(reboot)", 0, 7, "Ongoing")], 900)
    assert found.advice.startswith("sparklog txn describe '$(reboot)';")
