"""Deciding a batch: each step by itself, and the order in which they are safe.

Whoever decides takes over the scope's transactional id first, which fences all who did so before, and reads then: so
what it read is the last decision until it is fenced itself, and then it can record nothing. A step may be the last
one that a driver takes; whoever comes next finds the decision, or none, and goes on from there.
"""

from __future__ import annotations

import dataclasses
import logging
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from sparklog.client.admin import Admin
from sparklog.client.config import ClientConfig
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.prepared_admin import PreparedTransaction
from sparklog.client.producer import Producer
from sparklog.client.transaction import is_fenced
from sparklog.client.transaction_admin import ONGOING
from sparklog.errors import ApiError, DataSourceError, ErrorCode, SparklogError
from sparklog.spark.attempt_names import ids_prefix
from sparklog.spark.decisions import DECISIONS_TOPIC, Decision, DecisionLog, Scope

_log = logging.getLogger(__name__)
T = TypeVar("T")

_QUICK_RETRY_MS = 20
"""Most that is asked again here waits for markers, which takes milliseconds."""
_DECIDING_MS = 10_000
"""How long a decider's own transaction may take. After its death others wait for so long: tasks that ask whether their
batch is decided, and who reads everything. One that takes longer is aborted, and its decider begins again."""
_TIMED_OUT = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
_MOST_ROUNDS = 50

Transactions = Collection[PreparedTransaction]


