"""Showing any file of a log directory: which kind it is by its name, what it holds, what is wrong with it.

Nothing is changed, locked or created. A ``.log`` file is shown by ``dump_batches``; the others here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.checkpoints import (
    LEADER_EPOCHS,
    META_PROPERTIES,
    PARTITION_METADATA,
    read_checkpoint,
    read_meta_properties,
    read_offsets,
    read_topic_id,
)
from sparklog.log.files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    find_base_offset,
    segment_path,
)
from sparklog.log.indexes.transaction_index import read_aborted
from sparklog.log.inspection.dump_batches import DumpOptions, Entry, dump_log
from sparklog.log.inspection.index_check import IndexFile, read_offset_index, read_time_index
from sparklog.log.inspection.segment_check import check_segment
from sparklog.log.inspection.segment_facts import SegmentJob
from sparklog.log.inspection.verify import CHECKPOINTS
from sparklog.log.producer_snapshot import read_entries
from sparklog.structs import uuid_to_text

FIRST_FORMAT_SUFFIX = ".kafka"
"""Segment files of Kafka 0.7."""


def expand(path: Path) -> list[Path]:
    """The file itself; the files of a directory that ``dump_file`` knows.

    Raises LogError for a name that it does not know, or a directory without any, OSError if there is no such path.
    """
    if path.is_dir():
        found = [each for each in sorted(path.iterdir()) if each.is_file() and _reader(each) is not None]
        if not found:
            raise LogError(f"{path} holds no file of a log; give a partition's directory, or a log directory's")
        return found
    path.stat()
    if _reader(path) is None:
        raise LogError(f"{path} is not named like a file of a log, so there is no telling what it holds")
    return [path]


def dump_file(path: Path, options: DumpOptions) -> Iterator[Entry]:
    """What the file holds, in order. Raises LogError for a name that is no log's, OSError if it cannot be read."""
    reader = _reader(path)
    if reader is None:
        raise LogError(f"{path} is not named like a file of a log")
    try:
        yield from dump_log(path, options) if reader is _log else reader(path)
    except (CorruptRecord, ValueError) as failure:
        yield _problem(str(failure))


def _problem(what: str, severity: str = "error", **where: int | None) -> Entry:
    fields = {"severity": severity, "what": what, **{name: each for name, each in where.items() if each is not None}}
    return Entry("problem", fields, severity != "note")


_Reader = Callable[[Path], Iterator[Entry]]


def _log(path: Path) -> Iterator[Entry]:
    return dump_log(path, DumpOptions())


def _reader(path: Path) -> _Reader | None:
    """By name; ``.deleted``, ``.corrupt`` and the like behind a segment file's suffix change nothing."""
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    if path.suffix in (LOG_SUFFIX, FIRST_FORMAT_SUFFIX):
        return _log
    parts = path.name.split(".")
    if len(parts) < 2 or find_base_offset(path) is None:
        return None
    return _BY_SUFFIX.get(f".{parts[1]}")


def _offset_index(path: Path) -> Iterator[Entry]:
    base, found = find_base_offset(path) or 0, read_offset_index(path)
    for relative, position in found.entries:
        yield Entry("index", {"offset": base + relative, "position": position})
    yield from _index_state(found)


def _time_index(path: Path) -> Iterator[Entry]:
    base, found = find_base_offset(path) or 0, read_time_index(path)
    for timestamp, relative in found.entries:
        yield Entry("timeindex", {"timestamp": timestamp, "offset": base + relative})
    yield from _index_state(found)


def _index_state(index: IndexFile) -> Iterator[Entry]:
    """The room at the end, and what the log beside says against the entries."""
    if index.unused:
        yield _problem(f"{index.unused} unused entries at the end, set aside for more", "note")
    base = find_base_offset(index.path) or 0
    log = segment_path(index.path.parent, base, LOG_SUFFIX)
    if not log.exists():
        yield _problem(f"{log.name} is not beside it: the entries are not checked", "note")
        return
    facts = check_segment(SegmentJob(log.parent, base, None, False, False))
    for finding in facts.findings:
        if finding.path == index.path:
            yield _problem(finding.what, str(finding.severity), position=finding.position, offset=finding.offset)


def _transaction_index(path: Path) -> Iterator[Entry]:
    for entry in read_aborted(path):
        yield Entry(
            "txnindex",
            {
                "version": 0,
                "producerId": entry.producer_id,
                "firstOffset": entry.first_offset,
                "lastOffset": entry.last_offset,
                "lastStableOffset": entry.last_stable_offset,
            },
        )


def _snapshot(path: Path) -> Iterator[Entry]:
    for entry in read_entries(path):
        fields = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.transaction_first_offset,
            "lastTimestamp": entry.last_timestamp,
        }
        for batch in entry.batches:
            fields |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.last_offset - batch.first_offset,
                "timestamp": batch.timestamp,
            }
        yield Entry("producer", fields)


def _epochs(path: Path) -> Iterator[Entry]:
    for epoch, start in read_checkpoint(path, 2, may_be_empty=True):
        yield Entry("epoch", {"epoch": int(epoch), "startOffset": int(start)})


def _offsets(path: Path) -> Iterator[Entry]:
    for tp, offset in read_offsets(path).items():
        yield Entry("checkpoint", {"topic": tp.topic, "partition": tp.partition, "offset": offset})


def _partition_metadata(path: Path) -> Iterator[Entry]:
    topic_id = read_topic_id(path.parent)
    if topic_id is not None:
        yield Entry("metadata", {"topicId": uuid_to_text(topic_id)})


def _meta_properties(path: Path) -> Iterator[Entry]:
    yield Entry("properties", dict(read_meta_properties(path.parent)))


_BY_NAME: dict[str, _Reader] = {
    LEADER_EPOCHS: _epochs,
    PARTITION_METADATA: _partition_metadata,
    META_PROPERTIES: _meta_properties,
    **dict.fromkeys(CHECKPOINTS, _offsets),
}
_BY_SUFFIX: dict[str, _Reader] = {
    LOG_SUFFIX: _log,
    OFFSET_INDEX_SUFFIX: _offset_index,
    TIME_INDEX_SUFFIX: _time_index,
    TRANSACTION_INDEX_SUFFIX: _transaction_index,
    SNAPSHOT_SUFFIX: _snapshot,
}
