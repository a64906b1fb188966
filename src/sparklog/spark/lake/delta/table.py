"""A Delta table that takes files, through Delta's own code in the session's JVM; and how far it has come in a log.

How far stands in application transactions: for ``sparklog:CLUSTER:TOPIC:TOPIC-ID:PARTITION`` the version is the next
offset, and for ``sparklog-epoch:...`` the leader epoch with it. One commit has files and offsets. A commit fails if
another has written one of its offsets since it began.
Invariants and reasons: ``docs/adr/0029-offload.md``. Source: Delta's protocol, "Transaction Identifiers".
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from delta.tables import DeltaTable as SparkTable
from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from sparklog.errors import ConfigError, DataSourceError
from sparklog.spark.failures import first_line, refusal_of_disk, words_of
from sparklog.spark.lake.columns import PartitionValue, TableColumns
from sparklog.spark.lake.delta.durable import DurableLog
from sparklog.spark.lake.delta.stored_files import StoredFile
from sparklog.spark.lake.destination import Changed, Overtaken, refuse
from sparklog.spark.lake.evolution import Unsuited
from sparklog.spark.lake.files import WrittenFile
from sparklog.spark.lake.location import location_of
from sparklog.spark.lake.progress import APPLICATION, COUNT_APPLICATION, EPOCH_APPLICATION, UPSERT_PROPERTY, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST = f"{APPLICATION}:first"
"""What the first offload to a table writes besides, so that of two with different topics one fails."""
_CHANGES = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
"""What a commit meets that another one has come before. In Python they have no common base."""
_FORGETS = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True)
class TableFacts:
    """A table as it is when a commit begins."""

    location: str
    version: int
    schema: StructType
    partition_by: tuple[str, ...]
    progress: dict[Progress, int]
    """The next offset of each partition that has been offloaded to it."""
    epochs: dict[Progress, int]
    """The leader epochs in which these offsets were found."""
    partition_counts: dict[Progress, int]
    """How many partitions each topic had, as far as that was noted (``Progress.of_topic``)."""
    table_id: str
    """Drawn by Delta when the table was made."""
    properties: dict[str, str]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @property
    def stored(self) -> StructType:
        """The columns that are in the files: those of the partition are in their names."""
        return StructType([each for each in self.schema.fields if each.name not in self.partition_by])


@dataclass(slots=True)
class _LastCommit:
    """The applications' versions as the last commit of this job left them: Delta finds them out in jobs of Spark, which
    take a second of processor time however little is committed.

    They hold for the one version of the table that follows the one which the job had read, and for no other.
    """

    table_id: str = ""
    version: int = -1
    applications: dict[str, int] = field(default_factory=dict)

    def known(self, table_id: str, version: int) -> dict[str, int] | None:
        """Those of a version of a table; None if they have to be found out."""
        return self.applications if (table_id, version) == (self.table_id, self.version) else None


class DeltaTable:
    """One table. It belongs to one thread."""

    def __init__(
        self, spark: SparkSession, name: str, columns: TableColumns | None = None, *, is_upserted: bool = False
    ) -> None:
        """``name`` is a path or a URI if it has a slash, else a table of the catalog. A path may be relative.
        ``is_upserted``: it has the last record of each key.

        Raises ConfigError where the session has no Delta Lake, DataSourceError for a ``file:`` URI without a path.
        """
        self.name = name
        self._path = location_of(name) if "/" in name else None
        self._spark = spark
        self._columns = columns or TableColumns()
        self._is_upserted = is_upserted
        self._last = _LastCommit()
        self._durable = DurableLog(name)
        self._delta = _delta_of(spark)

    def create(self, partition_by: Sequence[str], properties: Mapping[str, str] | None = None) -> None:
        """Make the table unless it is there. Raises DataSourceError for a place that holds something else."""
        table = SparkTable.createIfNotExists(self._spark).addColumns(self._columns.of_new_table(partition_by))
        for name, value in (properties or {}).items():
            table = table.property(name, value)
        table = table.tableName(self.name) if self._path is None else table.location(self._path)
        try:
            table.partitionedBy(*partition_by).execute()
        except Exception as error:
            raise DataSourceError(
                "SPARKLOG_NO_TABLE", f"table {self.name} cannot be made: {words_of(error)}{self._advice()}"
            ) from error

    def _advice(self) -> str:
        """For a table of the catalog that cannot be made: most often the catalog has forgotten that it was."""
        if self._path is not None:
            return ""
        return (
            " A catalog without a metastore forgets its tables with the session: name the table by its path, which"
            " has a slash in it"
        )

    @property
    def exists(self) -> bool:
        if self._path is not None:
            return bool(SparkTable.isDeltaTable(self._spark, self._path))
        return bool(self._spark.catalog.tableExists(self.name))

    def begin(self) -> Commit:
        """Begin a commit on the table as it is now. Raises DataSourceError for a table that does not suit."""
        transaction = self._log.startTransaction()
        commit = Commit(self._spark, self._delta, transaction, self.name, self._columns, self._last, self._durable)
        if self._is_upserted != (commit.table.properties.get(UPSERT_PROPERTY) == "true"):
            kind = (
                "was not made for upserts: name another table, or make it"
                if self._is_upserted
                else "has the last record of each key: upsert to it (--upsert), or name another table; it was made"
            )
            _refuse(self.name, f"it {kind} with TBLPROPERTIES ('{UPSERT_PROPERTY}' = 'true')")
        return commit

    @property
    def table_id(self) -> str:
        """Drawn by Delta when the table was made."""
        return str(self._snapshot.metadata().id())

    @property
    def properties(self) -> dict[str, str]:
        """Of the table."""
        return dict(_pairs(self._snapshot.metadata().configuration().mkString("\n")))

    @property
    def commands(self) -> SparkTable:
        """Delta's own commands on the table."""
        return SparkTable.forPath(self._spark, self._location())

    @property
    def partition_by(self) -> tuple[str, ...]:
        return _partition_columns(self._snapshot.metadata())

    @property
    def deleted_files_stay_s(self) -> float:
        """How long ``VACUUM`` keeps files that the table no longer names, by its own setting."""
        return int(self._delta.DeltaLog.tombstoneRetentionMillis(self._snapshot.metadata())) / 1000

    def small_files(self, nbytes: int) -> Counter[PartitionValue]:
        """How many files of each partition of the table are smaller."""
        files = DataFrame(self._snapshot.allFiles().toDF(), self._spark)
        rows = files.where(files["size"] < nbytes).select("partitionValues").collect()
        names = self.partition_by
        return Counter(tuple(row["partitionValues"].get(name) for name in names) for row in rows)

    def rows_of(self, version: int, condition: Column) -> DataFrame:
        """The rows of a version of the table."""
        table = self._spark.read.format("delta").option("versionAsOf", version).load(self._location())
        return table.where(condition)

    @property
    def _snapshot(self) -> Any:
        """The table as it is now."""
        return self._log.startTransaction().snapshot()

    @property
    def _log(self) -> Any:
        return self._delta.DeltaLog.forTable(self._spark._jsparkSession, self._location())

    def _location(self) -> str:
        if not self.exists:
            raise DataSourceError("SPARKLOG_NO_TABLE", f"there is no Delta table {self.name}")
        if self._path is not None:
            return self._path
        return str(SparkTable.forName(self._spark, self.name).detail().first()["location"])


