"""Checking whole log directories: every partition, every file, and what the checkpoints say of them; changing nothing.

A directory may belong to a broker at work, ours or a Kafka: what it is just writing is a note then and no error.
Whether it does is told by the lock it holds (``locks``); where that cannot be seen, by a file that grows meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from uuid import UUID

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    read_meta_properties,
    read_offsets,
)
from sparklog.log.files import (
    CLEAN_SHUTDOWN_MARKER,
    DELETED_DIR_SUFFIX,
    LOCK_FILE,
    SESSION_FILE,
    STRAY_DIR_SUFFIX,
    TEMPORARY_SUFFIX,
    parse_partition_dir,
)
from sparklog.log.inspection.findings import REMOVE, Finding, Severity, error, note
from sparklog.log.inspection.locks import is_in_use
from sparklog.log.inspection.partition_check import PartitionCheck, PartitionContext
from sparklog.log.inspection.partition_files import PartitionFiles, is_partition, list_partition
from sparklog.log.inspection.segment_check import check_segment
from sparklog.log.inspection.segment_facts import SegmentFacts, SegmentJob
from sparklog.structs import TopicPartition

CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)

_RETRIES = 3
"""Of a partition that a broker is at work on; between two looks at different files it may have changed both."""
_NAMED = 5
"""Partitions that a note names."""
_MARKS = {CLEAN_SHUTDOWN_MARKER, LOCK_FILE, META_PROPERTIES, SESSION_FILE}
_ALWAYS_COMPACTED = ("__consumer_offsets", "__transaction_state")
_WRITTEN_ANEW = "delete it while no broker runs here: it is written anew, and the logs are scanned at the next start"


@dataclass(slots=True)
class Summary:
    """What was checked, and how it went. ``size`` is in bytes of ``.log`` files."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    errors: int = 0
    warnings: int = 0
    notes: int = 0

    @property
    def is_sound(self) -> bool:
        """Nothing was found but notes."""
        return not self.errors and not self.warnings

    def count(self, facts: SegmentFacts) -> None:
        self.segments += 1
        self.batches += facts.batches
        self.records += facts.records
        self.size += facts.size


@dataclass(slots=True)
class _LogDirectory:
    """One log directory: what its own files say."""

    path: Path
    in_use: bool
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    knows_starts: bool = True
    """There is a readable checkpoint of the log start offsets."""
    partitions: list[Path] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def context(self, partition: Path) -> PartitionContext:
        tp = parse_partition_dir(partition.name)
        if tp is None:
            return PartitionContext(self.in_use)
        return PartitionContext(
            self.in_use,
            not self.in_use and (self.path / CLEAN_SHUTDOWN_MARKER).exists(),
            tp in self.offsets[CLEANER_OFFSETS] or tp.topic in _ALWAYS_COMPACTED,
            self.offsets[RECOVERY_POINTS].get(tp),
            self.offsets[LOG_START_OFFSETS].get(tp, 0) if self.knows_starts else None,
            self.offsets[HIGH_WATERMARKS].get(tp),
        )


