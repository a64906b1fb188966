"""The streaming source that Spark calls.

One instance lives in a process of the driver while the query runs, and talks to the brokers there. Another is pickled
to the executors for ``read``, so connections are opened at first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from sparklog.spark.failures import translated
from sparklog.spark.options.task_login import KeptLogin
from sparklog.spark.read.batch_reader import (
    RangesPartition,
    options_of_task,
    pickled_options,
    plan_tasks,
    with_login,
)
from sparklog.spark.read.offsets import to_json
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import check_read_schema
from sparklog.spark.stream.offset import StreamOffset
from sparklog.spark.stream.planner import StreamPlanner

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class SparklogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads micro-batches of what the options select."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.history is None:  # else the table says which columns there are
            check_read_schema(schema)
        self._options = options
        self._schema = schema
        self._open_planner: StreamPlanner | None = None
        self._login = None if options.task_token_ms is None else KeptLogin(options.client, options.task_token_ms)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with translated():
            return self._planner().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        with translated():
            unlimited = isinstance(limit, ReadAllAvailable)
            return self._planner().end_of_batch(StreamOffset.from_json(start), unlimited=unlimited).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with translated():
            self._planner().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        latest = self._open_planner.latest if self._open_planner else None
        return to_json(latest) if latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangesPartition]:
        with translated():
            planner = self._planner()
            ranges = planner.ranges(StreamOffset.from_json(start), StreamOffset.from_json(end))
            return with_login(plan_tasks(self._options, ranges, planner.sizes), self._login)

    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002 (all batches before the next one are over)
        if self._login is not None:
            self._login.settle()

    def read(self, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
        from sparklog.spark.read.columns import read_ranges

        return read_ranges(options_of_task(self._options, partition), self._schema, partition.ranges)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_options": pickled_options(self._options), "_login": None}

    def stop(self) -> None:
        if self._open_planner is not None:
            self._open_planner.close()
            self._open_planner = None
        if self._login is not None:
            self._login.close()

    def _planner(self) -> StreamPlanner:
        if self._open_planner is None:
            self._open_planner = self._new_planner()
        return self._open_planner

    def _new_planner(self) -> StreamPlanner:
        return StreamPlanner(self._options)
