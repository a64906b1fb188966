"""Batch reads: the driver plans the ranges, once for each DataFrame, from the options alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.spark.failures import translated
from sparklog.spark.options.task_login import Login, TaskLogin
from sparklog.spark.read.offsets import OffsetRange, Split, into_tasks
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.read.resolver import OffsetResolver
from sparklog.spark.read.sizes import PartitionSizes, SizeEstimator
from sparklog.spark.schema import check_read_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class RangesPartition(InputPartition):  # type: ignore[misc]
    """The ranges that one task reads, in order."""

    ranges: tuple[OffsetRange, ...]
    client: ClientConfig | None = field(default=None, repr=False, kw_only=True)
    """With which the task comes to the brokers, where it is not as the driver."""


def with_login(tasks: Sequence[RangesPartition], login: Login | None) -> list[RangesPartition]:
    """The tasks, which come by this login; None where they come as the driver does."""
    if login is None or not tasks:
        return [*tasks]
    client = login.client()
    return [replace(each, client=client) for each in tasks]


def login_of_tasks(options: ReadOptions) -> TaskLogin | None:
    """None where tasks come as the driver does."""
    return None if options.task_token_ms is None else TaskLogin(options.client, options.task_token_ms)


def options_of_task(options: ReadOptions, partition: RangesPartition) -> ReadOptions:
    """What a task reads with."""
    return options if partition.client is None else replace(options, client=partition.client)


def pickled_options(options: ReadOptions) -> ReadOptions:
    """The options as they are sent to tasks: without the driver's credentials, where tasks have others."""
    return options if options.task_token_ms is None else replace(options, client=options.client.without_credentials())


def plan_tasks(options: ReadOptions, ranges: Sequence[OffsetRange], sizes: SizeEstimator) -> list[RangesPartition]:
    """The tasks that read the ranges; none if all are empty."""
    waiting = {each.tp: each.start for each in ranges if each.size > 0}
    by_bytes = waiting and (options.min_partitions or options.max_bytes_per_partition)
    split = Split(
        min_tasks=options.min_partitions,
        max_records=options.max_records_per_partition,
        max_bytes=options.max_bytes_per_partition,
        weights=sizes.bytes_per_offset(waiting, waiting) if by_bytes else {},
    )
    return [RangesPartition(tuple(task)) for task in into_tasks(ranges, split)]


class SparklogReader(DataSourceReader):  # type: ignore[misc]
    """The batch source. It pushes no filter down: Spark 4.2 shares one plan among all uses of a DataFrame."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.history is None:  # else the table says which columns there are
            check_read_schema(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[RangesPartition]:
        """The tasks, one at least."""
        with translated():
            if self._options.directories:
                from sparklog.spark.read.directories import DirectoryResolver

                resolver = DirectoryResolver(self._options)
                tasks = plan_tasks(self._options, resolver.batch_ranges(), resolver)
            else:
                with ClusterMetadata(self._options.client) as cluster:
                    ranges = OffsetResolver(cluster, self._options).batch_ranges()
                    planned = plan_tasks(self._options, ranges, PartitionSizes(cluster))
                    tasks = with_login(planned, login_of_tasks(self._options))
        return tasks or [RangesPartition(())]

    def read(self, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
        from sparklog.spark.read.columns import read_ranges

        return read_ranges(options_of_task(self._options, partition), self._schema, partition.ranges)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_options": pickled_options(self._options)}
