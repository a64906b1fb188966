"""Compaction of one log: our worker process beside Apache Kafka 3.9.1's own ``Cleaner``, each of its own copy.

The log lies in the page cache, in segments of 100 MB. Both sides take turns on one processor. Ours is the worker
process as a broker drives it, and this process, which plays the broker and puts each group of segments in its place.
Kafka's is its ``Cleaner`` in a JVM. Either has cleaned another log of the same kind before. What is timed is the
cleaning alone, without the opening of the log, and without the removal of the old files, which either broker leaves to
another thread. A log with more keys than the map holds is cleaned pass by pass until all of it is clean.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, aclosing, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

from benchmarks import compaction_job, disturbance, machine
from benchmarks.comparison import Comparison
from benchmarks.loads.keyed import keyed_batches
from benchmarks.parts import Rows, check_names, run_parts
from benchmarks.recovery import copy
from sparklog.clock import SystemClock
from sparklog.compaction.plan import LogFacts, divide
from sparklog.compaction.process import Worker
from sparklog.compaction.task import Buffers, CleaningTask
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.record.compression import CompressionType
from sparklog.structs import TopicPartition
from sparklog.testing.kafka_cleaner import BYTES_PER_KEY, KafkaCleaner

ROUNDS = 3
MAP_BYTES = 128 << 20
"""``log.cleaner.dedupe.buffer.size`` unless it is set, ours and Kafka's: 5.0 million keys."""
LARGE_MAP_BYTES = 512 << 20
LOAD_FACTOR = 0.9
READ_BYTES = 256 << 10
"""Half of ``log.cleaner.io.buffer.size`` unless it is set; so much is read at once."""
WARM_UP_SHARE = 0.2
"""Of the records of a log, in the one that is cleaned first."""
NICENESS = 10
"""What a worker adds to its broker's; the JVM is given the same, so that others hold up both alike."""
JVM = ("-Xmx3g", "-XX:+UseSerialGC")

PUBLISHED_BYTES = 45_218.7 * 2**20
PUBLISHED_MESSAGES = 161e6
PUBLISHED_SECONDS = 1478.2
"""What a cleaning took Kafka that the log of a production cluster tells of, 30.6 MB of 2**20 bytes a second."""

_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
_PARTITION = TopicPartition("bench", 0)


@dataclass(frozen=True)
class Case:
    """``records`` of about ``size`` bytes, of ``keys`` different keys at most."""

    size: int
    records: int
    keys: int
    compression: CompressionType = CompressionType.NONE
    map_bytes: int = MAP_BYTES

    @property
    def name(self) -> str:
        size = f"{self.size} B" if self.size < 1000 else f"{self.size // 1000} KB"
        keys = f"{self.keys / 1e6:g} M" if self.keys >= 1_000_000 else f"{self.keys / 1000:g} k"
        in_map = (
            f", map of {self.map_bytes >> 20} MB" if self.keys > self.map_bytes * LOAD_FACTOR / BYTES_PER_KEY else ""
        )
        return f"{size}, {self.compression.name.lower()}, {keys} keys{in_map}"

    def scaled(self, share: float) -> Case:
        """The keys fill the map as they do at full size."""
        return replace(
            self,
            records=int(self.records * share),
            keys=int(self.keys * share),
            map_bytes=int(self.map_bytes * share),
        )


PUBLISHED_LIKE = Case(round(PUBLISHED_BYTES / PUBLISHED_MESSAGES), 3_400_000, 200_000)
CASES = (
    Case(100, 10_000_000, 200_000),
    Case(100, 6_000_000, 200_000, CompressionType.ZSTD),
    Case(1000, 1_000_000, 200_000),
    Case(1000, 600_000, 200_000, CompressionType.ZSTD),
    PUBLISHED_LIKE,
    Case(100, 10_000_000, 5_000_000),
    Case(100, 6_000_000, 5_000_000, CompressionType.ZSTD),
    Case(1000, 2_000_000, 1_000_000),
    Case(1000, 1_000_000, 1_000_000, CompressionType.ZSTD),
    Case(100, 6_000_000, 6_000_000, CompressionType.ZSTD, map_bytes=64 << 20),
    Case(50, 20_000_000, 12_000_000),
    Case(50, 20_000_000, 12_000_000, map_bytes=LARGE_MAP_BYTES),
)


class _Times(NamedTuple):
    """What a pass took."""

    seconds: float
    index_seconds: float
    indexed_bytes: int
    cpu_seconds: float


