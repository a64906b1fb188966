"""Records of the log as rows of a decoded table: what the offload would make of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.spark.lake.columns import source_columns
from sparklog.spark.lake.value_schema import ValueSchema
from sparklog.spark.read.columns import pieces
from sparklog.spark.schema import READ_COLUMNS

_log = logging.getLogger(__name__)


class DecodedRows:
    """Decodes the records of one task. Raises DataSourceError for a schema that cannot be read."""

    columns = source_columns(READ_COLUMNS)
    """What is to be read of the log."""

    def __init__(self, values: ValueSchema, schema: StructType) -> None:
        self._decoding = values.decoding()
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._left_out = 0

    def rows(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of records of one partition. Records that do not decode are left out if they are dead letters.

        Raises DataSourceError for such a record of a table without dead letters.
        """
        found = self._decoding.rows(records)
        self._left_out += 0 if found.dead is None else found.dead.num_rows
        there = set(found.decoded.schema.names)
        arrays = [
            found.decoded.column(field.name).cast(field.type)
            if field.name in there
            else pa.nulls(found.decoded.num_rows, field.type)
            for field in self._schema
        ]
        if found.decoded.num_rows:
            yield from pieces(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def report(self) -> None:
        """Log how many records were left out."""
        if self._left_out:
            _log.warning("%d records of the log do not decode, and are left out: dead letters", self._left_out)
