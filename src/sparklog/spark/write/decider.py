"""Deciding a batch: each step by itself, and the order in which they are safe.

A decider first takes over the scope's transactional id, which fences all earlier deciders, and then reads the last
decision. So its reading stays true until it is fenced itself, and then it cannot record anything. A driver may die
after any step; the next decider finds the decision, or none, and continues from there.
"""

from __future__ import annotations

import dataclasses
import logging
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType
from typing import TypeVar
from uuid import UUID

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.admin.transactions import ONGOING
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.producer.transaction import is_fenced
from sparklog.errors import ApiError, DataSourceError, ErrorCode, SparklogError
from sparklog.spark.write.attempt_names import AttemptName, ids_prefix
from sparklog.spark.write.decisions import (
    NO_BATCH,
    Decision,
    DecisionLog,
    Scope,
    decisions_config,
    declaration,
    recovery_steps,
)
from sparklog.spark.write.options import BY_COLUMN
from sparklog.structs import DECISIONS_TOPIC

_log = logging.getLogger(__name__)
T = TypeVar("T")

_QUICK_RETRY_MS = 20
"""Short, since most retries here wait for transaction markers, which takes milliseconds."""
_DECIDING_MS = 10_000
"""The timeout of a decider's own transaction. After the decider's death others wait that long: tasks that ask whether
their batch is decided, and readers of the whole partition. A slower transaction is aborted, and the decider retries."""
_TIMED_OUT = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
_MOST_ROUNDS = 50
_NOTHING_BEFORE = (
    "nothing is known of what scope %s wrote before batch %d: right for a query that wrote elsewhere until now, or"
    " not exactly once; of any other the decisions are lost, and what its last batch wrote may be written again"
)

_WRITE_AGAIN = "nothing of the batch is visible in any topic: write it again"

Transactions = Collection[PreparedTransaction]
Topics = Collection[tuple[str, UUID]]
"""Names and ids."""


