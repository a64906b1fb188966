"""Where a task attempt stands: which sink, run, batch, partition and attempt, as Spark tells its tasks."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext

from sparklog.errors import DataSourceError

_BATCH, _QUERY, _RUN = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"
_UNKNOWN_RUN = "-"


class Place(NamedTuple):
    """One task attempt. ``lasts``: whether somebody may come back to the scope."""

    scope: str
    run: str
    batch: int
    partition: int
    attempt: int
    lasts: bool = True

    @property
    def known_run(self) -> str | None:
        """None where Spark did not tell it."""
        return None if self.run == _UNKNOWN_RUN else self.run


def batch_place(scope: str, run: str, batch: int, *, lasts: bool) -> Place:
    """The attempt that runs here, of a batch write whose driver chose the rest."""
    context = TaskContext.get()
    if context is None:
        return Place(scope, run, batch, 0, 0, lasts)
    return Place(scope, run, batch, context.partitionId(), context.attemptNumber(), lasts)


def stream_place(checkpoint: str | None) -> Place:
    """The attempt that runs here, of a streaming query.

    Its scope is the query's id, which lives in the checkpoint, or else the checkpoint's place. Raises DataSourceError
    where Spark tells no batch, or neither of the two.
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
    return Place(scope, run, int(batch), context.partitionId(), context.attemptNumber())
