"""Deciding a batch: each step by itself, and the order in which they are safe.

Whoever decides takes over the scope's transactional id first, which fences all who did so before, and reads then: so
what it read is the last decision until it is fenced itself, and then it can record nothing. A step may be the last
one that a driver takes; whoever comes next finds the decision, or none, and goes on from there.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import shlex
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
    DECISIONS_TOPIC,
    NO_BATCH,
    Decision,
    DecisionLog,
    Scope,
    decisions_config,
    way_out,
)

_log = logging.getLogger(__name__)
T = TypeVar("T")

_QUICK_RETRY_MS = 20
"""Most that is asked again here waits for markers, which takes milliseconds."""
_DECIDING_MS = 10_000
"""How long a decider's own transaction may take. After its death others wait for so long: tasks that ask whether their
batch is decided, and who reads everything. One that takes longer is aborted, and its decider begins again."""
_TIMED_OUT = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
_MOST_ROUNDS = 50
_NOTHING_BEFORE = (
    "nothing is known of what scope %s wrote before batch %d: right for a query that wrote elsewhere until now, or"
    " not exactly once; of any other the decisions are lost, and what its last batch wrote may be written again"
)

Transactions = Collection[PreparedTransaction]
Topics = Collection[tuple[str, UUID]]
"""Names and ids."""


class Decider:
    """One who decides for a scope. ``commit`` and ``abort`` are whole; the rest are their steps. Close it.

    ``is_anothers``: it decides in place of the driver whose scope it is.
    """

    def __init__(self, config: ClientConfig, scope: Scope, *, is_anothers: bool = False) -> None:
        self._config = dataclasses.replace(decisions_config(config), retry_backoff_ms=_QUICK_RETRY_MS)
        self._scope = scope
        self._cluster = ClusterMetadata(self._config)
        self._admin = Admin(self._config)
        self._log = DecisionLog(self._cluster, self._admin)
        self._producer: Producer | None = None
        self._is_anothers = is_anothers
        self._recorded: Decision | None = None

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

    def commit(
        self,
        batch: int,
        transactions: Transactions,
        run: str | None = None,
        rows: int | None = None,
        *,
        is_whole: bool = True,
        topics: Topics = frozenset(),
    ) -> Decision:
        """Decide that these make up ``batch``, unless it is decided already, and finish what is decided.

        The decision that counts is returned: of a later batch if there is one. Raises DataSourceError where one of the
        transactions is open no more; then nothing is decided. ``run`` is the caller's, if it begins a batch only when
        the ``commit`` of the one before has returned: then what the run itself has decided before is finished.
        Not ``is_whole``: tasks have kept rows back, since they found the batch over; then nothing can be decided. Nor
        where one of the ``topics`` that were written to is gone, and rows of the batch with it.
        """
        decision = Decision(batch, tuple(sorted(transactions)), rows=rows)
        return self._again_if_fenced(lambda: self._commit(decision, run, is_whole=is_whole, topics=topics))

    def _commit(self, decision: Decision, run: str | None, *, is_whole: bool, topics: Topics) -> Decision:
        batch, transactions = decision.batch, set(decision.transactions)
        last = self.take_over()
        if last.batch >= batch or run is None or run not in last.runs:
            self.finish(last, is_last=last.batch >= batch)
        if last.batch == batch:
            self._sweep_leftovers(last)
            return last
        if (last.batch > batch or not self._scope.lasts) and self._is_over(decision):
            return decision
        if last.batch > batch:
            self.sweep(transactions.difference(last.transactions))
            return last
        if not is_whole:
            raise _kept_back(self._scope, batch)
        if run is not None and last.batch == NO_BATCH and batch > 0:
            _log.warning(_NOTHING_BEFORE, self._scope.name, batch)
        told = self._survey_if_possible()
        found = told or set()
        leftovers = found - transactions
        self._check_nothing_was_decided(last, leftovers, decision.runs | {run})
        given_up = transactions.intersection(last.aborted)
        if given_up:
            raise _ended(min(given_up))
        self.check_open(transactions - found)
        self.check_topics(topics)
        if self._scope.lasts:  # another may write the next batch already: it must read what is aborted here
            aborted = last.aborted if told is None else sorted(leftovers)
            decision = decision._replace(aborted=tuple(aborted))
        self.record(decision)
        self.finish(decision)
        try:
            self.sweep(leftovers)
        except SparklogError as error:  # the batch is written: to say that it failed would have it written again
            _log.warning("what failed tasks of scope %s left open is left for the next: %s", self._scope.name, error)
        return decision

    def _is_over(self, decision: Decision) -> bool:
        """Whether another has found this decision, which we recorded without hearing so, and has finished all of it.

        Nothing says so any more where a later batch is decided, or the scope leaves no trace. All transactions have
        ended then; they are committed if the decision counted.
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
        self.forget()
        return last

    def finish_all(self) -> tuple[Decision, Transactions]:
        """Commit what is decided and abort the rest, in place of a driver that is dead; returns both.

        A driver that is alive after all is stopped by this: what its tasks have written so far is aborted.
        """

        def finish() -> tuple[Decision, Transactions]:
            last = self.take_over()
            self.finish(last)
            swept = self._sweep_leftovers(last)
            self.forget()
            return last, swept

        return self._again_if_fenced(finish)

    def forget(self) -> None:
        """Leave no trace of a scope to which nobody comes back, and which is over: no record, no group.

        Whoever still writes sees by the decider's id that it is over. If this fails, the traces stay.
        """
        if self._scope.lasts:
            return
        with suppress(SparklogError):
            self._write(None)
            self._admin.delete_groups([self._scope.decider_id])

    def declare(self, batch: int) -> None:
        """Make ``batch`` the last one, with nothing left to commit, whatever was decided: for when nobody can tell.

        It ends no transaction. What the scope has open by then is aborted by who decides next.
        """

        def declare() -> None:
            self._begin()
            self._log.settle(self._scope)
            self.record(Decision(batch))

        self._again_if_fenced(declare)

    # Steps.

    def take_over(self) -> Decision:
        """Fence all other deciders; the last decision. Raises DataSourceError where that cannot be read."""
        self._begin()
        return self._log.last(self._scope, is_own=not (self._scope.lasts or self._is_anothers))

    def _begin(self) -> None:
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

    def survey(self, run: str | None = None) -> set[PreparedTransaction]:
        """What attempts of the scope, or of one of its runs, have open now."""
        return self._admin.open_under(ids_prefix(self._scope.name, run))

    def _survey_if_possible(self) -> set[PreparedTransaction] | None:
        """None where brokers do not tell what is open.

        Those that die just now must not fail a batch: what they do not tell of is found when the next one ends. Until
        then what another is about to abort must stay recorded.
        """
        try:
            return self.survey()
        except SparklogError as error:
            _log.warning("what failed tasks of scope %s left open is not known now: %s", self._scope.name, error)
            return None

    def check_open(self, transactions: Transactions) -> None:
        """Raises DataSourceError unless all of these can still be committed."""
        found = self._admin.open_transactions([each.transactional_id for each in transactions])
        for each in transactions:
            state = found.get(each.transactional_id)
            if state is None or state.state != ONGOING or (state.producer_id, state.producer_epoch) != each[1:]:
                raise _ended(each)

    def check_topics(self, topics: Topics) -> None:
        """Raises DataSourceError unless all of these are the topics that they were."""
        if not topics:
            return
        try:
            found = self._cluster.describe({name for name, _ in topics})
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise _gone("SPARKLOG_UNKNOWN_TOPIC", f"{error.reason}: it was deleted") from error
        for name, topic_id in topics:
            if found[name].topic_id != topic_id:
                raise _gone("SPARKLOG_TOPIC_RECREATED", f"topic {name!r} was deleted and created again")

    def record(self, decision: Decision) -> None:
        """Write the decision, for good. Raises ApiError(PRODUCER_FENCED) if another has taken over."""
        self._recorded = decision
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
        with suppress(SparklogError):  # an index that is missing is written by the next
            self._log.index(self._scope).follow(offset)

    def finish(self, decision: Decision, *, is_last: bool = True) -> None:
        """Commit what a decision names; doing so again changes nothing. Returns when readers can see it.

        That it is finished is noted if it stays the last one: a later decision says the same.

        Rows that are lost, which only a transaction with a timeout can be, are an error in the log: nobody can help.
        Raises DataSourceError where brokers have forgotten how some of it ended, and nobody has noted that all did.
        """
        if not decision.transactions:
            return
        ended = dict(zip(decision.transactions, self.end(decision.transactions, commit=True), strict=True))
        if not all(ended.values()) and self._log.is_finished(self._scope, decision):
            return  # the ids are forgotten, or a batch that was never decided has used them again
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
        if self._scope.lasts and is_last:
            self._log.note_finished(self._scope, decision)

    def sweep(self, leftovers: Transactions) -> None:
        """Abort what no decision names, nor will name; a task that goes on writing is refused from then on.

        Else it would open another transaction under the same pair, and its batch be decided with a part of its rows.
        """
        if leftovers:
            self.end(leftovers, commit=False)
            self._admin.retire_prepared(leftovers)

    def end(self, transactions: Transactions, *, commit: bool) -> list[bool | None]:
        """End by pair, and wait for the markers: an end is accepted again only when they are written.

        Whether each has ended so; None where that is not known any more.
        """
        if not transactions:
            return []
        self._admin.end_prepared(transactions, commit=commit)
        return self._admin.end_prepared(transactions, commit=commit)

    def _check_nothing_was_decided(self, last: Decision, leftovers: Transactions, own: Collection[str | None]) -> None:
        """Raises DataSourceError where what is to be aborted may have been decided, in a record that is gone.

        What the ``own`` runs have left was not.
        """
        others = [each for each in leftovers if _run_of(each) not in own]
        if not others or last.batch != NO_BATCH or not self._log.has_lost_records(self._scope):
            return
        if not self._log.knows(self._scope):
            raise DataSourceError(
                "SPARKLOG_DECISION_LOST",
                f"scope {self._scope.name!r} has transactions open that an earlier run wrote, and records are gone from"
                f" {DECISIONS_TOPIC}, maybe those that say what was decided about them."
                f" {way_out(self._scope, NO_BATCH)}; it is -1 where no batch was written",
            )

    def _sweep_leftovers(self, last: Decision) -> Transactions:
        """Abort what the scope has open beside its last decision.

        The decision is recorded once more in between, with what is to be aborted: whoever decides later reads that,
        and whoever has read before can record nothing. So nobody names in a decision what is aborted here meanwhile.
        """
        leftovers = self.survey() - set(last.transactions)
        self._check_nothing_was_decided(last, leftovers, ())
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
        " than transaction.timeout.ms, or somebody aborted it (another write at the same time under the same txnAppId,"
        " sparklog writes finish, sparklog txn abort); nothing of the batch is visible: write it again",
    )


def _gone(code: str, what: str) -> DataSourceError:
    return DataSourceError(
        code,
        f"{what} after tasks had written to it, and what they had written is gone; nothing of the batch is visible in"
        " any topic: write it again",
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
        " not, and then declare it written: sparklog writes declare"
        f" {shlex.quote(scope.name)} --last-batch {decision.batch}",
    )
