"""Bulk load: rows of files become segments that the leaders of a topic adopt, exactly once.

Invariants: all that a load adds, to however many partitions, is of one transaction, which commits in the same step that
the load is done: a group, ``sparklog-load.NAME``, holds the fingerprint of its sources. So readers of committed records
see all of it or nothing; a load that died is taken back, by the next run or by the transaction's timeout; one that is
done adds nothing again; and a name stands for one load. Of two runs at once the later one takes the name over, and the
other fails. One task of Spark has all rows of a partition, and numbers them from 0; where it sees the log's directory
it writes files there, under a name of its attempt, else it produces them in the same transaction. Rows that keep the
order of their files are read by tasks that write a file for each partition; these are numbered when all are there.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.adoption import OfferedSegments
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.client.producer.partitioner import Partitioner, misplaced
from sparklog.client.producer.transactional_batch_producer import TransactionalBatchProducer
from sparklog.clock import SystemClock
from sparklog.config.job_clients import LOAD, RIGHTS, of_job
from sparklog.errors import ApiError, DataSourceError, ErrorCode, LogError, SparklogError
from sparklog.log.adoption import Offer, offer_path
from sparklog.log.checkpoints import read_topic_id
from sparklog.log.offering import OfferWriter, renumber
from sparklog.record.batch import increment_sequence
from sparklog.record.columnar import ColumnarEncoder, EncodedBatch
from sparklog.record.compression import CompressionType
from sparklog.spark.batch.load_failures import meaning_of
from sparklog.spark.batch.sources import SEGMENTS, Source, fingerprint, fingerprint_of_files, rows_of
from sparklog.spark.batch.stretches import Stretch, parquet_stretches, segment_stretches
from sparklog.spark.batch.workers import run_in_workers
from sparklog.spark.failures import rights_named
from sparklog.spark.options.raw import check_task_token
from sparklog.spark.options.task_login import Login, kept_login
from sparklog.spark.throttling import cluster_of_task
from sparklog.structs import BrokerId, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_RESULT = (
    "partition int, tag string, bases array<bigint>, end_offset bigint, nbytes bigint, failure string,"
    " oldest_ms bigint, stage int"
)
_MAX_BATCH_BYTES = 1 << 20
_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
_GROUP = "sparklog-load."
"""Before the load's name: the group that holds its mark, and the id of its transaction."""
Via = Literal["adopt", "produce"]


@dataclass(frozen=True)
class LoadOptions:
    """What is loaded, and where to."""

    bootstrap_servers: str
    topic: str
    source: Source
    name: str
    """Of the load; a rerun has the same."""
    via: Via = "adopt"
    """``adopt``: segments are adopted where Spark's tasks see the brokers' directories, and else produced."""
    compression: str | None = None
    """Of the batches; None for the topic's own, or none where that is the producer's."""
    timeout_ms: int = 900_000
    """How long the transaction may take, after which the cluster takes it back (``transaction.max.timeout.ms``)."""
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More settings of the client, such as ``security.protocol``."""
    task_token_ms: int | None = None
    """Tasks come by a token that is good for so long, and is renewed; None: by the client's settings."""

    def settings(self) -> dict[str, str]:
        return {**of_job(LOAD, self.client), "bootstrap.servers": self.bootstrap_servers}


class Loaded(NamedTuple):
    """What a load has added."""

    records: int = 0
    nbytes: int = 0
    """Of the batches."""
    adopted: int = 0
    """Partitions whose leader adopted segments."""
    produced: int = 0
    """Partitions to which the rows were sent."""
    was_done: bool = False
    """An earlier run had done it; this one has added nothing."""


class _Place(NamedTuple):
    """Where a partition's log is."""

    broker: BrokerId
    directory: str


@dataclass(frozen=True)
class _Job:
    """What a task has to know; it is sent to the workers."""

    client: ClientConfig | None = field(repr=False)
    """How it comes to the brokers; None where all its segments are to be adopted."""
    topic: str
    topic_id: UUID
    transaction: PreparedTransaction
    places: dict[int, _Place]
    """Of the partitions whose segments are to be adopted."""
    segment_bytes: int
    batch_bytes: int
    compression: CompressionType


