"""What the kernel has read from disks, and written to them, for this process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sparklog.metrics import families
from sparklog.metrics.exposition import Exposition
from sparklog.protocol.slices import Steps

_ACCOUNT: Final = Path("/proc/self/io")


class DiskCollector:
    """Kafka's ``linux-disk-read-bytes`` and ``-write-bytes``; there are none where the kernel does not tell them."""

    def __init__(self, account: Path = _ACCOUNT) -> None:
        self._account = account

    def collect(self, page: Exposition) -> Steps[None]:
        told = self._told()
        for family, name in ((families.DISK_READ, "read_bytes"), (families.DISK_WRITTEN, "write_bytes")):
            lines = page.lines(family)
            if name in told:
                lines.append(family.sample(int(told[name])))
        yield

    def _told(self) -> dict[str, str]:
        try:
            lines = self._account.read_text().splitlines()
        except OSError:
            return {}
        return dict(line.split(": ", 1) for line in lines)
