"""Transactional ids, as they are told."""

from collections import Counter
from types import SimpleNamespace

from metrics.pages import collected

from sparklog.metrics.collectors.transactions import TransactionCollector
from sparklog.testing.clock import ManualClock
from sparklog.txn.state import NO_TIMEOUT_MS, Transaction, TransactionState


def coordinator(held, ended, decisions):
    return SimpleNamespace(each=lambda: iter(held), ended=ended, decisions=decisions)


def test_states_and_the_oldest_that_is_open():
    clock = ManualClock()
    now = clock.now_ms()
    held = [
        Transaction("a", 1, 0, 60_000),
        Transaction("b", 2, 0, 60_000, TransactionState.ONGOING, start_ms=now - 3_000),
        Transaction("c", 3, 0, NO_TIMEOUT_MS, TransactionState.ONGOING, start_ms=now - 9_000),
        Transaction("d", 4, 0, NO_TIMEOUT_MS, TransactionState.COMPLETE_COMMIT, start_ms=now - 99_000),
    ]
    ended = Counter({(TransactionState.COMPLETE_COMMIT, True): 5, (TransactionState.COMPLETE_ABORT, False): 2})
    page = collected(TransactionCollector(coordinator(held, ended, 3), clock))
    assert page.value("sparklog_transactions", state="Ongoing") == 2
    assert page.value("sparklog_transactions", state="CompleteCommit") == 1
    assert page.value("sparklog_transactions", state="PrepareAbort") == 0
    assert page.value("sparklog_transactions_prepared") == 1
    assert page.value("sparklog_transaction_oldest_seconds") == 9
    name = "sparklog_transactions_ended_total"
    assert page.value(name, outcome="commit", kind="two-phase") == 5
    assert page.value(name, outcome="abort", kind="plain") == 2
    assert page.value(name, outcome="commit", kind="plain") == 0
    assert page.value("sparklog_sink_decisions_total") == 3


def test_without_any_nothing_is_open():
    page = collected(TransactionCollector(coordinator([], Counter(), 0), ManualClock()))
    assert page.value("sparklog_transaction_oldest_seconds") == 0
