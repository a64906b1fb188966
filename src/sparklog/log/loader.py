"""Opening a partition directory: which segments it has, how far each can be believed, what its producers did.

After a clean stop the indexes are trusted once they pass their sanity check. Otherwise every segment that holds offsets
at or beyond the recovery point is recovered, and the last one always; the log ends after the last good batch.
Interrupted swaps and deletions are finished or undone first, leader epochs that cannot be read are found again in the
batches, and the producers' state is brought to the end of the log. See ``docs/adr/0006`` for what that promises.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from sparklog.config.topic import TopicConfig
from sparklog.errors import CorruptRecord, LogError
from sparklog.log.adoption import ADOPTION, finish_interrupted_adoption
from sparklog.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from sparklog.log.cut import Cut
from sparklog.log.file_records import end_offset
from sparklog.log.files import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
    kept_path,
    segment_path,
    segment_paths,
    shown,
    sync_directory,
)
from sparklog.log.leader_epochs import EpochEntry, LeaderEpochCache
from sparklog.log.producer_state import EXPIRATION_MS, ProducerStateManager
from sparklog.log.recovery import Recovered, recover_segment
from sparklog.log.segment import MAX_RELATIVE_OFFSET, LogSegment
from sparklog.log.segments import LogSegments
from sparklog.log.swap import finish_interrupted, is_interrupted
from sparklog.record.batch import RecordBatch

_logger = logging.getLogger(__name__)
_SMALL_FILES = (LEADER_EPOCHS, PARTITION_METADATA)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of a partition before its directory is looked at."""

    recovery_point: int = 0
    log_start_offset: int = 0
    clean: bool = True
    """Whether the log directory was closed in order."""
    producer_expiration_ms: int = EXPIRATION_MS
    high_watermark: int = 0
    """As far as a checkpoint knew it."""
    cleaned_to: int = 0
    """Up to which offset a cleaning has rewritten it, also where its topic is compacted no longer."""


@dataclass(slots=True)
class Loaded:
    """What a directory held."""

    segments: LogSegments
    producers: ProducerStateManager
    epochs: LeaderEpochCache
    next_offset: int = 0
    log_start_offset: int = 0
    scanned_bytes: int = 0
    dropped_bytes: int = 0


def placed_names(directory: Path) -> frozenset[str]:
    """What a partition's ``directory`` holds.

    Raises LogError where it, or what bears the name of a file that is opened, is a link to nothing, a pipe, a socket or
    a device: to open it could look like a broken disk, or never end. OSError if it cannot be listed.
    """
    if directory.is_symlink() and not directory.exists():
        raise LogError(f"{directory} is a link to nothing: mount what it leads to, or move it away")
    names = []
    with os.scandir(directory) as found:
        for each in found:
            names.append(each.name)
            is_opened = each.name in _SMALL_FILES or each.name.endswith((LOG_SUFFIX, *INDEX_SUFFIXES))
            if is_opened and not (each.is_file() or each.is_dir()):  # what a directory is, the system says plainly
                raise LogError(f"{shown(Path(each.path))} is no file, or a link to nothing; move it away")
    return frozenset(names)


def finish_what_was_interrupted(directory: Path, names: frozenset[str]) -> frozenset[str]:
    """Finish or undo what a crash left half done in a partition's ``directory``, which holds ``names``; the names that
    are there then. Raises LogError where only a person can decide, OSError if the disk refuses.
    """
    if ADOPTION not in names and not is_interrupted(names):
        return names
    finish_interrupted_adoption(directory)
    finish_interrupted(directory)
    return frozenset(os.listdir(directory))