@dataclass(slots=True)
class Verification:
    """A check of ``directories``: log directories, partition directories, or directories of log directories.

    ``advance`` is told of bytes checked, in whatever thread checks them. ``summary`` grows while ``run`` is iterated.
    """

    directories: Sequence[Path]
    records: bool = False
    threads: int = 1
    advance: Callable[[int], None] | None = None
    summary: Summary = field(default_factory=Summary)
    _partitions: list[tuple[PartitionCheck, list[SegmentJob]]] = field(default_factory=list)
    _before: list[Finding] = field(default_factory=list)
    _topic_ids: dict[str, tuple[UUID, Path]] = field(default_factory=dict)

    def prepare(self) -> int:
        """List what there is to check; returns the bytes of it. Raises LogError for a directory that is none of ours,
        OSError for one that cannot be read."""
        for directory in self.directories:
            self._add(directory)
        return sum(_size(job) for _, jobs in self._partitions for job in jobs)

    def _add(self, directory: Path) -> None:
        inside = sorted(each for each in directory.iterdir() if each.is_dir())
        if is_partition(directory):
            log_dir = _read_log_directory(directory.resolve().parent)
            self._add_partition(directory, log_dir.context(directory.resolve()))
        elif _is_log_directory(directory) or any(_looks_like_partition(each) for each in inside):
            self._add_log_directory(_read_log_directory(directory))
        elif log_dirs := [each for each in inside if _is_log_directory(each)]:
            for each in log_dirs:
                self._add_log_directory(_read_log_directory(each))
        else:
            raise LogError(f"{directory} is neither a log directory nor a partition's: there is nothing in it to check")

    def _add_log_directory(self, log_dir: _LogDirectory) -> None:
        self._before += log_dir.findings
        for path in log_dir.partitions:
            self._add_partition(path, log_dir.context(path))

    def _add_partition(self, path: Path, context: PartitionContext) -> None:
        try:
            files = list_partition(path, in_use=context.in_use)
        except OSError as failure:
            if not (context.in_use and isinstance(failure, FileNotFoundError)):
                what = f"cannot be listed: {failure.strerror}"
                self._before.append(error(path, what, "check its owner and mode, and the disk"))
            return
        self._partitions.append((PartitionCheck(files, context), self._jobs(files, context)))

    def _jobs(self, files: PartitionFiles, context: PartitionContext) -> list[SegmentJob]:
        limits: list[int | None] = [*files.bases[1:], None]
        return [
            SegmentJob(files.path, base, limit, context.in_use, self.records)
            for base, limit in zip(files.bases, limits, strict=False)
        ]

    def run(self) -> Iterator[Finding]:
        """Everything found, in the order of directories and offsets, each as soon as its partition is done."""
        with ExitStack() as stack:
            jobs = [job for _, jobs in self._partitions for job in jobs]
            check = partial(check_segment, advance=self.advance)
            done: Iterable[SegmentFacts] = map(check, jobs)
            if self.threads > 1:
                pool = ThreadPoolExecutor(self.threads)
                stack.callback(pool.shutdown, cancel_futures=True)
                done = pool.map(check, jobs)
            for finding in self._findings(iter(done)):
                self._count(finding)
                yield finding

    def _findings(self, done: Iterator[SegmentFacts]) -> Iterator[Finding]:
        yield from self._before
        for check, jobs in self._partitions:
            segments = list(islice(done, len(jobs)))
            found = list(check.run(segments))
            for _ in range(_RETRIES):
                if not check.context.in_use or not any(each.is_problem for each in found):
                    break
                segments, found = self._again(check)
            for facts in segments:
                self.summary.count(facts)
            self.summary.partitions += 1
            yield from found
            yield from self._same_topic_id(check.files, check.topic_id)

    def _again(self, check: PartitionCheck) -> tuple[list[SegmentFacts], list[Finding]]:
        """Check a partition once more: what its broker was changing at that moment is no damage then."""
        try:
            check.files = list_partition(check.files.path, in_use=True)
        except FileNotFoundError:
            return [], [note(check.files.path, "gone since the check began", "nothing: the broker has removed it")]
        segments = [check_segment(job) for job in self._jobs(check.files, check.context)]
        return segments, list(check.run(segments))

    def _same_topic_id(self, files: PartitionFiles, topic_id: UUID | None) -> Iterator[Finding]:
        tp = parse_partition_dir(files.path.resolve().name)
        if tp is None or topic_id is None:
            return
        other, where = self._topic_ids.setdefault(tp.topic, (topic_id, files.path))
        if other != topic_id:
            what = f"topic id {topic_id}, but {where} has {other}: one of them is of a topic that was deleted"
            yield error(files.path, what, "move the one away whose id the cluster does not know")

    def _count(self, finding: Finding) -> None:
        summary = self.summary
        if finding.severity is Severity.ERROR:
            summary.errors += 1
        elif finding.severity is Severity.WARNING:
            summary.warnings += 1
        else:
            summary.notes += 1