class Commit:
    """A commit that has begun: what the table was then, and what is to be added."""

    def __init__(
        self,
        spark: SparkSession,
        delta: Any,
        transaction: Any,
        name: str,
        columns: TableColumns,
        last: _LastCommit,
        durable: DurableLog,
    ) -> None:
        self._jvm = spark._jvm
        self._delta = delta
        self._transaction = transaction
        self._name = name
        self._columns = columns
        self._last = last
        self._durable = durable
        self._evolved: StructType | None = None
        self._properties: dict[str, str] = {}
        self._epochs: dict[Progress, int] = {}
        self._partition_counts: dict[Progress, int] = {}
        self._read: dict[str, Any] | None = None
        self.table = self._facts()

    def _facts(self) -> TableFacts:
        snapshot = self._transaction.snapshot()
        metadata = snapshot.metadata()
        configuration = dict(_pairs(metadata.configuration().mkString("\n")))
        schema = self._suited(StructType.fromJson(json.loads(metadata.schemaString())))
        partition_by = _partition_columns(metadata)
        _check(self._name, schema, partition_by, configuration, self._columns.partition_columns)
        table_id, version = str(metadata.id()), int(snapshot.version())
        known = self._last.known(table_id, version)
        if known is None:
            known = {name: int(each) for name, each in _pairs(snapshot.transactions().mkString("\n"))}
        self._applications = known
        return TableFacts(
            str(snapshot.path().getParent().toString()),
            version,
            schema,
            partition_by,
            _told(self._applications, APPLICATION),
            _told(self._applications, EPOCH_APPLICATION),
            _told(self._applications, COUNT_APPLICATION),
            table_id=table_id,
            properties=configuration,
        )

    def _suited(self, schema: StructType) -> StructType:
        """The table's columns with this commit."""
        try:
            found = self._columns.suited(schema)
        except Unsuited as error:
            _refuse(self._name, str(error))
        if found.added:
            self._evolved = found.schema
        return found.schema

    @property
    def is_empty(self) -> bool:
        """Whether the table has no file. Delta counts them in jobs of Spark, unlike all that ``table`` says."""
        return int(self._transaction.snapshot().numOfFiles()) == 0

    def expect(self, partitions: Iterable[Progress]) -> None:
        """Let the commit fail if another one writes the offsets of these before it; the first of all, if any does."""
        expected = self._transaction.readTxn()  # its ``txnVersion`` would find out the version as well
        for each in partitions:
            expected.addOne(each.to_application())
        if not self.table.progress:
            expected.addOne(_FIRST)

    def note_epochs(self, epochs: Mapping[Progress, int]) -> None:
        """Let the commit say in which leader epochs its offsets were found."""
        self._epochs = dict(epochs)

    def note_partition_counts(self, counts: Mapping[Progress, int]) -> None:
        """Let the commit say how many partitions topics have (``Progress.of_topic``)."""
        self._partition_counts = dict(counts)

    def note_properties(self, properties: Mapping[str, str]) -> None:
        """Let the commit give the table these properties, as far as it does not have them."""
        self._properties = {
            name: value for name, value in properties.items() if self.table.properties.get(name) != value
        }

    def read_files(self) -> list[StoredFile]:
        """All files of the table. The commit fails from now on if another one adds or removes a file before it.

        Raises DataSourceError for a table with a file that cannot be read alone.
        """
        found = self._jvm.java.util.ArrayList(self._java(self._transaction.filterFiles()))
        self._read = {}
        files = []
        for each in found:
            try:
                file = StoredFile.from_action(json.loads(each.json())["add"])
            except ValueError as error:
                _refuse(self._name, str(error))
            files.append(file)
            self._read[file.path] = each
        return files

    def finish(self, files: Iterable[WrittenFile], offsets: Mapping[Progress, int], removed: Iterable[str] = ()) -> int:
        """Commit; the version of the table with it. All of it is in the table afterwards, or nothing.

        ``removed`` are paths of files that ``read_files`` gave, which ``files`` replace. Raises Overtaken where another
        commit has moved one of the offsets, Changed for a table that was changed meanwhile. Of any other error, such as
        DataSourceError of a disk that is full, the table alone tells whether the commit took place.
        """
        actions = [{"add": each.to_action()} for each in files]
        now_ms = int(time.time() * 1000)
        versions = {each.to_application(): offset for each, offset in offsets.items()}
        versions |= {each.to_application(EPOCH_APPLICATION): epoch for each, epoch in self._epochs.items()}
        versions |= {each.to_application(COUNT_APPLICATION): count for each, count in self._partition_counts.items()}
        if not self.table.progress:
            versions[_FIRST] = 1
        for application, version in versions.items():
            actions.append({"txn": {"appId": application, "version": version, "lastUpdated": now_ms}})
        try:
            self._change_metadata()
            version = int(self._transaction.commit(self._seq(actions, removed), self._operation(offsets)))
        except ConcurrentTransactionException as error:
            raise Overtaken(
                "SPARKLOG_OVERTAKEN",
                f"another job has offloaded to table {self._name} meanwhile; nothing of this one is in the table",
            ) from error
        except _CHANGES as error:
            said = f"table {self._name} was changed while rows were written for it: {first_line(error)}"
            raise Changed("SPARKLOG_TABLE_CHANGED", said) from error
        except Py4JJavaError as error:
            refusal = refusal_of_disk(error)
            if refusal is None:
                raise
            said = (
                f"the log of table {self._name} cannot be written: {refusal}; the next run asks the table what it has"
            )
            raise DataSourceError("SPARKLOG_TABLE_NOT_WRITTEN", said) from error
        if version == self.table.version + 1:  # else others have committed between
            self._last.table_id, self._last.version = self.table.table_id, version
            self._last.applications = self._applications | versions
        self._durable.reach(self.table.table_id, self.table.location, version, is_own=True)
        return version

    def settle(self) -> None:
        """Make durable what ``table`` says, where the disk is a local one: Delta does not. Raises DataSourceError."""
        self._durable.reach(self.table.table_id, self.table.location, self.table.version)

    def _change_metadata(self) -> None:
        """Let the commit add the columns and the properties that are missing."""
        if self._evolved is not None or self._properties:
            action = json.loads(self._transaction.metadata().json())
            if self._evolved is not None:
                action["metaData"]["schemaString"] = self._evolved.json()
            action["metaData"].setdefault("configuration", {}).update(self._properties)
            self._transaction.updateMetadata(self._delta.actions.Action.fromJson(json.dumps(action)), False)

    def _seq(self, actions: Sequence[dict[str, Any]], removed: Iterable[str]) -> Any:
        """The actions as Delta's own. One call has them all: each call to the JVM takes a fraction of a millisecond."""
        found = self._jvm.java.util.ArrayList()
        for each in actions:
            found.add(self._delta.actions.Action.fromJson(json.dumps(each)))
        for path in removed:
            found.add((self._read or {})[path].remove())
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()

    def _java(self, seq: Any) -> Any:
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(seq)

    def _operation(self, offsets: Mapping[Progress, int]) -> Any:
        """What the table's history says of the commit, with the offsets as user metadata.

        It is a WRITE in mode Append; of one that has read the table's files a STREAMING UPDATE in mode Update. Delta
        has an operation for a merge, but that one takes no metadata.
        """
        ends: dict[str, dict[str, int]] = {}
        for each, offset in sorted(offsets.items()):
            ends.setdefault(each.tp.topic, {})[str(each.tp.partition)] = offset
        option, none = self._jvm.scala.Option.apply, self._jvm.scala.Option.empty()
        said = option(json.dumps({"sparklog.offload": ends}))
        if self._read is not None:
            update = self._jvm.org.apache.spark.sql.streaming.OutputMode.Update()
            return getattr(self._delta, "DeltaOperations$StreamingUpdate")(
                update, APPLICATION, self.table.version + 1, said
            )
        append = self._jvm.org.apache.spark.sql.SaveMode.Append
        write = getattr(self._delta, "DeltaOperations$Write")
        return write(append, none, none, said, none, none, none, none, none)


