"""A table between tasks and a commit: the rows of each attempt, and behind them a summary that says it is whole.

A row without a summary is a record. The last row of an attempt has a summary and no record. Of each task one whole
attempt counts. Attempts are numbered by Spark, each once in a session.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sparklog.errors import DataSourceError
from sparklog.spark.lake.ages import Timestamps
from sparklog.spark.lake.columns import FIRST_US, LAST_US, source_columns
from sparklog.spark.lake.destination import Refused
from sparklog.spark.read.columns import read_ranges
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import READ_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK, ATTEMPT, SUMMARY = "sparklogTask", "sparklogAttempt", "sparklogSummary"
TIMESTAMP_MS = "timestampMs"
TABLE_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", TIMESTAMP_MS, "timestampType")
"""Those of a database's table; those of all other tables are in ``lake/columns.py``."""
_READ = source_columns(READ_COLUMNS)
_STAGED = StructType(
    [*_READ.fields, StructField(TASK, LongType()), StructField(ATTEMPT, LongType()), StructField(SUMMARY, StringType())]
)


class StagedAttempt(NamedTuple):
    """A whole attempt of a task."""

    attempt: int
    rows: int
    nbytes: int
    """Of keys, values and headers, as they were read."""
    timestamps: Timestamps

    @property
    def file_count(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class StageRanges:
    """The records of ``ranges``, for a staging table."""

    read: ReadOptions
    ranges: tuple[OffsetRange, ...]

    def batches(self, task: int, attempt: int) -> Iterator[pa.RecordBatch]:
        """Rows of the staging table, the summary last."""
        rows, nbytes, timestamps = 0, 0, Timestamps()
        failure: dict[str, str] = {}
        try:
            for batch in read_ranges(self.read, _READ, self.ranges):
                rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
                timestamps.add(batch.column("timestamp"))
                yield _with_columns(batch, task, attempt)
        except DataSourceError as error:
            failure = Refused.of(error)._asdict()
        told = {"rows": rows, "bytes": nbytes, "timestamps": timestamps.to_json(), **failure}
        yield _summary_row(json.dumps(told), task, attempt)


def staged(spark: SparkSession, tasks: Sequence[StageRanges]) -> DataFrame:
    """The rows that all tasks put into the staging table, a task each of Spark's."""
    chosen, count = list(tasks), len(tasks)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from chosen[task].batches(task, context.taskAttemptId())

    frame = spark.range(0, count, 1, count).mapInArrow(work, _STAGED)
    return _as_stored(frame).select(*TABLE_COLUMNS, TASK, ATTEMPT, SUMMARY)


def new_table(spark: SparkSession) -> DataFrame:
    """No rows, with the columns of a table that is made for an offload."""
    return _as_stored(spark.createDataFrame([], _STAGED)).select(*TABLE_COLUMNS)


def _as_stored(frame: DataFrame) -> DataFrame:
    """Headers as JSON, which has an escape for NUL; times that have no date as null."""
    micros = functions.unix_micros("timestamp")
    has_date = (micros >= FIRST_US) & (micros <= LAST_US)
    values = functions.transform(
        "headers",
        lambda each: functions.struct(each["key"].alias("key"), functions.base64(each["value"]).alias("value")),
    )
    return frame.withColumns(
        {
            "headers": functions.when(
                functions.size("headers") > 0, functions.to_json(values, {"ignoreNullFields": "false"})
            ),
            TIMESTAMP_MS: functions.expr("unix_micros(timestamp) div 1000"),
            "timestamp": functions.when(has_date, functions.col("timestamp")),
        }
    )


def whole_attempts(summaries: Iterable[tuple[int, int, str]], tasks: int) -> list[StagedAttempt | Refused]:
    """One whole attempt of each task, from rows of task, attempt and summary. Raises DataSourceError for a task that
    has none.
    """
    chosen: dict[int, tuple[int, str]] = {}
    for task, attempt, summary in summaries:
        known = chosen.get(task)
        if known is None or "code" in json.loads(known[1]):
            chosen[task] = attempt, summary
    if len(chosen) != tasks:
        raise DataSourceError(
            "SPARKLOG_TABLE_NOT_WRITTEN", f"the staging table has {len(chosen)} tasks of {tasks}: somebody changed it"
        )
    return [_attempt(*chosen[task]) for task in range(tasks)]


def _attempt(attempt: int, summary: str) -> StagedAttempt | Refused:
    told: dict[str, Any] = json.loads(summary)
    if "code" in told:
        return Refused(told["code"], told["text"])
    return StagedAttempt(attempt, told["rows"], told["bytes"], Timestamps.from_json(told["timestamps"]))


def _with_columns(batch: pa.RecordBatch, task: int, attempt: int) -> pa.RecordBatch:
    size = batch.num_rows
    columns = [batch.column(name) for name in _READ.names]
    columns += [pa.repeat(pa.scalar(number, pa.int64()), size) for number in (task, attempt)]
    return pa.RecordBatch.from_arrays([*columns, pa.nulls(size, pa.string())], names=_STAGED.names)


def _summary_row(summary: str, task: int, attempt: int) -> pa.RecordBatch:
    values = {TASK: task, ATTEMPT: attempt, SUMMARY: summary}
    return pa.RecordBatch.from_pylist([values], schema=to_arrow_schema(_STAGED, timezone="UTC"))