@dataclass
class LogLoader:
    """Opens one directory, once."""

    directory: Path
    config: TopicConfig
    known: Knowledge
    now_ms: int
    names: frozenset[str]
    """What the directory holds (``placed_names``): it is listed again only where a crash left something to do."""
    _loaded: Loaded = field(init=False)
    _state_is_current: bool = field(default=False, init=False)
    _gaps: list[tuple[int, int]] = field(default_factory=list, init=False)
    """Offsets that lack between two segments, by no right that is known: the first of them, and one past the last."""

    def load(self) -> Loaded:
        """Open every segment; an empty directory gets its first.

        Raises LogError where something stands that only a person can decide on; OSError if the disk refuses.
        """
        names = finish_what_was_interrupted(self.directory, self.names)
        producers = ProducerStateManager(self.directory, self.known.producer_expiration_ms)
        epochs, epochs_are_lost = self._open_epochs()
        loaded = self._loaded = Loaded(LogSegments(), producers, epochs)
        bases = sorted(base_offset_of(self.directory / name) for name in names if name.endswith(LOG_SUFFIX))
        bases = self._without_unused(bases)
        if bases:
            producers.discard_stray(bases)
            self._open_segments(bases)
            self._drop_what_ends_before_the_start()
        if not loaded.segments:
            base = loaded.next_offset = self.known.log_start_offset
            loaded.segments.add(LogSegment(self.directory, base, self.config, active=True, create=True))
            if self.names:  # else it is new, and is synced when it gets its topic's id
                sync_directory(self.directory)
        self._say_what_lacks()
        self._say_what_is_gone()
        first = loaded.segments.first.base_offset
        loaded.log_start_offset = min(max(self.known.log_start_offset, first), loaded.next_offset)
        if epochs_are_lost:
            epochs.replace(loaded.segments.epochs_from(loaded.log_start_offset))
        elif self._epochs_begin_late():
            self._take_earlier_epochs()
        epochs.truncate_from_end(loaded.next_offset)
        epochs.write()
        if not self.known.clean:
            self._take_epochs_of_batches()
        self._load_producers()
        return loaded

    def _without_unused(self, bases: list[int]) -> list[int]:
        """An empty last segment goes if the one before it reaches beyond its base: a roll that the disk refused."""
        paths = [segment_path(self.directory, base, LOG_SUFFIX) for base in bases[-2:]]
        if len(paths) < 2 or paths[1].stat().st_size or end_offset(paths[0], damaged=True) <= bases[-1]:
            return bases
        _logger.warning("%s is removed: it is empty, and %s reaches beyond it", paths[1], paths[0].name)
        for path in segment_paths(self.directory, bases[-1]):
            path.unlink()
        sync_directory(self.directory)
        return bases[:-1]

    def _epochs_begin_late(self) -> bool:
        """Whether the epochs were cut to a start of the log that a crash has taken back."""
        first = next(iter(self._loaded.epochs.entries), None)
        is_empty = self._loaded.next_offset == self._loaded.log_start_offset
        return (
            not (self.known.clean or is_empty or first is None) and first.start_offset > self._loaded.log_start_offset
        )

    def _take_earlier_epochs(self) -> None:
        """Those that are known stay: where batches were cleaned away, the others do not say where an epoch began."""
        loaded, known = self._loaded, self._loaded.epochs.entries
        found = loaded.segments.epochs_from(loaded.log_start_offset)
        earlier = list(takewhile(lambda each: each[1] < known[0].start_offset and each[0] <= known[0].epoch, found))
        if earlier and earlier[-1][0] == known[0].epoch:
            known = known[1:]
        loaded.epochs.replace((*earlier, *known))

    def _take_epochs_of_batches(self) -> None:
        """The checkpoint may not know of those that began last: a crash came before it was written. It may even know
        of one that began where older batches were restored then.
        """
        loaded, epochs = self._loaded, self._loaded.epochs
        latest = epochs.latest or EpochEntry(-1, 0)
        if loaded.segments.last_epoch() != latest.epoch:
            start = max(loaded.log_start_offset, latest.start_offset)
            found = list(loaded.segments.epochs_from(start))
            if found and found[0][0] < latest.epoch:
                epochs.truncate_from_end(latest.start_offset)
            for epoch, first in found:
                epochs.assign(epoch, first)
            epochs.write()

    def _drop_what_ends_before_the_start(self) -> None:
        """After a crash the log may end before the start that was checkpointed: all that is left was deleted before."""
        loaded = self._loaded
        if loaded.next_offset >= self.known.log_start_offset:
            return
        _logger.warning(
            "%s ends at offset %d, before its start; it begins anew at %d",
            self.directory,
            loaded.next_offset,
            self.known.log_start_offset,
        )
        for segment in reversed(list(loaded.segments)):
            loaded.segments.remove(segment)
            segment.close()
            for path in segment.paths:
                path.unlink()
        loaded.producers.discard_snapshots(beyond=-1)
        sync_directory(self.directory)
        self._state_is_current = False

    def _say_what_lacks(self) -> None:
        """A segment begins where the one before it ends, unless a cleaning rewrote that: something went in between."""
        if not self._gaps:
            return
        end, after = self._gaps[0]
        is_compacted = "compact" in self.config.cleanup_policy
        _logger.log(
            logging.WARNING if is_compacted else logging.ERROR,
            "%s lacks offsets %d to %d, between one segment and the next (%d %s): a segment was removed or lost%s. "
            "Stop the broker and put the segment's files back, or have another broker's replica copied here",
            self.directory,
            end,
            after - 1,
            len(self._gaps),
            "place" if len(self._gaps) == 1 else "places",
            ", unless a crash cut a compaction short or Kafka copied this log" if is_compacted else "",
        )

    def _say_what_is_gone(self) -> None:
        """No crash shortens a log below its recovery point: files were removed, damaged, or are those of a backup."""
        if self._loaded.next_offset < self.known.recovery_point:
            _logger.error(
                "%s ends at offset %d, but offsets up to %d were on the disk: those between are gone. If you have the "
                "files, stop the broker, put them back, and start it again before more is written",
                self.directory,
                self._loaded.next_offset,
                self.known.recovery_point - 1,
            )

    def _open_epochs(self) -> tuple[LeaderEpochCache, bool]:
        """The epochs, and whether the checkpoint is missing or useless; Kafka makes each log with an empty one."""
        path = self.directory / LEADER_EPOCHS
        if not path.exists() or not path.stat().st_size:
            return LeaderEpochCache(self.directory, anew=True), True
        try:
            return LeaderEpochCache(self.directory), False
        except CorruptRecord as error:
            _logger.warning("%s; the epochs are taken from the batches instead", error)
            return LeaderEpochCache(self.directory, anew=True), True

    def _open_segments(self, bases: list[int]) -> None:
        loaded, is_cut, aside, cut = self._loaded, False, 0, Cut(0)
        for base, after in zip(bases, [*bases[1:], None], strict=True):
            indexed = _has_indexes(self.directory, base)
            segment = LogSegment(
                self.directory, base, self.config, active=after is None or not self.known.clean or not indexed
            )
            if is_cut:
                loaded.dropped_bytes += segment.size
                cut.take_segment(segment)
                _set_aside(segment)
                aside += 1
                continue
            is_last = after is None
            is_due = not self.known.clean and (is_last or (after or 0) > self.known.recovery_point)
            end = None if is_due or not indexed else _believed_end(segment, after)
            was_recovered = end is None
            was_indexed = False
            if end is None:
                recovered = self._recover(segment, after)
                end = loaded.next_offset = cut.offset = recovered.next_offset
                is_broken = recovered.damage is not None or (is_due and self._has_lost_its_end(segment, after))
                if is_broken and self._is_before_the_start(after):
                    self._drop_front(segment)
                    continue
                cut.take_rest(segment, recovered)
                is_cut = is_broken
            else:
                loaded.next_offset = end if after is None else after
                self._state_is_current = False
                was_indexed = _was_indexed_anew(segment)
            if after is not None and not is_cut:
                self._note_what_lacks(segment, end, after)
                segment.seal()
                if (was_recovered or was_indexed) and not is_due:  # it counts as flushed, but its new indexes are not
                    segment.flush_indexes()
            loaded.segments.add(segment)
        if aside:
            sync_directory(self.directory)  # or they could come back behind a clean stop
        cut.say(self.directory)

    def _is_before_the_start(self, after: int | None) -> bool:
        """Whether nothing before ``after``, where the next segment begins, is part of the log any more.

        What lacks there was deleted, or was to be: it says nothing against what lies behind it.
        """
        return after is not None and after <= self.known.log_start_offset

    def _drop_front(self, last: LogSegment) -> None:
        """Delete the segments up to ``last``, in which something lacks and behind which the log starts."""
        segments = self._loaded.segments
        _logger.warning(
            "%s and what lies before it is removed: it is damaged, and the log starts behind it", last.log.path
        )
        for segment in (*segments, last):
            segments.remove(segment)
            for path in (segment.delete_log(), *segment.delete_indexes()):
                path.unlink(missing_ok=True)

    def _has_lost_its_end(self, segment: LogSegment, after: int | None) -> bool:
        """Whether a segment that was not flushed ends before the next one begins: what was between them is lost.

        A compacted topic has such holes by right, so none can be told there; nor in what was cleaned while the topic
        was a compacted one, which was on the disk before it took its place.
        """
        end = self._loaded.next_offset
        if after is None or "compact" in self.config.cleanup_policy or not self._lacks(segment, end, after):
            return False
        if not self._is_before_the_start(after):
            _logger.error("%s ends before offset %d; offsets up to %d are lost", segment.log.path, end, after - 1)
        return True

    def _lacks(self, segment: LogSegment, end: int, after: int) -> bool:
        """Whether something lacks between the ``end`` of a segment and the next one, by no right that is known."""
        if end == after or segment.base_offset < self.known.cleaned_to:
            return False
        return after - segment.base_offset <= MAX_RELATIVE_OFFSET  # else a follower's leader had a hole of that width

    def _note_what_lacks(self, segment: LogSegment, end: int, after: int) -> None:
        if end < after and self._lacks(segment, end, after) and not self._is_before_the_start(after):
            self._gaps.append((end, after))

    def _recover(self, segment: LogSegment, limit: int | None) -> Recovered:
        """Recover the segment, and with it what is known of the producers up to its end."""
        loaded, producers = self._loaded, self._loaded.producers
        if not self._state_is_current:
            if not self.known.clean:
                producers.discard_snapshots(beyond=segment.base_offset)
            self._load_producers_up_to(segment.base_offset)
            self._state_is_current = True
        recovered = recover_segment(segment, limit, self._visit)
        producers.end_offset = limit if limit and self._is_before_the_start(limit) else recovered.next_offset
        if limit is not None:
            producers.take_snapshot(self.now_ms, durable=False)
        loaded.scanned_bytes += recovered.scanned_bytes
        loaded.dropped_bytes += recovered.dropped_bytes
        return recovered

    def _visit(self, segment: LogSegment, batch: RecordBatch) -> None:
        aborted = self._loaded.producers.update(batch, self.now_ms)
        if aborted is not None:
            segment.txn_index.append(aborted)

    def _load_producers(self) -> None:
        """Bring the producers' state to the end of the log, from its start where no snapshot is left."""
        if not self._state_is_current:
            self._load_producers_up_to(self._loaded.next_offset)

    def _load_producers_up_to(self, offset: int) -> None:
        replay(self._loaded.producers, self._loaded.segments, self.known.log_start_offset, offset, self.now_ms)


