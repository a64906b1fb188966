"""The data source that ``format("sparklog")`` names.

Spark imports this module in every Python process that plans or runs a query, and one failing import would disable all
Python data sources. So this module imports only the standard library and pyspark at its top, the rest at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparklog.spark.read.batch_reader import SparklogReader
    from sparklog.spark.stream.reader import SparklogStreamReader
    from sparklog.spark.write.writer import SparklogStreamWriter, SparklogWriter


class SparklogDataSource(DataSource):  # type: ignore[misc]
    """Topics of a sparklog or Kafka cluster, as tables and as streams.

    The options are those of ``spark/options/table.py``. A schema that the user gives selects columns.
    """

    @classmethod
    def name(cls) -> str:
        return "sparklog"

    def schema(self) -> StructType:
        from sparklog.spark.read.options import history_of, wants_headers
        from sparklog.spark.schema import source_schema

        history = history_of(self.options)
        if history is not None:
            from sparklog.spark.lake.history.snapshot import Snapshot

            return Snapshot.open(*history).read_schema(include_headers=wants_headers(self.options))
        return source_schema(wants_headers(self.options))

    def reader(self, schema: StructType) -> SparklogReader:
        from sparklog.spark.read.batch_reader import SparklogReader
        from sparklog.spark.read.options import ReadOptions

        options = ReadOptions.for_batch(self.options)
        if options.history is not None:
            from sparklog.spark.lake.history.union import UnionReader

            return UnionReader(options, schema)
        return SparklogReader(options, schema)

    def streamReader(self, schema: StructType) -> SparklogStreamReader:  # noqa: N802
        from sparklog.spark.read.options import ReadOptions
        from sparklog.spark.stream.reader import SparklogStreamReader

        options = ReadOptions.for_stream(self.options)
        if options.history is not None:
            from sparklog.spark.lake.history.union import UnionStreamReader

            return UnionStreamReader(options, schema)
        return SparklogStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> SparklogWriter:
        from sparklog.spark.write.options import WriteOptions
        from sparklog.spark.write.writer import SparklogWriter

        writer = SparklogWriter(WriteOptions.for_batch(self.options), schema, overwrite)
        writer.reach_brokers()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> SparklogStreamWriter:  # noqa: N802, ARG002
        from sparklog.spark.write.options import WriteOptions
        from sparklog.spark.write.writer import SparklogStreamWriter

        return SparklogStreamWriter(WriteOptions.for_stream(self.options), schema)