def _delta_of(spark: SparkSession) -> Any:
    """Delta's package in the session's JVM."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise ConfigError("a session of Spark Connect cannot offload: use a session with its own JVM")
    delta = jvm.org.apache.spark.sql.delta
    if isinstance(delta.DeltaLog, JavaPackage):
        raise ConfigError("the Spark session has no Delta Lake: make it with sparklog.spark.session(delta=True)")
    return delta


def _told(applications: Mapping[str, int], kind: str) -> dict[Progress, int]:
    """The versions of the applications of one kind."""
    return {
        known: version
        for application, version in applications.items()
        if (known := Progress.from_application(application, kind)) is not None
    }


def _partition_columns(metadata: Any) -> tuple[str, ...]:
    return tuple(filter(None, metadata.partitionColumns().mkString("\n").split("\n")))


def _pairs(text: str) -> list[tuple[str, str]]:
    """The entries of a Scala map, ``key -> value`` a line."""
    return [(key, value) for key, arrow, value in (line.partition(" -> ") for line in text.splitlines()) if arrow]


def _check(
    name: str,
    schema: StructType,
    partition_by: Sequence[str],
    configuration: Mapping[str, str],
    partition_columns: Sequence[str],
) -> None:
    for column in schema.fields:
        is_checked = not column.nullable or column.metadata.get("delta.invariants")
        if is_checked or column.metadata.get("delta.generationExpression"):
            _refuse(name, f"column {column.name} is generated or constrained, which is checked for rows, not for files")
    for each in partition_by:
        if each not in partition_columns:
            _refuse(name, f"it is partitioned by {each}, not by one of {', '.join(partition_columns)}")
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        _refuse(name, "its columns have other names in its files (delta.columnMapping.mode)")
    if any(key.startswith("delta.constraints.") for key in configuration):
        _refuse(name, "it has constraints, which are checked for rows, not for files")
    if _FORGETS in configuration:
        _refuse(name, f"it forgets how far it has come ({_FORGETS} is set)")


def _refuse(name: str, why: str) -> NoReturn:
    refuse(f"table {name}", why)
