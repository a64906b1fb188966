"""What a collector is."""

from __future__ import annotations

from typing import Protocol

from sparklog.metrics.exposition import Exposition
from sparklog.protocol.slices import Steps


class Collector(Protocol):
    """Reads one part of the broker."""

    def collect(self, page: Exposition) -> Steps[None]:
        """Add the samples of today, in steps of a millisecond at most."""
        ...
