"""Kafka 3.9.1's own log cleaner, run in one JVM that stays, at a clock that the caller gives.

The JVM holds Kafka's JARs and py4j's. No class of ours runs in it: a partition directory is opened as Kafka's
``UnifiedLog``, ``LogCleanerManager`` says what of it can be cleaned, and ``Cleaner`` cleans it, all called from here.

Two parts of Kafka's surroundings are stand-ins, made with ``java.beans.EventHandler``, which answers every method of an
interface with one method of one object. The clock is a ``Date`` that the caller sets. The scheduler runs nothing, so
nothing happens behind the caller's back; what the log would have done later is done at the end of ``clean``, or left:
the files that the cleaner gave up are removed, and ``leader-epoch-checkpoint`` stays as it was. Only what
``CleanerStats`` says of seconds is of the machine's clock.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypedDict

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from typing_extensions import Unpack

from sparklog.local.jars import jar_set, pyspark_jar
from sparklog.local.java import find_java
from sparklog.local.process import ChildProcess, OneProcess

BYTES_PER_KEY = 24
"""Of the cleaner's buffer: an MD5 sum and an offset."""
DAY_MS = 86_400_000

QUICK_START = ("-Xmx512m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM that is soon there, and never fast: for many small logs."""

_START_TIMEOUT_S = 60.0
_GRACE_S = 10.0
_LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %m (%c)%n
"""
_NEVER = 2**31 - 1
_UNTHROTTLED = 1e300


class Uncleanable(Exception):
    """Kafka's cleaner raised. A broker would mark the partition as uncleanable, and clean it no more.

    It raises where the time index of a cleaned segment gets more entries than ``segment.index.bytes`` has room for:
    while the batch with the latest timestamp is gone, those behind it have entries that they had not before.
    """


class CleanerBuffers(TypedDict, total=False):
    """The memory of a cleaner: ``buffer_bytes // 24 * load_factor`` keys, and ``io_buffer_bytes`` read at once.

    Unless they are given: 1 MB, 0.9, 64 KB.
    """

    buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int


class CleanerStats(NamedTuple):
    """What ``CleanerStats`` counts of one run; see there for what each number means."""

    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    messages_read: int = 0
    invalid_messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    buffer_utilization: float = 0.0
    index_seconds: float = 0.0
    seconds: float = 0.0
    """Of the run, the index phase among them; that the files are replaced too, not that the old ones are removed."""


class Cleaned(NamedTuple):
    """What the cleaner made of a log."""

    end_offset: int
    """The next first dirty offset, as the cleaner's checkpoint is given it."""
    first_dirty: int
    """Where the dirty part began: as given, or the start of the log where that was out of range."""
    first_uncleanable: int
    """Where the part begins that could not be cleaned yet: the base of a segment."""
    was_reset: bool
    """Whether the first dirty offset was out of range, so that the checkpoint is written anew."""
    clean_bytes: int
    cleanable_bytes: int
    """Where it is 0 the log is never chosen: nothing was run, and ``end_offset`` is ``first_dirty``."""
    delay_ms: int
    """How long ago ``max.compaction.lag.ms`` would have had it cleaned; 0 if it does not demand that yet."""
    stats: CleanerStats = CleanerStats()
    cpu_seconds: float = 0.0
    """What the JVM has used while the cleaner ran, if the caller can tell."""


class KafkaCleaner(OneProcess):
    """Kafka's cleaner in a JVM of its own, for as long as the ``with`` block lasts. Not for several threads.

    ``java`` are options of the virtual machine; ``cpu_seconds`` tells what processor time a process has used. The
    constructor raises ConfigError where Kafka's JARs cannot be had.
    """

    def __init__(self, java: Sequence[str] = QUICK_START, cpu_seconds: Callable[[int], float] = lambda _: 0.0) -> None:
        self._java = tuple(java)
        self._cpu_seconds = cpu_seconds
        self._jars = jar_set("kafka")
        self._gateway: JavaGateway | None = None

    def __enter__(self) -> KafkaCleaner:
        self._home = Path(tempfile.mkdtemp(prefix="kafka-cleaner-"))
        self._child = ChildProcess("Kafka's cleaner", self._home / "output")
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def clean(
        self,
        directory: Path,
        *,
        config: Mapping[str, str],
        now_ms: int,
        first_dirty: int | None = None,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
        producer_expiration_ms: int = DAY_MS,
        **buffers: Unpack[CleanerBuffers],
    ) -> Cleaned:
        """Clean the partition in ``directory``, which is named TOPIC-PARTITION and was closed in order.

        ``config`` are the topic's settings; ``first_dirty`` is what the cleaner's checkpoint says, None if nothing.
        Up to ``high_watermark``, the end of the log if it is None, the records count as replicated. A log with nothing
        cleanable is opened and closed only.
        Raises Uncleanable if Kafka raises; the directory is of no use then.
        """
        self._clock.setTime(now_ms)
        settings = {"cleanup.policy": "compact", **config}
        log = self._open(directory, settings, log_start_offset, producer_expiration_ms)
        before = self._jvm.java.util.ArrayList(log.logSegments())
        try:
            log.updateHighWatermark(log.logEndOffset() if high_watermark is None else high_watermark)
            return self._clean(log, self._wanted(first_dirty), now_ms, buffers)
        except Py4JJavaError as error:
            raise Uncleanable(str(error)) from None
        finally:
            for segment in before:
                if segment.hasSuffix(".deleted"):
                    segment.deleteIfExists()
            log.close()
            log.removeLogMetrics()
            for path in directory.glob("*.deleted"):  # snapshots of producers
                path.unlink()

    def _clean(self, log: Any, wanted: Any, now_ms: int, buffers: CleanerBuffers) -> Cleaned:
        manager = getattr(self._jvm.kafka.log, "LogCleanerManager$")
        manager = getattr(manager, "MODULE$")
        offsets = manager.cleanableOffsets(log, wanted, now_ms)
        delay = getattr(manager, "kafka$log$LogCleanerManager$$maxCompactionDelay")
        delay_ms = delay(log, offsets.firstDirtyOffset(), now_ms)
        job = self._jvm.kafka.log.LogToClean(
            log.topicPartition(),
            log,
            offsets.firstDirtyOffset(),
            offsets.firstUncleanableDirtyOffset(),
            delay_ms > 0,
        )
        found = Cleaned(
            job.firstDirtyOffset(),
            job.firstDirtyOffset(),
            job.firstUncleanableOffset(),
            offsets.forceUpdateCheckpoint(),
            job.cleanBytes(),
            job.cleanableBytes(),
            delay_ms,
        )
        if not found.cleanable_bytes:
            return found
        cleaner = self._cleaner(**buffers)
        before = self._cpu_seconds(self.pid)
        done = cleaner.doClean(job, now_ms)
        return found._replace(
            end_offset=done.productElement(0),
            stats=_stats(done.productElement(1)),
            cpu_seconds=self._cpu_seconds(self.pid) - before,
        )

    def _open(self, directory: Path, settings: dict[str, str], log_start_offset: int, expiration_ms: int) -> Any:
        internals = self._jvm.org.apache.kafka.storage.internals.log
        return self._jvm.kafka.log.UnifiedLog.apply(
            self._jvm.java.io.File(str(directory.absolute())),
            internals.LogConfig(settings),
            log_start_offset,
            0,  # the recovery point, which a log that was closed in order does not need
            self._scheduler,
            self._topic_stats,
            self._time,
            15 * 60 * 1000,
            internals.ProducerStateManagerConfig(expiration_ms, False),
            _NEVER,
            internals.LogDirFailureChannel(10),
            True,
            self._jvm.scala.Option.empty(),
            False,
            self._jvm.java.util.concurrent.ConcurrentHashMap(),
            False,
            self._jvm.org.apache.kafka.storage.internals.log.LogOffsetsListener.NO_OP_OFFSETS_LISTENER,
        )

    def _cleaner(self, buffer_bytes: int = 1 << 20, load_factor: float = 0.9, io_buffer_bytes: int = 1 << 16) -> Any:
        internals = self._jvm.org.apache.kafka.storage.internals
        system_time = self._jvm.org.apache.kafka.common.utils.Time.SYSTEM
        return self._jvm.kafka.log.Cleaner(
            0,
            internals.log.SkimpyOffsetMap(buffer_bytes),
            io_buffer_bytes,
            1 << 20,
            load_factor,
            internals.utils.Throttler(_UNTHROTTLED, 300, "cleaner-io", "bytes", system_time),
            system_time,  # by which it counts seconds; all else goes by the time that it is told
            getattr(self._jvm.scala.Predef, "$conforms")(),  # asked whether to stop: a function that does nothing
        )

    def _wanted(self, offset: int | None) -> Any:
        """Scala's Option of a long."""
        longs = self._jvm.java.util.OptionalLong
        found = longs.empty() if offset is None else longs.of(offset)
        return self._jvm.scala.jdk.javaapi.OptionConverters.toScala(found)

    def _start(self) -> None:
        log4j = self._home / "log4j.properties"
        log4j.write_text(_LOG4J)
        jars = [pyspark_jar("py4j"), self._jars[0].parent / "*"]
        command = [str(find_java().executable), *self._java]
        command += ["-XX:-UsePerfData", f"-Dlog4j.configuration=file:{log4j}", "-cp", ":".join(map(str, jars))]
        self._child.spawn([*command, "py4j.GatewayServer", "--enable-auth", "0"])
        self._child.wait_until(lambda: len(self._child.output().splitlines()) >= 2, _START_TIMEOUT_S)
        port, token = self._child.output().splitlines()[:2]
        parameters = GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        self._jvm = self._gateway.jvm
        atomic = self._jvm.java.util.concurrent.atomic
        self._clock = self._jvm.java.util.Date()
        self._time = self._stand_in("org.apache.kafka.common.utils.Time", self._clock, "getTime")
        never_run = self._stand_in("java.util.concurrent.ScheduledFuture", atomic.AtomicBoolean(), "get")
        scheduled = atomic.AtomicReference(never_run)
        self._scheduler = self._stand_in("org.apache.kafka.server.util.Scheduler", scheduled, "get")
        self._topic_stats = self._jvm.kafka.server.BrokerTopicStats(False)

    def _stand_in(self, interface: str, target: Any, method: str) -> Any:
        """An object of ``interface`` whose methods all give what ``target.method()`` gives."""
        wanted = self._jvm.java.lang.Class.forName(interface)
        return self._jvm.java.beans.EventHandler.create(wanted, target, method)

    def _stop(self) -> None:
        if self._gateway is not None:
            with suppress(Py4JError, OSError):
                self._gateway.shutdown()
            self._gateway = None
        self._child.stop(_GRACE_S)
        shutil.rmtree(self._home, ignore_errors=True)


def _stats(stats: Any) -> CleanerStats:
    return CleanerStats(
        stats.mapBytesRead(),
        stats.mapMessagesRead(),
        stats.bytesRead(),
        stats.messagesRead(),
        stats.invalidMessagesRead(),
        stats.bytesWritten(),
        stats.messagesWritten(),
        stats.bufferUtilization(),
        stats.elapsedIndexSecs(),
        stats.elapsedSecs(),
    )
