"""The sinks that Spark calls: they write a DataFrame's Arrow batches to topics, exactly once by default.

Spark may run a task again, run it twice at once, or run it again after the driver died. So a task leaves its rows in an
open transaction and sends the driver the transaction's name; the driver decides which transactions make up the batch
(``decider``). Only the commit messages pass between the two: Spark makes a new writer for each ``commit`` and ``abort``
of a streaming query.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sparklog.errors import DataSourceError, SparklogError
from sparklog.spark.failures import translated
from sparklog.spark.options.task_login import Login, end_tokens, task_login
from sparklog.spark.schema import check_write_schema
from sparklog.spark.write.attempt_names import unnamed_scope

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sparklog.client.admin.prepared import PreparedTransaction
    from sparklog.spark.write.decider import Decider
    from sparklog.spark.write.decisions import Decision
    from sparklog.spark.write.options import WriteOptions
    from sparklog.spark.write.task_attempt import TaskAttempt

_log = logging.getLogger(__name__)


@dataclass
class TaskCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """What one task tells the driver: how many rows it wrote, as which attempt, and to which topics (name, id).

    ``transaction`` holds the rows; None where the task wrote none, or wrote without transactions. ``token_id`` is the
    delegation token by which it came to the brokers; None where it came as the driver does.
    """

    rows: int
    task: TaskAttempt | None = None
    transaction: PreparedTransaction | None = None
    topics: frozenset[tuple[str, uuid.UUID]] = frozenset()
    token_id: str | None = None


Messages = Sequence[TaskCommitMessage | None]


class SparklogWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """The batch sink. Raises DataSourceError for a save mode other than append, and for rows that cannot be written."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SAVE_MODE", "a topic can only be appended to: use mode('append')"
            )
        check_write_schema(schema, options.topic)
        self._sink = Sink(options)
        self._run = uuid.uuid4().hex[:16]
        self._is_resumable = options.name is not None
        self._scope = options.name or unnamed_scope(self._run)
        self._batch = options.txn_version or 0

    def reach_brokers(self) -> None:
        """To be called before tasks begin. Raises DataSourceError where no broker can be reached, or lets us in."""
        self._sink.reach_brokers()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        from sparklog.spark.write.task_attempt import batch_attempt

        return self._sink.write(
            batch_attempt(self._scope, self._run, self._batch, is_resumable=self._is_resumable), iterator
        )

    def commit(self, messages: Messages) -> None:
        self._sink.commit(self._scope, self._batch, messages, is_resumable=self._is_resumable)
        self._sink.finish_abandoned()

    def abort(self, messages: Messages) -> None:
        self._sink.abort(self._scope, self._batch, messages, self._run, is_resumable=self._is_resumable)


class SparklogStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The streaming sink. It appends rows in the complete output mode too; Python sinks have no update mode."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_write_schema(schema, options.topic)
        self._sink = Sink(options)
        self._is_exactly_once, self._checkpoint = options.exactly_once, options.checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        from sparklog.spark.write.task_attempt import stream_attempt

        task = stream_attempt(self._checkpoint) if self._is_exactly_once else None
        return self._sink.write(task, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        task = _task_of(messages)
        if task is not None:
            self._sink.commit(task.scope, batchId, messages, run=task.known_run)
        self._sink.end_tokens(messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        task = _task_of(messages)
        if (
            task is not None
        ):  # None: no task has ended; open transactions are aborted by their tasks or by the next decider
            self._sink.abort(task.scope, batchId, messages, task.run)


class Sink:
    """The part that both writers share. It imports its modules at first use.

    What is pickled of it, for tasks and for the process that commits, comes by a token where that is asked for.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._login: Login | None = task_login(options.client, options.task_token_ms)

    def __getstate__(self) -> dict[str, Any]:
        with translated():
            client = self._options.client if self._login is None else self._login.client()
        return {**vars(self), "_options": replace(self._options, client=client), "_login": None}

    def reach_brokers(self) -> None:
        """Ask any broker for nothing. Where none can be reached, each task would wait for one, and then the abort.

        That cannot wait less: a task may have a transaction open, which has no timeout.
        """
        from sparklog.client.cluster.metadata import ClusterMetadata

        with translated("WRITE"), ClusterMetadata(self._options.client) as cluster:
            cluster.fetch([])

    def write(self, task: TaskAttempt | None, batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        from sparklog.spark.worker_gc import freeze_imports
        from sparklog.spark.write.attempt import write_at_least_once, write_prepared

        with translated("WRITE"):
            if task is None or not self._options.exactly_once:
                written = TaskCommitMessage(write_at_least_once(self._options, batches))
            else:
                rows, transaction, topics = write_prepared(self._options, task, batches)
                written = TaskCommitMessage(rows, task, transaction, topics)
        freeze_imports()
        return replace(written, token_id=self._options.client.token_id)

    def commit(
        self, scope: str, batch: int, messages: Messages, *, is_resumable: bool = True, run: str | None = None
    ) -> None:
        """Decide the batch and finish it.

        Raises DataSourceError if a later batch is decided, with or without rows, or if the batch itself is decided and
        has another number of rows.
        """
        from sparklog.spark.worker_gc import freeze_imports

        transactions = _transactions_of(messages)
        rows = sum(each.rows for each in messages if each is not None)
        if not self._options.exactly_once or not (rows or is_resumable):
            return
        is_whole = all(each is None or each.transaction or not each.rows for each in messages)
        topics = frozenset[tuple[str, uuid.UUID]]().union(*(each.topics for each in messages if each is not None))
        with translated("WRITE"), self.decider(scope, is_resumable=is_resumable) as decider:
            decided = decider.commit(
                batch, transactions, run, rows, is_whole=is_whole, topics=topics, target=self._options.target
            )
            decider.forget()
        freeze_imports()
        if decided.batch > batch:
            raise _overtaken(scope, batch, decided.batch)
        if decided.rows not in (None, rows):
            raise _differs(scope, decided, rows)
        if set(decided.transactions) != set(transactions):
            _log.warning("batch %d of %r was written before: nothing is written now", batch, scope)

    def abort(self, scope: str, batch: int, messages: Messages, run: str, *, is_resumable: bool = True) -> None:
        """Abort what the run has open, as far as the brokers let it; the rest is left to the next run, or its timeout.

        An error here would take the place of that for which Spark aborts the batch: it is only logged.
        """
        if not self._options.exactly_once:
            return
        try:
            with translated("WRITE"), self.decider(scope, is_resumable=is_resumable) as decider:
                decider.abort(batch, _transactions_of(messages), run)
        except SparklogError as error:
            _log.warning(
                "what batch %d of %r has open is left to the next run, or its timeout: %s", batch, scope, error
            )

    def end_tokens(self, messages: Messages) -> None:
        """End the tokens of the tasks of these messages: the batch is over. It needs the driver's credentials."""
        ids = {each.token_id for each in messages if each is not None and each.token_id is not None}
        if ids and self._options.task_token_ms is not None:
            end_tokens(self._options.client, ids)

    def finish_abandoned(self) -> None:
        """End the transactions of unnamed batch writes whose drivers died long ago."""
        from sparklog.spark.write.open_writes import finish_abandoned

        if self._options.exactly_once and self._options.abandoned_after_ms:
            finish_abandoned(self._options.client, self._options.abandoned_after_ms)

    def decider(self, scope: str, *, is_resumable: bool) -> Decider:
        """The decider of a scope. The caller closes it."""
        from sparklog.spark.write.decider import Decider
        from sparklog.spark.write.decisions import Scope

        return Decider(self._options.client, Scope(scope, is_resumable))


def _overtaken(scope: str, batch: int, later: int) -> DataSourceError:
    return DataSourceError(
        "SPARKLOG_BATCH_OVERTAKEN",
        f"batch {batch} of {scope!r} is not written: batch {later} of it is decided already, and after that none that"
        " comes before it. A query whose checkpoint was set back, or copied, needs a new checkpoint (and starting"
        f" offsets); a batch write needs a 'txnVersion' above {later}, or another 'txnAppId'; and one at a time can"
        " write under a checkpoint or a txnAppId. If the rows are in the topic since batch"
        f" {batch} was written for the first time, there is nothing to write again",
    )


def _differs(scope: str, decided: Decision, rows: int) -> DataSourceError:
    from sparklog.spark.write.decisions import Scope, declaration

    return DataSourceError(
        "SPARKLOG_REPLAY_DIFFERS",
        f"batch {decided.batch} of {scope!r} came with {rows} rows, but it was written before with {decided.rows} rows."
        " Nothing was written now. There are two usual causes. The query ran the batch again and had other rows: it"
        " joins with a table that has changed, retention removed records that it reads (failOnDataLoss=false), it uses"
        " random functions, or the query itself was changed. Or its checkpoint was set back or copied. If the query"
        " just ran the batch again, the rows that were written stand. Run"
        f" {declaration(Scope(scope), decided.batch)} and start the query again. Then the batch's rows are neither lost"
        " nor written twice. If the checkpoint was set back or copied, do not run it, since rows may be lost or written"
        " twice. Start the query with a new checkpoint, and with 'startingOffsets' right after the last records whose"
        f" rows were written. A batch write of other data needs a 'txnVersion' above {decided.batch}",
    )


def _task_of(messages: Messages) -> TaskAttempt | None:
    return next((each.task for each in messages if each is not None and each.task is not None), None)


def _transactions_of(messages: Messages) -> list[PreparedTransaction]:
    return [each.transaction for each in messages if each is not None and each.transaction is not None]