class Decider:
    """One who decides for a scope. ``commit`` and ``abort`` are whole; the rest are their steps. Close it."""

    def __init__(self, config: ClientConfig, scope: Scope) -> None:
        self._config = dataclasses.replace(config, retry_backoff_ms=_QUICK_RETRY_MS)
        self._scope = scope
        self._cluster = ClusterMetadata(self._config)
        self._admin = Admin(self._config)
        self._log = DecisionLog(self._cluster, self._admin)
        self._producer: Producer | None = None

    def __enter__(self) -> Decider:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._hang_up()
        self._admin.close()
        self._cluster.close()

    # Whole.

    def commit(self, batch: int, transactions: Transactions, run: str | None = None) -> Decision:
        """Decide that these make up ``batch``, unless it is decided already, and finish what is decided.

        The decision that counts is returned: of a later batch if there is one. Raises DataSourceError where one of the
        transactions is open no more; then nothing is decided. ``run`` is the caller's, if it begins a batch only when
        the ``commit`` of the one before has returned: then what the run itself has decided before is finished.
        """
        return self._again_if_fenced(lambda: self._commit(batch, transactions, run))

    def _commit(self, batch: int, transactions: Transactions, run: str | None) -> Decision:
        last = self.take_over()
        if last.batch >= batch or run is None or run not in last.runs:
            self.finish(last)
        if last.batch > batch:
            self.sweep(set(transactions) - set(last.transactions))
            return last
        if last.batch == batch:
            self._sweep_leftovers(last)
            return last
        decision = Decision(batch, tuple(sorted(transactions)))
        found = self._survey_if_possible()
        leftovers = found - set(transactions)
        given_up = set(transactions) & set(last.aborted)
        if given_up:
            raise _ended(min(given_up))
        self.check_open(set(transactions) - found)
        self.record(decision)
        self.finish(decision)
        self.sweep(leftovers)
        return decision

    def abort(self, batch: int, transactions: Transactions, run: str | None) -> Decision:
        """Abort these and whatever else the run has open, but finish what is decided.

        In a scope to which nobody comes back it is decided that the batch has no rows, so that those who still write
        find that out.
        """
        return self._again_if_fenced(lambda: self._abort(batch, transactions, run))

    def _abort(self, batch: int, transactions: Transactions, run: str | None) -> Decision:
        last = self.take_over()
        self.finish(last)
        if not self._scope.lasts and last.batch < batch:
            last = Decision(batch)
            self.record(last)
        of_run = self.survey(run) if run is not None else set()
        self.sweep((of_run | set(transactions)) - set(last.transactions))
        return last

    def finish_all(self) -> tuple[Decision, Transactions]:
        """Commit what is decided and abort the rest, in place of a driver that is dead; returns both.

        A driver that is alive after all is stopped by this: what its tasks have written so far is aborted.
        """

        def finish() -> tuple[Decision, Transactions]:
            last = self.take_over()
            self.finish(last)
            return last, self._sweep_leftovers(last)

        return self._again_if_fenced(finish)

    def forget(self) -> None:
        """Nobody will come back: the record may go when the topic is compacted. If that fails, it stays."""
        with suppress(SparklogError):
            self._write(None)

    # Steps.

    def take_over(self) -> Decision:
        """Fence all other deciders; the last decision."""
        self._hang_up()
        settings = {
            "bootstrap.servers": self._config.bootstrap_servers,
            "client.id": self._config.client_id,
            "request.timeout.ms": self._config.request_timeout_ms,
            "retry.backoff.ms": _QUICK_RETRY_MS,
            "transaction.timeout.ms": _DECIDING_MS,
            "transactional.id": self._scope.decider_id,
            "compression.type": "gzip",
            "linger.ms": 0,
        }
        self._producer = Producer(settings)
        self._producer.init_transactions()
        return self._log.last(self._scope)

    def survey(self, run: str | None = None) -> set[PreparedTransaction]:
        """What attempts of the scope, or of one of its runs, have open now."""
        return self._admin.open_under(ids_prefix(self._scope.name, run))

    def _survey_if_possible(self) -> set[PreparedTransaction]:
        """Brokers that die just now must not fail a batch: what they do not tell of is found when the next one ends."""
        try:
            return self.survey()
        except SparklogError as error:
            _log.warning("what failed tasks of scope %s left open is not known now: %s", self._scope.name, error)
            return set()

    def check_open(self, transactions: Transactions) -> None:
        """Raises DataSourceError unless all of these can still be committed."""
        found = self._admin.open_transactions([each.transactional_id for each in transactions])
        for each in transactions:
            state = found.get(each.transactional_id)
            if state is None or state.state != ONGOING or (state.producer_id, state.producer_epoch) != each[1:]:
                raise _ended(each)

    def record(self, decision: Decision) -> None:
        """Write the decision, for good. Raises ApiError(PRODUCER_FENCED) if another has taken over."""
        self._write(decision)

    def _write(self, decision: Decision | None) -> None:
        assert self._producer is not None
        producer, place = self._producer, self._log.place(self._scope)
        producer.begin_transaction()
        value = None if decision is None else decision.encode()
        sent = producer.send(DECISIONS_TOPIC, value, key=self._scope.name.encode(), partition=place.partition)
        producer.flush()
        offset = sent.result().offset
        if decision is not None:
            producer.send_offsets_to_transaction({place: (offset, -1, str(decision.batch))}, self._scope.decider_id)
        producer.commit_transaction()

    def finish(self, decision: Decision) -> None:
        """Commit what a decision names; doing so again changes nothing. Returns when readers can see it.

        Rows that are lost, which only a transaction with a timeout can be, are an error in the log: nobody can help.
        """
        ended = self.end(decision.transactions, commit=True)
        lost = [each.transactional_id for each, done in zip(decision.transactions, ended, strict=True) if not done]
        if lost:
            _log.error(
                "batch %d of scope %s was decided, but the brokers had aborted some of its transactions (they were open"
                " for longer than transaction.timeout.ms); their rows are lost: %s",
                decision.batch,
                self._scope.name,
                ", ".join(lost),
            )

    def sweep(self, leftovers: Transactions) -> None:
        """Abort what no decision names, nor will name."""
        self.end(leftovers, commit=False)

    def end(self, transactions: Transactions, *, commit: bool) -> list[bool]:
        """End by pair, and wait for the markers: an end is accepted again only when they are written."""
        if not transactions:
            return []
        self._admin.end_prepared(transactions, commit=commit)
        return self._admin.end_prepared(transactions, commit=commit)

    def _sweep_leftovers(self, last: Decision) -> Transactions:
        """Abort what the scope has open beside its last decision.

        The decision is recorded once more in between, with what is to be aborted: whoever decides later reads that,
        and whoever has read before can record nothing. So nobody names in a decision what is aborted here meanwhile.
        """
        leftovers = self.survey() - set(last.transactions)
        if leftovers:
            self.record(last._replace(aborted=tuple(sorted(leftovers.union(last.aborted)))))
            self.sweep(leftovers)
        return leftovers

    def _again_if_fenced(self, attempt: Callable[[], T]) -> T:
        for _ in range(_MOST_ROUNDS):
            try:
                return attempt()
            except SparklogError as error:
                if not _has_lost_the_scope(error):
                    raise
                self._cluster.clock.sleep(random.uniform(0, 0.2))
        raise ApiError(
            ErrorCode.PRODUCER_FENCED,
            f"others decide for scope {self._scope.name!r} all the time; is the query running twice?",
        )

    def _hang_up(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.close()


def _has_lost_the_scope(error: SparklogError) -> bool:
    """Whether another has taken over, or the decider's own transaction was open for too long: it has to read again."""
    return is_fenced(error) or (isinstance(error, ApiError) and error.code in _TIMED_OUT)


def _ended(transaction: PreparedTransaction) -> DataSourceError:
    return DataSourceError(
        "SPARKLOG_TRANSACTION_ENDED",
        f"the transaction {transaction.transactional_id!r} ended before its batch was decided: it was open for longer"
        " than transaction.timeout.ms, or somebody aborted it (sparklog writes finish, sparklog txn abort);"
        " nothing of the batch is visible: write it again",
    )
