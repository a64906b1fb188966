"""Writing a DataFrame to topics: Spark's side of it. Arrow batches in, rows never; exactly once unless asked otherwise.

Spark may run a task again, twice at once, or again after the driver died. So a task leaves its rows in an open
transaction and hands the driver its name; the driver decides which make up the batch (``decider``). What passes between
the two are the messages alone: a streaming query's ``commit`` and ``abort`` run on a writer made afresh.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sparklog.errors import DataSourceError
from sparklog.spark.schema import check_write_schema
from sparklog.spark.write.attempt_names import unnamed_scope

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sparklog.client.admin.prepared import PreparedTransaction
    from sparklog.spark.write.decider import Decider
    from sparklog.spark.write.decisions import Decision
    from sparklog.spark.write.options import WriteOptions
    from sparklog.spark.write.task_place import Place

_log = logging.getLogger(__name__)


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task wrote, to which topics (name, id); ``transaction`` (id, producer id, epoch) holds it, where there
    is one.
    """

    rows: int
    place: Place | None = None
    transaction: PreparedTransaction | None = None
    topics: frozenset[tuple[str, uuid.UUID]] = frozenset()


Messages = Sequence[Written | None]


class SparklogWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """The batch sink; only appending makes sense to a log."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SAVE_MODE", "a topic can only be appended to: use mode('append')"
            )
        check_write_schema(schema, options.topic)
        self._sink = Sink(options)
        self._run = uuid.uuid4().hex[:16]
        self._lasts = options.name is not None
        self._scope = options.name or unnamed_scope(self._run)
        self._batch = options.txn_version

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from sparklog.spark.write.task_place import batch_place

        return self._sink.write(batch_place(self._scope, self._run, self._batch, lasts=self._lasts), iterator)

    def commit(self, messages: Messages) -> None:
        self._sink.commit(self._scope, self._batch, messages, lasts=self._lasts)
        self._sink.finish_abandoned()

    def abort(self, messages: Messages) -> None:
        self._sink.abort(self._scope, self._batch, messages, self._run, lasts=self._lasts)


class SparklogStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The streaming sink; rows are appended in the complete output mode too. Python sinks have no update mode."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_write_schema(schema, options.topic)
        self._options = options
        self._sink = Sink(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from sparklog.spark.write.task_place import stream_place

        place = stream_place(self._options.checkpoint) if self._options.exactly_once else None
        return self._sink.write(place, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        place = _place_of(messages)
        if place is not None:
            self._sink.commit(place.scope, batchId, messages, run=place.known_run)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        place = _place_of(messages)
        if place is not None:  # else no task has come to its end, and those that began abort, or are found later
            self._sink.abort(place.scope, batchId, messages, place.run)


class Sink:
    """What the two writers have in common. Imports what it needs when it is used."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, place: Place | None, batches: Iterator[pa.RecordBatch]) -> Written:
        from sparklog.spark.failures import translated
        from sparklog.spark.worker_heap import freeze_imports
        from sparklog.spark.write.attempt import write_at_least_once, write_prepared

        with translated():
            if place is None or not self._options.exactly_once:
                written = Written(write_at_least_once(self._options, batches))
            else:
                rows, transaction, topics = write_prepared(self._options, place, batches)
                written = Written(rows, place, transaction, topics)
        freeze_imports()
        return written

    def commit(self, scope: str, batch: int, messages: Messages, *, lasts: bool = True, run: str | None = None) -> None:
        """Decide and finish. Raises DataSourceError where a later batch is decided, whether there are rows or not."""
        from sparklog.spark.failures import translated
        from sparklog.spark.worker_heap import freeze_imports

        transactions = _transactions_of(messages)
        rows = sum(each.rows for each in messages if each is not None)
        if not self._options.exactly_once or not (rows or lasts):
            return
        is_whole = all(each is None or each.transaction or not each.rows for each in messages)
        topics = frozenset[tuple[str, uuid.UUID]]().union(*(each.topics for each in messages if each is not None))
        with translated(), self.decider(scope, lasts=lasts) as decider:
            decided = decider.commit(batch, transactions, run, rows, is_whole=is_whole, topics=topics)
            decider.forget()
        freeze_imports()
        if decided.batch > batch:
            raise _overtaken(scope, batch, decided.batch)
        if set(decided.transactions) != set(transactions):
            _warn_of_replay(scope, decided, rows)

    def abort(self, scope: str, batch: int, messages: Messages, run: str, *, lasts: bool = True) -> None:
        from sparklog.spark.failures import translated

        if self._options.exactly_once:
            with translated(), self.decider(scope, lasts=lasts) as decider:
                decider.abort(batch, _transactions_of(messages), run)

    def finish_abandoned(self) -> None:
        """End what batch writes without a name have left whose drivers died long ago."""
        from sparklog.spark.write.leftovers import finish_abandoned

        if self._options.exactly_once and self._options.abandoned_after_ms:
            finish_abandoned(self._options.client, self._options.abandoned_after_ms)

    def decider(self, scope: str, *, lasts: bool) -> Decider:
        """Who decides for this sink."""
        from sparklog.spark.write.decider import Decider
        from sparklog.spark.write.decisions import Scope

        return Decider(self._options.client, Scope(scope, lasts))


def _overtaken(scope: str, batch: int, later: int) -> DataSourceError:
    return DataSourceError(
        "SPARKLOG_BATCH_OVERTAKEN",
        f"batch {batch} of {scope!r} is not written: batch {later} of it is decided already, and after that none that"
        " comes before it. A query whose checkpoint was set back, or copied, needs a new checkpoint (and starting"
        f" offsets); a batch write needs a 'txnVersion' above {later}, or another 'txnAppId'; and one at a time can"
        " write under a checkpoint or a txnAppId. If the rows are in the topic since batch"
        f" {batch} was written for the first time, there is nothing to write again",
    )


def _warn_of_replay(scope: str, decided: Decision, rows: int) -> None:
    """The batch was decided before: its rows stand, be those that came now the same or not."""
    if decided.rows in (None, rows):
        _log.warning("batch %d of %r was written before: nothing is written now", decided.batch, scope)
        return
    _log.error(
        "batch %d of %r was written before, with %d rows, and nothing is written now, though %d rows came: if the"
        " checkpoint was set back, or this is other data, write it with a new checkpoint, or under another txnVersion",
        decided.batch,
        scope,
        decided.rows,
        rows,
    )


def _place_of(messages: Messages) -> Place | None:
    return next((each.place for each in messages if each is not None and each.place is not None), None)


def _transactions_of(messages: Messages) -> list[PreparedTransaction]:
    return [each.transaction for each in messages if each is not None and each.transaction is not None]
