"""Records of a log as rows of a decoded table, and as dead letters. A task does it batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from sparklog.errors import DataSourceError
from sparklog.spark.values.decoded import ValueDecoder
from sparklog.structs import TopicPartition

REASON = "reason"
"""The column of a table of dead letters that says why."""


class Settled(NamedTuple):
    """What a former attempt at a partition has settled: dead letters are committed before the other rows."""

    upto: int
    """Below this offset each record is settled."""
    dead: npt.NDArray[np.int64]
    """The offsets of those that are dead letters, of the ones that are yet to be offloaded. Sorted."""


class Rows(NamedTuple):
    """What became of a batch of records."""

    decoded: pa.RecordBatch
    dead: pa.RecordBatch | None


@dataclass(frozen=True)
class Decoding:
    """How records become rows. It is pickled."""

    decoder: ValueDecoder
    is_text_key: bool = False
    """The column ``key`` is a string."""
    into: str | None = None
    """The one column that has all fields, as a struct; else each field is a column."""
    has_dead_letters: bool = False
    settled: Mapping[TopicPartition, Settled] = field(default_factory=dict)

    @property
    def columns(self) -> StructType:
        """Of the values, in a table."""
        return self.decoder.schema if self.into is None else StructType().add(self.into, self.decoder.schema)

    def rows(self, records: pa.RecordBatch) -> Rows:
        """``records`` are of one partition, with ``value``, ``key`` and where they stand.

        Raises DataSourceError for a record that does not decode, if there is no place for dead letters or it was
        settled that it does.
        """
        records, settled_upto = self._unsettled(records)
        decoded = self.decoder.decode(records.column("value"))
        reasons = dict(decoded.reasons)
        columns = self._fields(decoded.data)
        if self.is_text_key:
            columns["key"], bad_keys = _as_text(records.column("key"))
            reasons |= {row: f"the key {bad_keys[row]}" for row in bad_keys if row not in reasons}
        self._check(records, reasons, settled_upto)
        rows = _with_columns(records, columns)
        if not reasons:
            return Rows(rows, None)
        bad = np.zeros(len(records), bool)
        bad[list(reasons)] = True
        return Rows(rows.filter(pa.array(~bad)), _dead_letters(records.filter(pa.array(bad)), reasons))

    def _unsettled(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """The records but for those that are dead letters already; below which offset all are settled."""
        if not self.settled or not records.num_rows:
            return records, 0
        tp = TopicPartition(records.column("topic")[0].as_py(), records.column("partition")[0].as_py())
        settled = self.settled.get(tp)
        if settled is None:
            return records, 0
        is_dead = np.isin(np.asarray(records.column("offset")), settled.dead)
        return records.filter(pa.array(~is_dead)), settled.upto

    def _fields(self, data: pa.StructArray) -> dict[str, pa.Array]:
        if self.into is not None:
            return {self.into: data}
        return dict(zip(self.decoder.schema.names, data.flatten(), strict=True))

    def _check(self, records: pa.RecordBatch, reasons: Mapping[int, str], settled_upto: int) -> None:
        if not reasons:
            return
        first = min(reasons)
        offset = records.column("offset")[first].as_py()
        said = f"{_place(records, first)}: {reasons[first]}"
        if not self.has_dead_letters:
            raise DataSourceError(
                "SPARKLOG_UNPARSED_VALUE",
                f"{said}. Name a table for dead letters (--dead-letters), and such records go there",
            )
        if offset < settled_upto:
            raise DataSourceError(
                "SPARKLOG_UNPARSED_VALUE",
                f"{said}. A former run has settled that the record decodes, and died before it was in the table:"
                f" its dead letters go up to offset {settled_upto}. Run once with the schema of that time; or if dead"
                " letters were deleted since, restore them",
            )


def _place(records: pa.RecordBatch, row: int) -> str:
    topic, partition, offset = (records.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    return f"topic {topic}, partition {partition}, offset {offset}"


def _as_text(keys: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """The keys as text, null where they are none; which ones are not, and why."""
    try:
        return keys.cast(pa.string()), {}
    except pa.ArrowException:
        pass
    texts: list[str | None] = []
    bad: dict[int, str] = {}
    for row, key in enumerate(keys.to_pylist()):
        try:
            texts.append(None if key is None else key.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            bad[row] = f"is not UTF-8, from byte {error.start} on"
    return pa.array(texts, pa.string()), bad


def _with_columns(records: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """The records with these columns, in place of those of the same names."""
    found = dict(zip(records.schema.names, records.columns, strict=True)) | dict(columns)
    return pa.RecordBatch.from_arrays(list(found.values()), list(found))


def _dead_letters(records: pa.RecordBatch, reasons: Mapping[int, str]) -> pa.RecordBatch:
    return records.append_column(REASON, pa.array([reasons[row] for row in sorted(reasons)], pa.string()))
