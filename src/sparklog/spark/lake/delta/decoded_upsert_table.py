"""A Delta table that has the last decoded value of each key: a row a key, whose columns are the fields of the value.

It is a decoded table (``docs/adr/0031-decoded-tables.md``) and an upserted one (``docs/adr/0032-upsert.md``), and the
invariants of both hold. A record that does not decode replaces nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparklog.errors import DataSourceError
from sparklog.spark.lake.columns import TableColumns
from sparklog.spark.lake.delta.dead_letters import Settling
from sparklog.spark.lake.delta.decoded_table import DecodedTable, dead_letters_of
from sparklog.spark.lake.delta.table import DeltaTable
from sparklog.spark.lake.delta.upsert import Upserted
from sparklog.spark.lake.delta.upsert_table import (
    PARTITION_BY,
    UpsertTableDestination,
    UpsertTableIntake,
    UpsertTarget,
)
from sparklog.spark.lake.value_schema import ValueSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class DecodedUpsertTable(DecodedTable, UpsertTarget):
    """Which table, and how it is written. Raises DataSourceError for a value that there is not."""

    partition_by: tuple[str, ...] = PARTITION_BY
    skip_keyless: bool = False
    more_partitions: bool = False
    key_bytes: int = 128 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.partition_by != PARTITION_BY:
            raise DataSourceError(
                "SPARKLOG_INVALID_OPTION",
                f"an upserted table is partitioned by {', '.join(PARTITION_BY)}, not by {', '.join(self.partition_by)}",
            )

    def open(self, spark: SparkSession) -> DecodedUpsertTableDestination:
        values = self.value_schema()
        return DecodedUpsertTableDestination(spark, self, values, self.columns(values.decoding()))


class DecodedUpsertTableDestination(UpsertTableDestination):
    """The table, and that of its dead letters."""

    def __init__(
        self, spark: SparkSession, target: DecodedUpsertTable, values: ValueSchema, columns: TableColumns
    ) -> None:
        super().__init__(spark, DeltaTable(spark, target.name, columns, is_upserted=True), target)
        self._decoding = values.decoding()
        self._dead_letters = dead_letters_of(spark, target)

    def prepare(self) -> None:
        super().prepare()
        if self._dead_letters is not None:
            self._dead_letters.prepare(self._table.table_id)

    def begin(self) -> UpsertTableIntake:
        dead_letters = self._dead_letters.begin() if self._dead_letters is not None else None
        commit = self._begin()
        settling = Settling(dead_letters, self._decoding, commit.table.progress)
        return UpsertTableIntake(commit, self._target, self.place, settling)

    def tend(self, outcomes: Sequence[Upserted]) -> None:
        super().tend(outcomes)
        if self._dead_letters is not None:
            self._dead_letters.tend(file for each in outcomes for file in each.dead_letters)
