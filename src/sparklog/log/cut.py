"""What the opening of a log takes out of it: how much, which offsets, and where it is kept; one warning says it all."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from sparklog.errors import CorruptRecord
from sparklog.log.file_records import FileRecords, end_offset
from sparklog.log.files import kept_path
from sparklog.log.recovery import Recovered, rest_path
from sparklog.log.segment import LogSegment

_logger = logging.getLogger(__name__)
_NAMED = 3


@dataclass(slots=True)
class Cut:
    """A log that ends at ``offset`` now."""

    offset: int
    end: int = -1
    """One past the last offset that was known to be in it before."""
    size: int = 0
    """Bytes."""
    kept: list[str] = field(default_factory=list)
    """Names of the files that hold them."""

    def take_rest(self, segment: LogSegment, recovered: Recovered) -> None:
        """What stood behind the damage in ``segment``, which has been cut there."""
        damage = recovered.damage
        if damage is None:
            return
        self.size += damage.size
        if damage.next_good is not None:
            rest = rest_path(segment, damage.position)
            self.kept.append(rest.name)
            self.end = max(self.end, _last_offset(rest, damage.next_good.position - damage.position) + 1)

    def take_segment(self, segment: LogSegment) -> None:
        """A whole segment; to be called before its files get other names."""
        if segment.size:
            self.size += segment.size
            self.kept.append(kept_path(segment.log.path).name)
            self.end = max(self.end, end_offset(segment.log.path, damaged=True))

    def say(self, directory: Path) -> None:
        """Tell the broker's log; nothing if nothing was cut."""
        if not self.size:
            return
        lost = f"{self.size} bytes that are no whole batch are gone"
        if self.end > self.offset:
            lost = (
                f"offsets {self.offset} to {self.end - 1} (up to {self.end - self.offset} records, {self.size} bytes) "
                "are in it no longer"
            )
        if self.kept:
            lost += f"; what was behind the damage is kept in {name_some(self.kept)} (see sparklog log dump)"
        _logger.warning("%s: the start cut the log at offset %d: %s", directory, self.offset, lost)


def name_some(names: list[str]) -> str:
    """The first few of them, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _last_offset(path: Path, position: int) -> int:
    """Of the good batches in a row that begin at ``position``."""
    last = -1
    try:
        for batch in FileRecords(path, writable=False).batches(position):
            last = batch.last_offset
    except CorruptRecord:
        pass
    return last