class _Part(NamedTuple):
    """What a task made of a partition's rows."""

    partition: int
    tag: str | None
    """Of the files; None where the rows were produced."""
    bases: list[int]
    end_offset: int
    nbytes: int
    failure: str | None = None
    oldest_ms: int | None = None
    """The youngest timestamp of the batch in which that is least."""
    stage: int | None = None
    """The stage of Spark whose task produced the rows; None where they are in files."""


def run(spark: SparkSession, options: LoadOptions) -> Loaded:
    """Load the source, unless that was done under this name before.

    Raises DataSourceError for a source or a topic that does not suit, a name that stands for another load, a run that
    another has taken over; ApiError for what a broker refuses. Then nothing of it is visible.
    """
    config = ClientConfig.from_properties(options.settings())
    check_task_token(config, options.task_token_ms)
    login = kept_login(config, options.task_token_ms)
    with rights_named(RIGHTS[LOAD]), Admin(config) as admin, closing(login):
        try:
            return _Load(spark, options, admin, login).run()
        except (PySparkException, Py4JJavaError) as error:
            raise DataSourceError("SPARKLOG_NOT_LOADED", meaning_of(error, options.source)) from error


class _Load:
    """One run."""

    def __init__(self, spark: SparkSession, options: LoadOptions, admin: Admin, login: Login) -> None:
        self._spark = spark
        self._options = options
        self._admin = admin
        self._login = login
        self._group = f"{_GROUP}{options.name}"
        self._info = admin.describe_topics([options.topic])[options.topic]
        self._mark = TopicPartition(options.topic, 0)
        self._places = self._find_places() if options.via == "adopt" else {}
        """Where the leaders have their logs, of the partitions whose leaders adopt segments."""
        self._offered: set[str] = set()  # tags of files that are a broker's business by now

    def run(self) -> Loaded:
        source, rows = self._options.source, None
        stretches: Sequence[Stretch] | None = None
        if source.format == SEGMENTS:
            if not self._sees_places():
                raise DataSourceError(
                    "SPARKLOG_NOT_LOADED",
                    "segments are only adopted, and the leaders' log directories are not seen here",
                )
            stretches, print_ = segment_stretches(source.path), fingerprint_of_files(source)
        else:
            rows = rows_of(self._spark, source, len(self._info.partitions))
            print_ = fingerprint(self._spark, source, rows)
            if source.may_keep_order and self._sees_places():
                stretches = parquet_stretches(rows.inputFiles(), source)
        print_ = f"{self._info.topic_id}:{print_}"
        transaction = self._admin.begin_anew(self._group, self._options.timeout_ms)
        if self._is_done(print_):
            return Loaded(was_done=True)
        configs = {each.name: each.value or "" for each in self._admin.topic_configs(self._options.topic)}
        parts: list[_Part] = []
        try:
            client = self._login.client() if stretches is None else None
            job = self._job(transaction, configs, client)
            self._admin.add_to_prepared(transaction, [self._tp(each.partition) for each in self._info.partitions])
            self._mark_done(transaction, print_)
            parts = self._build(job, rows) if stretches is None else self._build_stretches(job, stretches)
            self._adopt(job, parts)
            self._commit(transaction, print_)
        except BaseException as error:
            self._take_back(transaction, parts)
            raise _as_told(error, self._options.name) from error
        self._warn_of_retention(configs, parts)
        return _summary(parts)

    def _is_done(self, print_: str) -> bool:
        """Raises DataSourceError where the name stands for another load."""
        found = self._admin.group_offsets(self._group, [self._mark], require_stable=True).get(self._mark)
        if found is None or found.metadata == print_:
            return found is not None
        raise DataSourceError(
            "SPARKLOG_OTHER_LOAD",
            f"{self._options.name!r} is the name of a load of other files, other options or into another topic of that "
            "name, and that is done; give this one a name of its own",
        )

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self._options.topic, partition)

    def _job(self, transaction: PreparedTransaction, configs: Mapping[str, str], client: ClientConfig | None) -> _Job:
        kind = self._options.compression or configs["compression.type"]
        plain = kind in ("producer", "uncompressed")
        return _Job(
            client,
            self._options.topic,
            self._info.topic_id,
            transaction,
            self._places,
            int(configs["segment.bytes"]),
            min(int(configs["max.message.bytes"]), int(configs["segment.bytes"]), _MAX_BATCH_BYTES),
            CompressionType.NONE if plain else CompressionType.from_name(kind),
        )

    def _find_places(self) -> dict[int, _Place]:
        """Kafka's brokers adopt no segments."""
        able = self._admin.adopting_brokers()
        leaders = {
            each.partition: Replica(self._tp(each.partition), each.leader)
            for each in self._info.partitions
            if each.leader in able
        }
        found = self._admin.describe_replica_log_dirs(leaders.values())
        return {
            number: _Place(replica.broker, f"{found[replica].path}/{replica.tp}")
            for number, replica in leaders.items()
            if found[replica].path is not None
        }

    def _sees_places(self) -> bool:
        """Whether every leader adopts segments, and all their directories are seen here."""
        return len(self._places) == len(self._info.partitions) and all(
            _is_its_directory(Path(each.directory), self._info.topic_id) for each in self._places.values()
        )

    def _build(self, job: _Job, rows: Any) -> list[_Part]:
        """Raises DataSourceError for what a task could not do."""
        built = rows.mapInArrow(partial(_build, job), _RESULT).collect()
        parts = self._checked([_Part(*row) for row in built])
        check_tried_once(self._spark, {each.stage for each in parts if each.stage is not None})
        return parts

    def _checked(self, parts: list[_Part]) -> list[_Part]:
        """Raises DataSourceError where a task could not do its work; the files of the others are removed then."""
        failures = [each.failure for each in parts if each.failure]
        if failures:
            self._remove(parts)
            raise DataSourceError("SPARKLOG_NOT_LOADED", failures[0])
        return parts

    def _build_stretches(self, job: _Job, stretches: Sequence[Stretch]) -> list[_Part]:
        """Each task writes a file for each partition; afterwards those of a partition are numbered one behind another.

        Raises DataSourceError, as above.
        """
        written = run_in_workers(self._spark, stretches, partial(_stretch_writer, job))
        parts = self._checked([each for group in written for each in group])
        ends: Counter[int] = Counter()
        later: list[tuple[str, Offer, int]] = []
        for part in parts:
            if ends[part.partition]:
                offer = Offer(part.tag or "", tuple(part.bases), part.end_offset)
                first = increment_sequence(0, ends[part.partition])
                later.append((job.places[part.partition].directory, offer, first))
            ends[part.partition] += part.end_offset
        run_in_workers(self._spark, later, lambda: lambda task: renumber(Path(task[0]), task[1], task[2]))
        return parts

    def _adopt(self, job: _Job, parts: list[_Part]) -> None:
        """Those of a partition one behind the other."""
        groups: dict[int, list[_Part]] = {}
        for part in parts:
            groups.setdefault(part.partition, []).append(part)
        with ThreadPoolExecutor(8, thread_name_prefix="adopt") as pool:
            for _ in pool.map(partial(self._adopt_some, job), groups.values()):
                pass

    def _adopt_some(self, job: _Job, parts: list[_Part]) -> None:
        for part in parts:
            self._adopt_one(job, part)

    def _adopt_one(self, job: _Job, part: _Part) -> None:
        if part.tag is not None:
            broker = job.places[part.partition].broker
            offered = OfferedSegments(self._tp(part.partition), broker, part.tag, tuple(part.bases), part.end_offset)
            self._offered.add(part.tag)
            self._admin.adopt(offered, self._group)

    def _mark_done(self, transaction: PreparedTransaction, print_: str) -> None:
        """The mark counts with the commit.

        It is set before the work, so that a user who may not set it is refused before there is work to take back; and
        again with the commit, for a group that is deleted in the meantime loses it.
        """
        self._admin.add_offsets(transaction, self._group, {self._mark: OffsetAndMetadata(0, metadata=print_)})

    def _commit(self, transaction: PreparedTransaction, print_: str) -> None:
        self._check_topic()
        self._mark_done(transaction, print_)
        if self._admin.end_prepared([transaction], commit=True) != [True]:
            name = self._options.name
            raise DataSourceError(
                "SPARKLOG_NOT_LOADED",
                f"the transaction of load {name!r} is not open any more: another run of it has begun since, or its time"
                " was up. Whether this one was committed before, its answer being lost, is not known here: run it"
                " again, which says that it is loaded, or loads it",
            )

    def _check_topic(self) -> None:
        """Raises DataSourceError where another topic has the name by now: what was adopted, or sent, is gone."""
        topic, name = self._options.topic, self._options.name
        if self._admin.describe_topics([topic])[topic].topic_id != self._info.topic_id:
            raise DataSourceError(
                "SPARKLOG_TOPIC_RECREATED",
                f"topic {topic!r} was deleted and created again while {name!r} was loaded into it, and nothing of this"
                " load is visible: run it again",
            )

    def _warn_of_retention(self, configs: Mapping[str, str], parts: list[_Part]) -> None:
        """Say so where the brokers will delete soon what was loaded, for retention goes by the records' own time."""
        oldest_ms = min((each.oldest_ms for each in parts if each.oldest_ms is not None), default=None)
        retention_ms = int(configs["retention.ms"])
        deletes = retention_ms >= 0 and "delete" in configs["cleanup.policy"].split(",")
        if deletes and oldest_ms is not None and oldest_ms < SystemClock().now_ms() - retention_ms:
            _log.warning(
                "topic %s keeps records for %d hours (retention.ms), by their timestamps, and the oldest loaded"
                " are of %s: brokers delete these soon. To keep them, type: sparklog topic alter %s --config"
                " retention.ms=-1",
                self._options.topic,
                retention_ms // 3_600_000,
                _date(oldest_ms),
                self._options.topic,
            )

    def _take_back(self, transaction: PreparedTransaction, parts: list[_Part]) -> None:
        """As far as the cluster can be asked; else it does so itself when the transaction's time is up."""
        with suppress(Exception):
            self._remove([each for each in parts if each.tag not in self._offered])
        with suppress(Exception):
            self._admin.end_prepared([transaction], commit=False)

    def _remove(self, parts: list[_Part]) -> None:
        """The files of a load that failed, as far as they are seen here; brokers remove the others."""
        for part in parts:
            for base in part.bases if part.tag else ():
                with suppress(OSError):
                    offer_path(Path(self._places[part.partition].directory), base, part.tag or "").unlink(
                        missing_ok=True
                    )


