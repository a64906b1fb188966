"""Putting cleaned segments in the place of a log's old ones while it is read and written.

The owner of the log begins and adopts a replacement on its own thread; in between another thread changes the files.
Until it is adopted the old segments are read on by the descriptors that they have open, and are held by a lease, so
that retention passes them over. A reader finds either all of the old segments or all of the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sparklog.config.topic import TopicConfig
from sparklog.errors import CorruptRecord, LogDirFailed, LogError
from sparklog.log import swap
from sparklog.log.files import disk_refused, rename_deleted
from sparklog.log.lease import Lease
from sparklog.log.segment import LogSegment


class Replacement:
    """One swap of segments."""

    def __init__(
        self,
        directory: Path,
        config: TopicConfig,
        gone: tuple[LogSegment, ...],
        end_offset: int,
        new: Sequence[int],
        now: float,
    ) -> None:
        """``new`` are the base offsets of ``.cleaned`` segments; ``now`` is monotonic, in seconds."""
        self.gone = gone
        self.end_offset = end_offset
        """Where the segment begins that follows those that are to go."""
        self.fresh: tuple[LogSegment, ...] = ()
        """The new segments, open, once the files are in place."""
        self.doomed: list[Path] = []
        """The files of the old ones, under names that end in ``.deleted``."""
        self._directory = directory
        self._config = config
        self._new = new
        self._lease = Lease(now, float("inf"), is_last=True)
        for segment in gone:
            self._lease.hold(segment.leases)

    def perform(self) -> None:
        """Put the files in place; durable on return. On any one thread.

        Raises LogError unless the ``.cleaned`` files are there, and DiskFull, both with nothing changed; LogDirFailed
        where the disk fails half way: the next start finishes the swap.
        """
        try:
            swap.prepare(self._directory, self._new)
        except FileNotFoundError as error:
            raise LogError(f"{error.filename} is not there: nothing is replaced") from error
        except OSError as error:
            self._give_up()
            raise disk_refused(f"cannot swap segments of {self._directory}", error) from error
        try:
            for path in (each for segment in self.gone for each in segment.paths):
                self.doomed.append(rename_deleted(path))
            swap.finish(self._directory, self._new)
            self.fresh = tuple(
                LogSegment(self._directory, base, self._config, active=False) for base in sorted(self._new)
            )
            for segment in self.fresh:
                segment.load_latest()
        except OSError as error:
            raise LogDirFailed(f"cannot swap segments of {self._directory}: {error.strerror or error}") from error
        except (
            CorruptRecord
        ) as error:  # the old segments have lost their names: as they are, the new ones must not be served
            raise LogDirFailed(f"what was swapped in cannot be read: {error}") from error

    def _give_up(self) -> None:
        try:
            swap.call_off(self._directory, self._new)
        except OSError as error:
            raise LogDirFailed(f"cannot undo a swap in {self._directory}: {error.strerror or error}") from error
        with suppress(OSError):  # what is left does no harm, and is removed later
            swap.undo(self._directory)

    def end(self) -> None:
        """Hold the old segments no longer."""
        self._lease.end()