class Decider:
    """Decides which transactions make up the batches of a scope. Close it.

    ``commit``, ``abort``, ``finish_all``, ``forget`` and ``declare`` are whole operations; the other methods are their
    steps. ``for_dead_driver``: it acts for a driver that is taken for dead.
    """

    def __init__(self, config: ClientConfig, scope: Scope, *, for_dead_driver: bool = False) -> None:
        self._config = dataclasses.replace(decisions_config(config), retry_backoff_ms=_QUICK_RETRY_MS)
        self._scope = scope
        self._cluster = ClusterMetadata(self._config)
        self._admin = Admin(self._config)
        self._log = DecisionLog(self._cluster, self._admin)
        self._producer: Producer | None = None
        self._for_dead_driver = for_dead_driver
        self._recorded: Decision | None = None

    def __enter__(self) -> Decider:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._close_producer()
        self._admin.close()
        self._cluster.close()

    # Operations.

    def commit(
        self,
        batch: int,
        transactions: Transactions,
        run: str | None = None,
        rows: int | None = None,
        *,
        is_whole: bool = True,
        topics: Topics = frozenset(),
        target: str | None = None,
    ) -> Decision:
        """Decide that these transactions make up ``batch``, unless it is decided already, and commit them.

        Returns the decision that counts, which is of a later batch if one is decided. ``run`` is the caller's run, if
        it begins a batch only after the ``commit`` of the one before has returned: then the run's own earlier decisions
        are finished already. ``is_whole`` is false if tasks wrote no rows because they found the batch decided.
        ``target`` is the topic of all rows, or BY_COLUMN.

        Raises DataSourceError, and decides nothing, if a transaction is no longer open, if not ``is_whole``, if one of
        the ``topics`` that tasks wrote to is gone, or if the last batch has another ``target``. Raises it also if the
        batch is decided already, and its topic is gone.
        """
        topic_id = next((found for name, found in topics if name == target), None)
        decision = Decision(batch, tuple(sorted(transactions)), rows=rows, target=target, topic_id=topic_id)
        return self._retry_if_fenced(lambda: self._commit(decision, run, is_whole=is_whole, topics=topics))

    def _commit(self, decision: Decision, run: str | None, *, is_whole: bool, topics: Topics) -> Decision:
        batch, transactions = decision.batch, set(decision.transactions)
        last = self.take_over()
        if last.batch >= batch or run is None or run not in last.runs:
            self.finish(last, is_last=last.batch >= batch)
        _check_same_target(self._scope, last, decision)
        if last.batch == batch:
            self._record_and_abort_orphans(last)
            self._check_target_is_there(last)
            return last
        if (last.batch > batch or not self._scope.is_resumable) and self._is_over(decision):
            return decision
        if last.batch > batch:
            self.abort_orphans(transactions.difference(last.transactions))
            return last
        if not is_whole:
            raise _kept_back(self._scope, batch)
        if run is not None and last.batch == NO_BATCH and batch > 0:
            _log.warning(_NOTHING_BEFORE, self._scope.name, batch)
        listed = self._list_open_if_possible()
        found = listed or set()
        orphans = found - transactions
        self._check_nothing_was_decided(last, orphans, decision.runs | {run})
        aborted_before = transactions.intersection(last.aborted)
        if aborted_before:
            raise _ended(min(aborted_before))
        self.check_open(transactions - found)
        self.check_topics(topics)
        if self._scope.is_resumable:  # another run may write the next batch already: it must read what is aborted here
            aborted = last.aborted if listed is None else sorted(orphans)
            decision = decision._replace(aborted=tuple(aborted))
        self.record(decision)
        self.finish(decision)
        try:
            self.abort_orphans(orphans)
        except SparklogError as error:  # the batch is written; if this failed, Spark would write it again
            _log.warning("what failed tasks of scope %s left open is left for the next: %s", self._scope.name, error)
        return decision

    def _is_over(self, decision: Decision) -> bool:
        """Whether this decision was recorded although the broker's answer was lost, and another decider finished it.

        Its record is gone if a later batch is decided, or if the scope is not resumable. Then all its transactions have
        ended, and they are committed if the decision counted.
        """
        recorded = self._recorded
        if recorded is None or not decision.transactions:
            return False
        if (recorded.batch, recorded.transactions) != (decision.batch, decision.transactions):
            return False
        if self._admin.open_transactions([each.transactional_id for each in decision.transactions]):
            return False
        return all(self.end(decision.transactions, commit=True))

    def abort(self, batch: int, transactions: Transactions, run: str | None) -> Decision:
        """Abort these transactions and all others that the run has open, but commit what is decided.

        In a scope that is not resumable, also decide that the batch has no rows, so that tasks which still write find
        that out.
        """
        return self._retry_if_fenced(lambda: self._abort(batch, transactions, run))

    def _abort(self, batch: int, transactions: Transactions, run: str | None) -> Decision:
        last = self.take_over()
        self.finish(last)
        if not self._scope.is_resumable and last.batch < batch:
            last = Decision(batch)
            self.record(last)
        of_run = self.list_open(run) if run is not None else set()
        self.abort_orphans((of_run | set(transactions)) - set(last.transactions))
        self.forget()
        return last

    def finish_all(self) -> tuple[Decision, Transactions]:
        """Commit the decided transactions and abort the rest, for a dead driver. Returns both.

        If the driver is alive after all, this stops it: its tasks' transactions are aborted.
        """

        def finish() -> tuple[Decision, Transactions]:
            last = self.take_over()
            self.finish(last)
            aborted = self._record_and_abort_orphans(last)
            self.forget()
            return last, aborted

        return self._retry_if_fenced(finish)

    def forget(self) -> None:
        """Delete the record and the group of a scope that is not resumable and is over.

        Tasks that still write see by the decider's transactional id that it is over. Errors are ignored: then the
        record or the group stays.
        """
        if self._scope.is_resumable:
            return
        with suppress(SparklogError):
            self._write(None)
            self._admin.delete_groups([self._scope.decider_id])

    def declare(self, batch: int) -> None:
        """Record ``batch`` as the last one, with nothing left to commit, although the last decision cannot be read.

        It ends no transaction. The next decider aborts what the scope has open by then.
        """

        def declare() -> None:
            self._begin()
            self._log.settle_partition(self._scope)
            self.record(Decision(batch))

        self._retry_if_fenced(declare)

    # Steps.

    def take_over(self) -> Decision:
        """Fence all other deciders and return the last decision. Raises DataSourceError if it cannot be read."""
        self._begin()
        return self._log.last(self._scope, is_own=not (self._scope.is_resumable or self._for_dead_driver))

    def _begin(self) -> None:
        self._close_producer()
        settings = {
            **self._config.reaching(),
            "request.timeout.ms": self._config.request_timeout_ms,
            "max.block.ms": self._config.api_timeout_ms,
            "retry.backoff.ms": _QUICK_RETRY_MS,
            "transaction.timeout.ms": _DECIDING_MS,
            "transactional.id": self._scope.decider_id,
            "compression.type": "gzip",
            "linger.ms": 0,
        }
        self._producer = Producer(settings)
        self._producer.init_transactions()

    def list_open(self, run: str | None = None) -> set[PreparedTransaction]:
        """The transactions that attempts of the scope, or of one of its runs, have open now."""
        return self._admin.open_under(ids_prefix(self._scope.name, run))

    def _list_open_if_possible(self) -> set[PreparedTransaction] | None:
        """``list_open``; None if brokers do not answer.

        A broker that dies now must not fail a batch: the next batch finds the transactions that it did not list. Until
        then the last decision's ``aborted`` must stay recorded.
        """
        try:
            return self.list_open()
        except SparklogError as error:
            _log.warning("what failed tasks of scope %s left open is not known now: %s", self._scope.name, error)
            return None

    def check_open(self, transactions: Transactions) -> None:
        """Raises DataSourceError unless all of these transactions can still be committed."""
        found = self._admin.open_transactions([each.transactional_id for each in transactions])
        for each in transactions:
            state = found.get(each.transactional_id)
            if state is None or state.state != ONGOING or (state.producer_id, state.producer_epoch) != each[1:]:
                raise _ended(each)

    def check_topics(self, topics: Topics, advice: str = _WRITE_AGAIN) -> None:
        """Raises DataSourceError, with this advice, unless all of these topics exist under the same id."""
        if not topics:
            return
        try:
            found = self._cluster.describe({name for name, _ in topics})
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise _gone("SPARKLOG_UNKNOWN_TOPIC", f"{error.reason}: it was deleted", advice) from error
        for name, topic_id in topics:
            if found[name].topic_id != topic_id:
                raise _gone("SPARKLOG_TOPIC_RECREATED", f"topic {name!r} was deleted and created again", advice)

    def _check_target_is_there(self, last: Decision) -> None:
        """Raises DataSourceError if the topic of the last batch, which is not written again, is gone with its rows."""
        if last.target is None or last.topic_id is None:
            return
        advice = (
            f"batch {last.batch} of {self._scope.name!r} is not written again; to have it written to the topic as it is"
            f" now: {declaration(self._scope, last.batch - 1)}; to go on with the next batch:"
            f" {declaration(self._scope, last.batch)}"
        )
        self.check_topics([(last.target, last.topic_id)], advice)

    def record(self, decision: Decision) -> None:
        """Write the decision; it is final. Raises ApiError(PRODUCER_FENCED) if another decider has taken over."""
        self._recorded = decision
        self._write(decision)

    def _write(self, decision: Decision | None) -> None:
        assert self._producer is not None
        producer, tp = self._producer, self._log.partition_of(self._scope)
        producer.begin_transaction()
        value = None if decision is None else decision.encode()
        sent = producer.send(DECISIONS_TOPIC, value, key=self._scope.name.encode(), partition=tp.partition)
        producer.flush()
        offset = sent.result().offset
        if decision is not None:
            producer.send_offsets_to_transaction({tp: (offset, -1, str(decision.batch))}, self._scope.decider_id)
        producer.commit_transaction()
        with suppress(SparklogError):  # the next decider writes a snapshot that is missing
            self._log.index(self._scope).write_if_due(offset)

    def finish(self, decision: Decision, *, is_last: bool = True) -> None:
        """Commit the decision's transactions. Idempotent. Returns when readers can see the rows.

        If the decision stays the last one, it is then recorded as finished; a later decision implies that.

        Transactions that the brokers aborted after their timeout have lost their rows: that is logged as an error.
        Raises DataSourceError if brokers have forgotten how some transactions ended, and no record says that all did.
        """
        if not decision.transactions:
            return
        ended = dict(zip(decision.transactions, self.end(decision.transactions, commit=True), strict=True))
        if not all(ended.values()) and self._log.is_finished(self._scope, decision):
            return  # the ids are forgotten, or an undecided batch has used them again
        unknown = [each.transactional_id for each, done in ended.items() if done is None]
        if unknown:
            raise _unproven(self._scope, decision, unknown)
        lost = [each.transactional_id for each, done in ended.items() if not done]
        if lost:
            _log.error(
                "batch %d of scope %s was decided, but the brokers had aborted some of its transactions (they were open"
                " for longer than transaction.timeout.ms); their rows are lost: %s",
                decision.batch,
                self._scope.name,
                ", ".join(lost),
            )
        if self._scope.is_resumable and is_last:
            self._log.note_finished(self._scope, decision)

    def abort_orphans(self, orphans: Transactions) -> None:
        """Abort transactions that no decision names or will name, and retire their producers.

        A task that is still writing is refused from then on. Otherwise it would open another transaction under the same
        producer id and epoch, and its batch would be decided with a part of its rows.
        """
        if orphans:
            self.end(orphans, commit=False)
            self._admin.retire_prepared(orphans)

    def end(self, transactions: Transactions, *, commit: bool) -> list[bool | None]:
        """End the transactions by producer id and epoch, and wait for the markers.

        Returns for each whether it ended that way; None if the brokers no longer know. The second request is the wait:
        a coordinator accepts it only when the markers are written.
        """
        if not transactions:
            return []
        self._admin.end_prepared(transactions, commit=commit)
        return self._admin.end_prepared(transactions, commit=commit)

    def _check_nothing_was_decided(self, last: Decision, orphans: Transactions, own: Collection[str | None]) -> None:
        """Raises DataSourceError if an orphan may have been decided, in a record that is gone.

        Orphans of the ``own`` runs were not decided.
        """
        others = [each for each in orphans if _run_of(each) not in own]
        if not others or last.batch != NO_BATCH or not self._log.has_lost_records(self._scope):
            return
        if not self._log.knows(self._scope):
            raise DataSourceError(
                "SPARKLOG_DECISION_LOST",
                f"scope {self._scope.name!r} has transactions open that an earlier run wrote, and records are gone from"
                f" {DECISIONS_TOPIC}, maybe those that say what was decided about them."
                f" {recovery_steps(self._scope, NO_BATCH)}; it is -1 where no batch was written",
            )

    def _record_and_abort_orphans(self, last: Decision) -> Transactions:
        """Abort all that the scope has open except its last decision. Returns what was aborted.

        The decision is first recorded again, with the transactions to abort. A later decider reads that, and an earlier
        one is fenced, so no decision can name a transaction that is aborted here.
        """
        orphans = self.list_open() - set(last.transactions)
        self._check_nothing_was_decided(last, orphans, ())
        if orphans:
            self.record(last._replace(aborted=tuple(sorted(orphans.union(last.aborted)))))
            self.abort_orphans(orphans)
        return orphans

    def _retry_if_fenced(self, attempt: Callable[[], T]) -> T:
        for _ in range(_MOST_ROUNDS):
            try:
                return attempt()
            except SparklogError as error:
                if not _is_fenced_or_timed_out(error):
                    raise
                self._cluster.clock.sleep(random.uniform(0, 0.2))
        raise ApiError(
            ErrorCode.PRODUCER_FENCED,
            f"others decide for scope {self._scope.name!r} all the time; is the query running twice?",
        )

    def _close_producer(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            producer.close()


def _is_fenced_or_timed_out(error: SparklogError) -> bool:
    """Whether another decider has taken over, or this one's own transaction timed out: it must start again."""
    return is_fenced(error) or (isinstance(error, ApiError) and error.code in _TIMED_OUT)


def _ended(transaction: PreparedTransaction) -> DataSourceError:
    return DataSourceError(
        "SPARKLOG_TRANSACTION_ENDED",
        f"the transaction {transaction.transactional_id!r} ended before its batch was decided: it was open for longer"
        " than transaction.timeout.ms, or somebody aborted it (another write at the same time under the same txnAppId,"
        " sparklog writes finish, sparklog txn abort); nothing of the batch is visible: write it again",
    )


def _gone(code: str, what: str, advice: str) -> DataSourceError:
    return DataSourceError(code, f"{what} after tasks had written to it, and what they had written is gone; {advice}")


def _check_same_target(scope: Scope, last: Decision, decision: Decision) -> None:
    """Raises DataSourceError if the last batch is known to have gone to another topic: the checkpoint was copied."""
    if None in (last.target, decision.target) or last.target == decision.target:
        return
    before, now = (
        "the topics in the rows" if each.target == BY_COLUMN else f"topic {each.target!r}" for each in (last, decision)
    )
    raise DataSourceError(
        "SPARKLOG_OTHER_TOPIC",
        f"batch {decision.batch} of {scope.name!r} is not written to {now}: batch {last.batch} of it went to {before}."
        " A copy of a checkpoint does not make another query of it: start that with a new checkpoint (and starting"
        f" offsets). If this query is to write to {now} from batch {last.batch + 1} on, and to {before} no more:"
        f" {declaration(scope, last.batch)}",
    )


def _kept_back(scope: Scope, batch: int) -> DataSourceError:
    return DataSourceError(
        "SPARKLOG_TRANSACTION_ENDED",
        f"tasks have written nothing of batch {batch} of {scope.name!r}, since they found it over: somebody has taken"
        " its driver for dead and finished it ('abandonedAfter', sparklog writes finish), or has declared another last"
        " batch since; nothing of the batch is visible: write it again",
    )


def _run_of(transaction: PreparedTransaction) -> str | None:
    name = AttemptName.parse(transaction.transactional_id)
    return None if name is None else name.run


def _unproven(scope: Scope, decision: Decision, unknown: list[str]) -> DataSourceError:
    return DataSourceError(
        "SPARKLOG_DECISION_UNPROVEN",
        f"batch {decision.batch} of scope {scope.name!r} was decided, and the brokers have forgotten how"
        f" {len(unknown)} of its {len(decision.transactions)} transactions ended ({unknown[0]} among them), which"
        " nobody has noted: see whether its rows are in their topics, write them again under another name if they are"
        f" not, and then declare it written: {declaration(scope, decision.batch)}",
    )