def check_tried_once(spark: SparkSession, stages: Iterable[int]) -> None:
    """Raises DataSourceError where Spark may have tried one of these stages, which produced rows, as a whole again.

    It does so where an executor is lost. Then it numbers the attempts of tasks from 0 again, so a task cannot tell that
    another one has produced some of its rows; and a broker takes the batches of the second for those of the first, by
    their sequences, though a shuffle may give rows in another order.
    """
    numbers = sorted(stages)
    if not numbers:
        return
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # what has happened is told to the tracker later
    tracker = spark.sparkContext.statusTracker()
    for number in numbers:
        found = tracker.getStageInfo(number)
        if found is None or found.currentAttemptId:
            raise DataSourceError(
                "SPARKLOG_NOT_LOADED",
                "Spark tried a stage again whose tasks had produced rows, as it does where an executor is lost: these"
                " cannot be produced again in the same transaction. Nothing of this load is visible: run it again",
            )


def _summary(parts: list[_Part]) -> Loaded:
    adopted = {each.partition for each in parts if each.tag is not None}
    produced = {each.partition for each in parts}.difference(adopted)
    records, nbytes = sum(each.end_offset for each in parts), sum(each.nbytes for each in parts)
    return Loaded(records, nbytes, len(adopted), len(produced))


def _date(timestamp_ms: int) -> str:
    """A timestamp of a record may be of any size."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)).date().isoformat()
    except OverflowError:
        return f"{timestamp_ms} ms"


def _as_told(error: BaseException, name: str) -> BaseException:
    ended = _ended(error, name)
    return DataSourceError("SPARKLOG_NOT_LOADED", ended) if ended else error


def _ended(error: BaseException, name: str) -> str:
    """What is said where the load's transaction is not open any more; empty for other errors."""
    if not isinstance(error, ApiError) or error.code not in _FENCED:
        return ""
    return (
        f"the transaction of load {name!r} is not open any more: another run of it has begun since, or its time was up;"
        f" nothing of this one is visible ({error})"
    )


