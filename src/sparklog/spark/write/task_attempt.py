"""The identity of a task attempt: its sink, run, batch, partition and attempt number, from Spark's task context."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext

from sparklog.errors import DataSourceError

_BATCH, _QUERY, _RUN = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"
_UNKNOWN_RUN = "-"


class TaskAttempt(NamedTuple):
    """One task attempt. ``is_resumable``: a later run may continue its scope."""

    scope: str
    run: str
    batch: int
    partition: int
    attempt: int
    is_resumable: bool = True

    @property
    def known_run(self) -> str | None:
        """The run; None if Spark did not tell it."""
        return None if self.run == _UNKNOWN_RUN else self.run


def batch_attempt(scope: str, run: str, batch: int, *, is_resumable: bool) -> TaskAttempt:
    """The attempt that runs in this process, of a batch write whose driver chose the other fields."""
    context = TaskContext.get()
    if context is None:
        return TaskAttempt(scope, run, batch, 0, 0, is_resumable)
    return TaskAttempt(scope, run, batch, context.partitionId(), context.attemptNumber(), is_resumable)


def stream_attempt(checkpoint: str | None) -> TaskAttempt:
    """The attempt that runs in this process, of a streaming query.

    Its scope is the query's id, which the checkpoint keeps, or else the checkpoint's location. Raises DataSourceError
    if Spark tells no batch, or neither of the two.
    """
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH)
    scope = None if context is None else context.getLocalProperty(_QUERY) or checkpoint
    if context is None or batch is None or not scope:
        raise DataSourceError(
            "SPARKLOG_UNKNOWN_BATCH",
            "this Spark does not tell its tasks which query and batch they write: set the option"
            " delivery=at-least-once",
        )
    run = context.getLocalProperty(_RUN) or _UNKNOWN_RUN
    return TaskAttempt(scope, run, int(batch), context.partitionId(), context.attemptNumber())
