"""What a cleaning did, in the lines that Kafka's operators know (Kafka 3.9, ``CleanerStats``, ``recordStats``)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

_MB = 1024 * 1024


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
        """Count what was put into a map besides; a key that is in two maps counts twice."""
        self.end_offset = max(self.end_offset, more.end_offset)
        self.map_bytes_read += more.map_bytes_read
        self.map_messages_read += more.map_messages_read
        self.keys += more.keys
        self.buffer_utilization = max(self.buffer_utilization, more.buffer_utilization)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def summary(self, name: str, worker: int) -> str:
        """Kafka's summary of a cleaning, in its words."""
        clean_seconds = max(self.seconds - self.index_seconds, 0.0)
        index_share, clean_share = _share(self.index_seconds, self.seconds), _share(clean_seconds, self.seconds)
        lines = (
            f"Log cleaner thread {worker} cleaned log {name} "
            f"(dirty section = [{self.first_offset}, {self.end_offset}])",
            f"{_mb(self.bytes_read)} MB of log processed in {self.seconds:,.1f} seconds"
            f" ({_rate(self.bytes_read, self.seconds)} MB/sec).",
            f"Indexed {_mb(self.map_bytes_read)} MB in {self.index_seconds:.1f} seconds"
            f" ({_rate(self.map_bytes_read, self.index_seconds)} Mb/sec, {index_share:.1f}% of total time)",
            f"Buffer utilization: {100 * self.buffer_utilization:.1f}%",
            f"Cleaned {_mb(self.bytes_read)} MB in {clean_seconds:.1f} seconds"
            f" ({_rate(self.bytes_read, clean_seconds)} Mb/sec, {clean_share:.1f}% of total time)",
            f"Start size: {_mb(self.bytes_read)} MB ({self.messages_read:,} messages)",
            f"End size: {_mb(self.bytes_written)} MB ({self.messages_written:,} messages)",
            f"{100 - _share(self.bytes_written, self.bytes_read):.1f}% size reduction"
            f" ({100 - _share(self.messages_written, self.messages_read):.1f}% fewer messages)",
        )
        return "\n\t" + "\n\t".join(lines)


def _mb(size: float) -> str:
    return f"{size / _MB:,.1f}"


def _rate(size: float, seconds: float) -> str:
    return _mb(size / seconds) if seconds > 0 else "-"


def _share(part: float, whole: float) -> float:
    """In percent; 0 of nothing."""
    return 100 * part / whole if whole else 0.0
