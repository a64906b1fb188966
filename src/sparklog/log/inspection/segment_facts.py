"""What the check of a segment finds, as values: for its neighbours, and for the check of its partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sparklog.log.inspection.findings import Finding
from sparklog.record.control import ControlType

MOST_FINDINGS = 20
"""Of one segment; what is beyond is counted."""


class SegmentJob(NamedTuple):
    """What to check."""

    directory: Path
    base_offset: int
    limit: int | None
    """Where the next segment begins; None for the last."""
    in_use: bool
    records: bool


class EpochRun(NamedTuple):
    """Batches in a row of one leader epoch."""

    epoch: int
    first_offset: int
    last_offset: int
    position: int
    """Of the first of them."""


class TransactionEvent(NamedTuple):
    """A producer's first batch behind a marker (``ended`` is None), or the marker."""

    producer_id: int
    offset: int
    ended: ControlType | None


@dataclass(slots=True)
class SegmentFacts:
    """What a segment holds, for its neighbours to be checked against."""

    job: SegmentJob
    path: Path
    next_offset: int
    size: int = 0
    batches: int = 0
    records: int = 0
    gaps: int = 0
    """Places inside the segment where offsets are missing."""
    is_compacted: bool = False
    """A batch lacks some of its records."""
    first_offset: int | None = None
    epochs: list[EpochRun] = field(default_factory=list)
    events: list[TransactionEvent] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    is_whole: bool = True
    """Every byte is part of a good batch."""
    is_old: bool = False
    """Holds batches of a format before v2."""
    damaged_at: int | None = None
    """Where not every byte is part of a good batch: the offset that was due at the first that is not."""
    records_before_damage: int = 0
    suppressed: int = 0

    def report(self, finding: Finding) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)
        else:
            self.suppressed += 1
