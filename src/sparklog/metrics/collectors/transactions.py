"""The transactional ids that this broker coordinates."""

from __future__ import annotations

from collections import Counter

from sparklog.clock import Clock
from sparklog.metrics import families
from sparklog.metrics.exposition import Exposition
from sparklog.protocol.slices import Steps
from sparklog.txn.runtime import TransactionCoordinator
from sparklog.txn.state import AT_REST, TransactionState

_IDS_A_STEP = 500
_OUTCOMES = {TransactionState.COMPLETE_COMMIT: "commit", TransactionState.COMPLETE_ABORT: "abort"}


class TransactionCollector:
    """How many are in which state, and for how long the oldest has been open."""

    def __init__(self, transactions: TransactionCoordinator, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    def collect(self, page: Exposition) -> Steps[None]:
        states: Counter[TransactionState] = Counter()
        now_ms = self._clock.now_ms()
        two_phase, oldest_ms = 0, now_ms
        for number, each in enumerate(self._transactions.each()):
            states[each.state] += 1
            if each.state not in AT_REST:
                two_phase += each.is_two_phase
                oldest_ms = min(oldest_ms, each.start_ms)
            if number % _IDS_A_STEP == _IDS_A_STEP - 1:
                yield
        for state in TransactionState:
            page.add(families.TRANSACTIONS, states[state], state.label)
        page.add(families.TWO_PHASE, two_phase)
        for state, outcome in _OUTCOMES.items():
            for is_two_phase, kind in ((False, "plain"), (True, "two-phase")):
                page.add(families.TRANSACTIONS_ENDED, self._transactions.ended[state, is_two_phase], outcome, kind)
        page.add(families.SINK_DECISIONS, self._transactions.decisions)
        page.add(families.TRANSACTION_AGE, max(now_ms - oldest_ms, 0) / 1000)
        yield