class Cleaning(NamedTuple):
    """What a cleaning of a whole log took, all passes together, and what it left."""

    seconds: float
    index_seconds: float
    indexed_bytes: int
    cpu_seconds: float
    passes: int
    messages: int
    end_offset: int

    def and_a_pass(self, times: _Times, messages: int, end_offset: int) -> Cleaning:
        return Cleaning(
            self.seconds + times.seconds,
            self.index_seconds + times.index_seconds,
            self.indexed_bytes + times.indexed_bytes,
            self.cpu_seconds + times.cpu_seconds,
            self.passes + 1,
            messages,
            end_offset,
        )


NOTHING = Cleaning(0.0, 0.0, 0, 0.0, 0, 0, 0)


class Cleaner(Protocol):
    """One side. ``pid`` is of the process that does the work."""

    @property
    def pid(self) -> int: ...

    def clean(self, directory: Path, case: Case, now_ms: int) -> Cleaning: ...


class _Ours:
    """The worker process, and the broker's part in this one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._worker = Worker()

    @property
    def pid(self) -> int:
        return self._worker.pid or 0

    def clean(self, directory: Path, case: Case, now_ms: int) -> Cleaning:
        known = Knowledge(log_start_offset=0, high_watermark=2**62)
        config = parse(TopicConfig, _SETTINGS)
        with closing(Log(directory, _PARTITION, config, SystemClock(), lambda work: work(), known)) as log:
            return self._loop.run_until_complete(self._clean(log, case, now_ms))

    async def _clean(self, log: Log, case: Case, now_ms: int) -> Cleaning:
        found = NOTHING
        while task := _task(log, found.end_offset if found.passes else None, case, now_ms):
            old = list[Path]()
            used, start = self._cpu_seconds(), time.perf_counter()
            async with aclosing(self._worker.clean(task)) as groups:
                async for group in groups:
                    old += log.replace_segments(group.new, group.old)
            seconds, used = time.perf_counter() - start, self._cpu_seconds() - used
            for path in old:
                path.unlink()
            stats = self._worker.stats
            times = _Times(seconds, stats.index_seconds, stats.map_bytes_read, used)
            found = found.and_a_pass(times, stats.messages_written, stats.end_offset)
        return found

    def _cpu_seconds(self) -> float:
        return time.process_time() + (machine.cpu_seconds(self.pid) if self.pid else 0.0)

    def end(self) -> None:
        self._loop.run_until_complete(self._worker.end())


def _task(log: Log, checkpoint: int | None, case: Case, now_ms: int) -> CleaningTask | None:
    """What is to be cleaned next; None if nothing is."""
    facts = LogFacts(log.segment_facts(), log.log_start_offset, log.log_end_offset, log.last_stable_offset)
    sections = divide(facts, checkpoint, log.config, now_ms)
    if not sections.cleanable_bytes:
        return None
    return CleaningTask(
        directory=str(log.directory),
        name=str(log.tp),
        segments=tuple(facts.segments),
        log_start_offset=log.log_start_offset,
        first_dirty=sections.first_dirty,
        first_uncleanable=sections.first_uncleanable,
        now_ms=now_ms,
        config=log.config,
        buffers=Buffers(case.map_bytes, LOAD_FACTOR, READ_BYTES, float("inf")),
    )


class _Kafkas:
    """Kafka's, in a JVM that does nothing else."""

    def __init__(self, cleaner: KafkaCleaner) -> None:
        self._cleaner = cleaner

    @property
    def pid(self) -> int:
        return self._cleaner.pid

    def clean(self, directory: Path, case: Case, now_ms: int) -> Cleaning:
        found = NOTHING
        while True:
            cleaned = self._cleaner.clean(
                directory,
                config=_SETTINGS,
                now_ms=now_ms,
                first_dirty=found.end_offset if found.passes else None,
                buffer_bytes=case.map_bytes,
                load_factor=LOAD_FACTOR,
                io_buffer_bytes=READ_BYTES,
            )
            if not cleaned.cleanable_bytes:
                return found
            stats = cleaned.stats
            times = _Times(stats.seconds, stats.index_seconds, stats.map_bytes_read, cleaned.cpu_seconds)
            found = found.and_a_pass(times, stats.messages_written, cleaned.end_offset)


NAMES = ("cleaner", "job", "beside")


def run(
    names: Iterable[str],
    share: float,
    rounds: int,
    before: Rows,
    say: Callable[[str], None],
    keep: Callable[[Rows], None],
) -> Rows:
    """See ``run_parts``. A row a figure, see ``Comparison.row``.

    The parts: Kafka's cleaner and ours by themselves; the Spark job; a producer beside a running broker's cleaner.
    """
    names = list(names)
    check_names(names, NAMES)
    with TemporaryDirectory(prefix="sparklog-bench-") as scratch:
        directory = Path(scratch)
        parts = {
            "cleaner": lambda: _cleaner(directory, share, min(rounds, ROUNDS), say),
            "job": lambda: compaction_job.run(directory, share, say),
            "beside": lambda: disturbance.run(directory / "brokers", share, say),
        }
        return run_parts(parts, names, before, keep)