def replay(
    producers: ProducerStateManager, segments: LogSegments, log_start_offset: int, up_to: int, now_ms: int
) -> None:
    """Bring ``producers`` to ``up_to`` from the newest snapshot before it; the transaction indexes are left alone.

    Without a snapshot it begins with the first segment, also where the log starts inside or behind that: a producer is
    remembered for longer than its records.
    """
    first = segments.first.base_offset if segments else log_start_offset
    producers.load(min(first, up_to), up_to)
    start = producers.end_offset
    for segment in segments.from_offset(start) if start < up_to else ():
        for batch in segment.producers_batches(start, up_to):
            producers.update(batch, now_ms)
    producers.end_offset = up_to


def _has_indexes(directory: Path, base: int) -> bool:
    return all(segment_path(directory, base, suffix).exists() for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX))


def _believed_end(segment: LogSegment, after: int | None) -> int | None:
    """One past the last offset; None unless the indexes hold together and the log's end, where appends go on, is read.

    A batch that went bad in an older segment since a clean stop is not cut away with all that follows it: it is left,
    said in the log, and a read of it fails.
    """
    try:
        segment.check_indexes()
    except CorruptRecord as error:
        _logger.warning("rebuilding the indexes of %s: %s", segment.log.path, error)
        return None
    try:
        end = segment.next_offset()
        segment.load_latest()
    except CorruptRecord as error:
        _logger.error("%s is damaged: %s", segment.log.path, error)
        return after  # None of the last segment
    return end


def _was_indexed_anew(segment: LogSegment) -> bool:
    """Make the indexes anew if they hold together but lack entries, unless a batch is bad: they can be used."""
    try:
        if segment.has_wrong_times() or segment.has_sparse_index():
            _logger.info("making the indexes of %s anew: they lack entries", segment.log.path)
            segment.index_anew()
            return True
    except CorruptRecord as error:
        _logger.error("%s is damaged: %s", segment.log.path, error)
    return False


def _set_aside(segment: LogSegment) -> None:
    """A segment behind a damaged one is part of the log no longer; what it holds is kept."""
    segment.close()
    for path in segment.paths:
        if path == segment.log.path and segment.size:
            kept = kept_path(path)
            _logger.error("%s stands behind the damage and is kept as %s", path, kept.name)
            path.rename(kept)
        else:
            path.unlink()