# In the workers


def _build(job: _Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make one partition of the rows; what a person can mend is told, and not raised.

    Nor is anything else of ours, such as a password that is wrong by now: Spark would try the task again, and that
    would find rows produced before, and tell of these alone.
    """
    try:
        part = _part_of(job, batches)
    except (SparklogError, OSError) as error:
        ended = _ended(error, job.transaction.transactional_id.removeprefix(_GROUP))
        part = _Part(-1, None, [], 0, 0, ended or f"a task could not write its rows: {error}")
    if part is not None:
        columns = {name: [value] for name, value in part._asdict().items()}
        yield pa.RecordBatch.from_pydict(columns, schema=_ARROW_RESULT)


_ARROW_RESULT = pa.schema(
    [
        ("partition", pa.int32()),
        ("tag", pa.string()),
        ("bases", pa.list_(pa.int64())),
        ("end_offset", pa.int64()),
        ("nbytes", pa.int64()),
        ("failure", pa.string()),
        ("oldest_ms", pa.int64()),
        ("stage", pa.int32()),
    ]
)


def _part_of(job: _Job, batches: Iterable[pa.RecordBatch]) -> _Part | None:
    left = iter(batches)
    first = next((each for each in left if each.num_rows), None)
    if first is None:
        return None
    partition = first.column("partition")[0].as_py()
    place = job.places.get(partition)
    if place is not None and _is_its_directory(Path(place.directory), job.topic_id):
        return _written(job, partition, Path(place.directory), _encoded(job, partition, first, left))
    return _produced(job, partition, _encoded(job, partition, first, left))


def _stretch_writer(job: _Job) -> Callable[[Stretch], list[_Part]]:
    return partial(_write_stretch, job)


def _write_stretch(job: _Job, stretch: Stretch) -> list[_Part]:
    """A file for each partition that rows of the stretch go to; what a person can mend is told, and not raised."""
    writers: dict[int, OfferWriter] = {}
    youngest: list[int] = []
    try:
        for rows in stretch.rows():
            youngest += _write_rows(job, rows, writers)
        offers = {number: writer.finish() for number, writer in writers.items()}
    except (SparklogError, OSError, pa.ArrowException) as error:
        for writer in writers.values():
            with suppress(OSError):
                writer.discard()
        return [_Part(-1, None, [], 0, 0, f"{stretch.path}: {error}")]
    return [
        _Part(
            number,
            offer.tag,
            list(offer.bases),
            offer.end_offset,
            writers[number].nbytes,
            oldest_ms=_oldest(youngest),
        )
        for number, offer in sorted(offers.items())
        if offer is not None
    ]


def _write_rows(job: _Job, rows: pa.RecordBatch, writers: dict[int, OfferWriter]) -> list[int]:
    """The youngest timestamps of the batches."""
    key, value, headers, timestamp, named = (rows.column(name) for name in rows.schema.names)
    wrong = misplaced(named, len(job.places)) if named.null_count < len(named) else None
    if wrong is not None:
        raise OSError(
            f"a row names partition {named[wrong]} of topic {job.topic!r}, which has 0 to {len(job.places) - 1}"
        )
    now_ms = SystemClock().now_ms()
    youngest = []
    for share in Partitioner(len(job.places)).shares(key, rows.num_rows, named=named):
        writer = writers.get(share.partition)
        if writer is None:
            directory = Path(job.places[share.partition].directory)
            if not _is_its_directory(directory, job.topic_id):
                raise OSError(f"{directory}, where the leader has the log, is not seen here: use --via produce")
            writer = writers[share.partition] = OfferWriter(directory, uuid4().hex, job.segment_bytes)
        columns = (each.slice(share.offset, share.length) for each in (key, value, headers, timestamp))
        encoder = _encoder(job, increment_sequence(0, writer.next_offset))
        for batch in encoder.encode(*columns, now_ms=now_ms, rows=share.rows):
            writer.append(batch.data)
            youngest.append(batch.max_timestamp)
    return youngest


def _oldest(youngest: Iterable[int]) -> int | None:
    """Of the youngest timestamps of batches; -1 stands for none."""
    return min((each for each in youngest if each >= 0), default=None)


def _is_its_directory(directory: Path, topic_id: UUID) -> bool:
    """Whether the leader's directory is seen here, and not one of another cluster under its name."""
    try:
        return read_topic_id(directory) == topic_id
    except (OSError, LogError):
        return False


def _encoded(
    job: _Job, partition: int, first: pa.RecordBatch, more: Iterator[pa.RecordBatch]
) -> Iterator[EncodedBatch]:
    encoder = _encoder(job, 0)
    clock = SystemClock()
    for rows in chain((first,), (each for each in more if each.num_rows)):
        _check_one(rows, partition)
        columns = (rows.column(name) for name in ("key", "value", "headers", "timestamp"))
        yield from encoder.encode(*columns, now_ms=clock.now_ms())


def _encoder(job: _Job, base_sequence: int) -> ColumnarEncoder:
    return ColumnarEncoder(
        compression=job.compression,
        max_batch_bytes=job.batch_bytes,
        producer_id=job.transaction.producer_id,
        producer_epoch=job.transaction.epoch,
        base_sequence=base_sequence,
        is_transactional=True,
    )


def _check_one(rows: pa.RecordBatch, partition: int) -> None:
    found = pc.min_max(rows.column("partition")).as_py()
    if (found["min"], found["max"]) != (partition, partition):
        raise OSError(f"a task was given rows of partitions {found['min']} to {found['max']}")


def _written(job: _Job, partition: int, directory: Path, batches: Iterator[EncodedBatch]) -> _Part | None:
    writer = OfferWriter(directory, uuid4().hex, job.segment_bytes)
    youngest = []
    try:
        for batch in batches:
            writer.append(batch.data)
            youngest.append(batch.max_timestamp)
        offer = writer.finish()
    except BaseException:
        with suppress(OSError):
            writer.discard()
        raise
    if offer is None:
        return None
    return _Part(partition, offer.tag, list(offer.bases), offer.end_offset, writer.nbytes, oldest_ms=_oldest(youngest))


def _produced(job: _Job, partition: int, batches: Iterator[EncodedBatch]) -> _Part:
    """Only by the first attempt: what an earlier one has sent is part of the transaction, in whatever order.

    That no attempt came before in another attempt of the whole stage the driver sees (``check_tried_once``).
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber():
        raise OSError(
            "a task that produced its rows died, or Spark ran it twice (spark.speculation), and it cannot be tried"
            " again in its transaction: run it again, without speculation"
        )
    stage = None if context is None else context.stageId()
    tp, records, nbytes = TopicPartition(job.topic, partition), 0, 0
    youngest = []
    assert job.client is not None
    with cluster_of_task(job.client) as cluster:
        producer = TransactionalBatchProducer(cluster, job.transaction, lambda _: None)
        with closing(producer):
            for batch in batches:
                producer.send(tp, batch.data)
                records, nbytes = records + batch.record_count, nbytes + len(batch.data)
                youngest.append(batch.max_timestamp)
            producer.flush()
    return _Part(partition, None, [], records, nbytes, oldest_ms=_oldest(youngest), stage=stage)