def _cleaner(directory: Path, share: float, rounds: int, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    for case in CASES:
        say(f"compaction: {case.name}")
        compared = compare(case, case.scaled(share), directory, rounds)
        if case == PUBLISHED_LIKE:
            compared.append(_model(compared[0]))
        yield from (each.row() for each in compared)


def compare(case: Case, scaled: Case, directory: Path, rounds: int) -> list[Comparison]:
    """MB/s first; the rest is as it comes."""
    now_ms = SystemClock().now_ms()
    warm, whole = directory / "warm", directory / "whole"
    write_log(warm / str(_PARTITION), scaled, now_ms, WARM_UP_SHARE)
    size = write_log(whole / str(_PARTITION), scaled, now_ms)
    rate, by_cpu, index, memory, left, passes = (
        Comparison(case.name, figure, "Kafka")
        for figure in ("MB/s", "of CPU time: MB/s", "index: MB/s", "MB of memory", "MB left", "passes")
    )
    for number in range(rounds):
        found = {}
        for side in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
            found[side], peak, bytes_left = _measure(side, warm, whole, scaled, now_ms)
            cleaning = found[side]
            getattr(rate, side).append(size / cleaning.seconds / 1e6)
            getattr(by_cpu, side).append(size / max(cleaning.cpu_seconds, 0.01) / 1e6)
            getattr(index, side).append(cleaning.indexed_bytes / max(cleaning.index_seconds, 0.001) / 1e6)
            getattr(memory, side).append(peak / 1e6)
            getattr(left, side).append(bytes_left / 1e6)
            getattr(passes, side).append(cleaning.passes)
        _check_alike(found["ours"], found["theirs"])
    shutil.rmtree(warm)
    shutil.rmtree(whole)
    return [rate, by_cpu, index, memory, left, *([passes] if max(passes.theirs) > 1 else [])]


def _check_alike(ours: Cleaning, theirs: Cleaning) -> None:
    if (ours.messages, ours.end_offset, ours.passes) != (theirs.messages, theirs.end_offset, theirs.passes):
        raise RuntimeError(f"the two cleaners differ in what they left: {ours}, {theirs}")


def _measure(side: str, warm: Path, whole: Path, case: Case, now_ms: int) -> tuple[Cleaning, int, int]:
    """A cleaning of a copy of ``whole`` after one of a copy of ``warm``; the most memory, and the bytes left."""
    own = whole.parent / side
    with machine.one_core() as cpu, (_our_cleaner if side == "ours" else _kafkas_cleaner)(cpu) as cleaner:
        for source in (warm, whole):
            copy(source, own)
            partition = own / str(_PARTITION)
            _read_all(partition)
            found = cleaner.clean(partition, case, now_ms)
            left = _log_bytes(partition)
            shutil.rmtree(own)
        return found, machine.peak_bytes(cleaner.pid), left


@contextmanager
def _our_cleaner(_: int) -> Iterator[Cleaner]:
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        ours = _Ours(runner.get_loop())
        stack.callback(ours.end)
        yield ours


@contextmanager
def _kafkas_cleaner(cpu: int) -> Iterator[Cleaner]:
    with KafkaCleaner(JVM, machine.cpu_seconds) as cleaner:
        machine.pin(cleaner.pid, cpu)
        machine.give_way(cleaner.pid, NICENESS)
        yield _Kafkas(cleaner)


def write_log(directory: Path, case: Case, now_ms: int, share: float = 1.0) -> int:
    """Write so much of the records of ``case``, all to be cleaned; the size of the log."""
    directory.mkdir(parents=True)
    config = parse(TopicConfig, _SETTINGS)
    with closing(Log(directory, _PARTITION, config, SystemClock(), lambda work: work())) as log:
        records, seed = int(case.records * share), int(share == 1)
        for batch in keyed_batches(case.size, records, case.keys, case.compression, now_ms, seed):
            log.append_as_leader(memoryview(batch.data), 0)
        log.roll()
        return log.size


def _read_all(directory: Path) -> None:
    """So that it lies in the page cache."""
    for path in directory.glob("*.log"):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def _log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def _model(rate: Comparison) -> Comparison:
    """How long the published log would take at the rates that were measured; not a measurement."""
    name = f"model: {PUBLISHED_BYTES / 2**20:,.1f} MB of {PUBLISHED_LIKE.size} B, at the rate above"
    return Comparison(
        name,
        "s",
        "Kafka",
        [PUBLISHED_BYTES / 1e6 / each for each in rate.ours],
        [PUBLISHED_BYTES / 1e6 / each for each in rate.theirs],
    )
