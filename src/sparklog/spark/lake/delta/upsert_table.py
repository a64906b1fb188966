"""A Delta table that has the last record of each key: later ones replace it, tombstones delete it.

Invariants: ``docs/adr/0032-upsert.md``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparklog.spark.lake.delta.base import TableDestination, TableIntake, TableTarget
from sparklog.spark.lake.delta.dead_letters import Settling
from sparklog.spark.lake.delta.maintenance import Maintenance
from sparklog.spark.lake.delta.stored_files import StoredFile
from sparklog.spark.lake.delta.table import Commit, DeltaTable, TableFacts
from sparklog.spark.lake.delta.upsert import Decoded, Share, Upserted, UpsertRanges, partition_value
from sparklog.spark.lake.destination import refuse
from sparklog.spark.lake.files import WrittenFile, check_compression
from sparklog.spark.lake.progress import UPSERT_PROPERTY, Progress
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
PARTITION_BY = ("topic", "partition")
_REQUIRED = ("key", "offset")
_PROPERTIES = {UPSERT_PROPERTY: "true", "delta.enableDeletionVectors": "false"}
_UNSUITABLE = {
    "delta.enableDeletionVectors": "deletion vectors: rows of its files may be deleted by other files",
    "delta.enableChangeDataFeed": "a change data feed, which only Delta's own commands write",
    "delta.enableRowTracking": "row tracking, and rows that are written anew would lose their ids",
    "delta.appendOnly": "appends only: no row can be replaced",
}
"""Properties that no upsert keeps, where they are true."""


class UpsertTarget(TableTarget):
    """What all kinds of upserted tables have: dataclasses with these fields and their own."""

    skip_keyless: bool
    """Leave out records without a key, with a warning; else they are an error."""
    more_partitions: bool
    """Go on with a topic that has more partitions than before: keys that moved have a row in each."""
    key_bytes: int
    """A task applies the latest records of the keys of a partition when it has so much of them."""


@dataclass(frozen=True)
class UpsertTable(UpsertTarget):
    """Which table, and how it is written. Raises DataSourceError for a value that there is not."""

    name: str
    """A path or URI, which has a slash, or a table of the catalog. It is made if it is not there."""
    compression: str = "snappy"
    file_bytes: int = 256 << 20
    """A file is complete when it has so much."""
    skip_keyless: bool = False
    more_partitions: bool = False
    key_bytes: int = 128 << 20
    maintenance: Maintenance = field(default_factory=Maintenance)

    def __post_init__(self) -> None:
        check_compression(self.compression)

    def open(self, spark: SparkSession) -> UpsertTableDestination:
        return UpsertTableDestination(spark, DeltaTable(spark, self.name, is_upserted=True), self)


class UpsertTableDestination(TableDestination[Upserted]):
    """The table."""

    def __init__(self, spark: SparkSession, table: DeltaTable, target: UpsertTarget) -> None:
        super().__init__(spark, table, target)
        self._target = target

    def _create(self) -> None:
        self._table.create(PARTITION_BY, _PROPERTIES)

    def begin(self) -> UpsertTableIntake:
        return UpsertTableIntake(self._begin(), self._target, self.place)

    def _begin(self) -> Commit:
        commit = self._table.begin()
        _check(self.place, commit.table)
        return commit

    def _files_of(self, outcome: Upserted) -> list[WrittenFile]:
        return outcome.added


class UpsertTableIntake(TableIntake[Upserted]):
    """One commit of files, and of those that they replace."""

    def __init__(self, commit: Commit, target: UpsertTarget, place: str, settling: Settling | None = None) -> None:
        """``settling``: how values are decoded; without it the table has them as they are."""
        super().__init__(commit, target)
        self._settling = settling
        self._target = target
        self._place = place
        self._files: dict[tuple[str | None, ...], list[StoredFile]] | None = None

    @property
    def divides_partitions(self) -> bool:
        """No: a key is in one task, so that it has one row."""
        return False

    def settle(self) -> None:
        super().settle()
        if self._settling is not None:
            self._settling.settle()

    def expect(self, partitions: Iterable[Progress]) -> None:
        partitions = list(partitions)
        counts = Counter(each.of_topic for each in partitions)
        known = self._commit.table.partition_counts
        for topic, count in counts.items():
            if known.get(topic, count) < count and not self._target.more_partitions:
                refuse(
                    self._place,
                    f"topic {topic.tp.topic} has {count} partitions now, and had {known[topic]}: a key that has moved"
                    " to another would have a row for each. Offload it to a new table, or accept the"
                    " partitions (--accept-partitions)",
                )
        self._commit.note_partition_counts(counts)
        super().expect(partitions)
        if self._settling is not None:
            self._settling.expect(partitions)

    def task(self, reading: ReadOptions, ranges: Sequence[OffsetRange]) -> UpsertRanges:
        shares = tuple(Share(each, tuple(self._files_of(each))) for each in ranges)
        target, stored = self._target, self._commit.table.stored
        decoded = Decoded(self._settling.decoding(ranges), self._settling.files) if self._settling else None
        return UpsertRanges(reading, shares, self._table_files, stored, target.skip_keyless, target.key_bytes, decoded)

    def _files_of(self, each: OffsetRange) -> list[StoredFile]:
        if self._files is None:
            self._files = {}
            partition_by = self._commit.table.partition_by
            for file in self._commit.read_files():
                value = tuple(file.partition_values.get(name) for name in partition_by)
                self._files.setdefault(value, []).append(file)
        return self._files.get(partition_value(self._commit.table.partition_by, each.tp), [])

    def finish(self, outcomes: Sequence[Upserted], offsets: Mapping[Progress, int]) -> int:
        keyless = sum(each.keyless for each in outcomes)
        if keyless:
            _log.warning("%d records have no key, and are left out of %s", keyless, self._place)
        if self._settling is not None:
            self._settling.finish([file for each in outcomes for file in each.dead_letters], offsets)
        added = [file for each in outcomes for file in each.added]
        removed = [path for each in outcomes for path in each.removed]
        return self._commit.finish(added, offsets, removed)

    def discard(self, outcomes: Iterable[Upserted]) -> None:
        found = list(outcomes)
        self._remove(file for each in found for file in each.added)
        if self._settling is not None:
            self._settling.discard(file for each in found for file in each.dead_letters)


def _check(place: str, table: TableFacts) -> None:
    if set(table.partition_by) != set(PARTITION_BY):
        refuse(place, f"it is partitioned by {', '.join(table.partition_by) or 'nothing'}, not by topic and partition")
    missing = [name for name in _REQUIRED if name not in table.columns]
    if missing:
        refuse(place, f"it has no column {', '.join(missing)}")
    for name, why in _UNSUITABLE.items():
        if table.properties.get(name, "false").lower() == "true":
            refuse(place, f"it has {why} ({name})")
