"""What a cleaning did, in the lines that Kafka's operators know (Kafka 3.9, ``CleanerStats``, ``recordStats``)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

_MB = 1024 * 1024
_LARGEST_COUNT = (1 << 63) - 1
_LONGEST_S = 1e9


@dataclass(slots=True)
class CleanerStats:
    """Counted by one cleaning of one log. Times are in seconds, sizes in bytes."""

    first_offset: int = 0
    """Of the dirty section."""
    end_offset: int = 0
    """One past the last offset that was cleaned; the next dirty section begins here."""
    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    invalid_messages: int = 0
    """Records without a key, which are dropped."""
    keys: int = 0
    buffer_utilization: float = 0.0
    """The share of the map that was filled, 0 to 1."""
    index_seconds: float = 0.0
    seconds: float = 0.0

    def add_index(self, more: CleanerStats) -> None:
        """Count what was put into a map besides, ``more.seconds`` long; a key that is in two maps counts twice."""
        self.end_offset = max(self.end_offset, more.end_offset)
        self.map_bytes_read += more.map_bytes_read
        self.map_messages_read += more.map_messages_read
        self.keys += more.keys
        self.buffer_utilization = max(self.buffer_utilization, more.buffer_utilization)
        self.index_seconds += more.seconds
        self.seconds += more.seconds

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, told: object) -> CleanerStats:
        """What somebody else counted. Raises ValueError for a field that is none, or a number that none can be."""
        if not isinstance(told, dict):
            raise ValueError(f"the numbers of a cleaning are no {type(told).__name__}")
        kinds = {each.name: type(each.default) for each in fields(cls)}
        for name, number in told.items():
            if not _is_possible(number, kinds.get(name)):
                raise ValueError(f"{str(number)[:40]!r} cannot be the {str(name)[:40]!r} of a cleaning")
        return cls(**told)

    def summary(self, name: str, worker: int) -> tuple[str, ...]:
        """The lines of Kafka's summary of a cleaning, in its words."""
        clean_seconds = max(self.seconds - self.index_seconds, 0.0)
        index_share, clean_share = share_of(self.index_seconds, self.seconds), share_of(clean_seconds, self.seconds)
        return (
            f"Log cleaner thread {worker} cleaned log {name} "
            f"(dirty section = [{self.first_offset}, {self.end_offset}])",
            f"{in_mb(self.bytes_read)} MB of log processed in {self.seconds:,.1f} seconds"
            f" ({rate_of(self.bytes_read, self.seconds)} MB/sec).",
            f"Indexed {in_mb(self.map_bytes_read)} MB in {self.index_seconds:.1f} seconds"
            f" ({rate_of(self.map_bytes_read, self.index_seconds)} Mb/sec, {index_share:.1f}% of total time)",
            f"Buffer utilization: {100 * self.buffer_utilization:.1f}%",
            f"Cleaned {in_mb(self.bytes_read)} MB in {clean_seconds:.1f} seconds"
            f" ({rate_of(self.bytes_read, clean_seconds)} Mb/sec, {clean_share:.1f}% of total time)",
            f"Start size: {in_mb(self.bytes_read)} MB ({self.messages_read:,} messages)",
            f"End size: {in_mb(self.bytes_written)} MB ({self.messages_written:,} messages)",
            f"{100 - share_of(self.bytes_written, self.bytes_read):.1f}% size reduction"
            f" ({100 - share_of(self.messages_written, self.messages_read):.1f}% fewer messages)",
        )


def _is_possible(number: object, kind: type | None) -> bool:
    """Whether it may be a count, where ``kind`` is int, or else a share or a time."""
    if kind is int:
        return type(number) is int and 0 <= number <= _LARGEST_COUNT
    return kind is float and isinstance(number, int | float) and 0 <= number <= _LONGEST_S  # which NaN is not


def in_mb(size: float) -> str:
    """Bytes in Kafka's MB, of 2^20 bytes."""
    return f"{size / _MB:,.1f}"


def rate_of(size: float, seconds: float) -> str:
    """MB a second, as text; no number where no time has passed."""
    return in_mb(size / seconds) if seconds > 0 else "-"


def share_of(part: float, whole: float) -> float:
    """In percent; 0 of nothing."""
    return 100 * part / whole if whole else 0.0