def _is_log_directory(path: Path) -> bool:
    return any((path / name).exists() for name in (META_PROPERTIES, RECOVERY_POINTS, LOG_START_OFFSETS))


def _looks_like_partition(path: Path) -> bool:
    return parse_partition_dir(path.name) is not None and not _is_log_directory(path) and is_partition(path)


def _size(job: SegmentJob) -> int:
    try:
        return (job.directory / f"{job.base_offset:020d}.log").stat().st_size
    except OSError:
        return 0


def _read_log_directory(path: Path) -> _LogDirectory:
    """The checkpoints first: what they say, the logs must hold; logs grow, checkpoints are written later."""
    log_dir = _LogDirectory(path, is_in_use(path))
    for name in CHECKPOINTS:
        try:
            log_dir.offsets[name] = read_offsets(path / name)
        except (CorruptRecord, OSError) as failure:
            log_dir.offsets[name] = {}
            log_dir.findings.append(error(path / name, f"cannot be read: {failure}", _WRITTEN_ANEW))
    unreadable = {finding.path.name for finding in log_dir.findings}
    log_dir.knows_starts = (path / LOG_START_OFFSETS).exists() and LOG_START_OFFSETS not in unreadable
    log_dir.findings += _check_meta_properties(path)
    names = sorted(os.listdir(path))
    if CLEAN_SHUTDOWN_MARKER not in names and META_PROPERTIES in names and not log_dir.in_use:
        what = "no broker runs here, and the last one was not stopped cleanly"
        log_dir.findings.append(note(path, what, "nothing: the next start scans what may be torn"))
    for name in names:
        log_dir.findings += _sort_entry(log_dir, path / name)
    log_dir.findings += _checkpoints_without_log(log_dir)
    return log_dir


def _check_meta_properties(path: Path) -> Iterator[Finding]:
    file, advice = path / META_PROPERTIES, "write it anew: version=0, broker.id and cluster.id, a line each"
    try:
        values = read_meta_properties(path)
    except (CorruptRecord, OSError) as failure:
        yield error(file, f"cannot be read: {failure}", advice)
        return
    if not values and not file.exists():
        return
    broker = values.get("broker.id", values.get("node.id", ""))
    if values.get("version") not in ("0", "1") or not broker.isdecimal() or not values.get("cluster.id"):
        yield error(file, "lacks a version of 0 or 1, a broker.id or a cluster.id", advice)


def _sort_entry(log_dir: _LogDirectory, path: Path) -> Iterator[Finding]:
    """A partition is listed for later; of the rest is said what it is."""
    if path.is_dir():
        if parse_partition_dir(path.name) is not None:
            log_dir.partitions.append(path)
        elif path.name.endswith(DELETED_DIR_SUFFIX):
            yield note(path, "a partition that is to be removed", "nothing: the broker or its next start removes it")
        elif path.name.endswith(STRAY_DIR_SUFFIX):
            what = "a partition that the cluster did not know, kept aside; no broker serves it"
            yield note(path, what, "remove it when you need what is in it no more")
        else:
            yield note(path, "not a partition's directory", REMOVE)
    elif path.suffix == TEMPORARY_SUFFIX:
        if not log_dir.in_use:
            yield note(path, "a small file that was not finished", "nothing: the next start removes it")
    elif path.name not in _MARKS and path.name not in CHECKPOINTS:
        yield note(path, "not a file of a log directory", REMOVE)


def _checkpoints_without_log(log_dir: _LogDirectory) -> Iterator[Finding]:
    here = {parse_partition_dir(path.name) for path in log_dir.partitions}
    for name, offsets in log_dir.offsets.items():
        for tp, offset in offsets.items():
            if offset < 0:
                yield error(log_dir.path / name, f"{tp} has the offset {offset}", _WRITTEN_ANEW)
        gone = sorted(str(tp) for tp in offsets if tp not in here)
        if gone:
            named = ", ".join(gone[:_NAMED]) + (f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else "")
            advice = "nothing, if they were deleted or moved; otherwise restore their directories"
            yield note(log_dir.path / name, f"lists partitions that are not here: {named}", advice)
