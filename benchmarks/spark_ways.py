"""The ways in which Spark reads and writes here: which format, on which broker, with which options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

READY_FORMAT = "ready"
"""``benchmarks.loads.ready``."""


@dataclass(frozen=True)
class Way:
    """``name`` is what the page calls it."""

    name: str
    source: str
    broker: str
    options: Mapping[str, str] = field(default_factory=dict, hash=False)


CONNECTOR = Way("connector on Kafka", "kafka", "kafka")
ON_KAFKA = Way("sparklog on Kafka", "sparklog", "kafka")
BY_FETCH = Way("sparklog by Fetch", "sparklog", "sparklog", {"directRead": "never"})
DIRECT = Way("sparklog direct", "sparklog", "sparklog", {"directRead": "always"})
READY = Way("ready-made batches", READY_FORMAT, "sparklog", {"batches": "48"})
"""The bound: what Spark makes of a Python source that has nothing to do; 100 MB of batches a task, in turn."""
READY_IN_CACHE = Way("one ready-made batch", READY_FORMAT, "sparklog", {"batches": "1"})
"""The same for bytes that never leave the processor's cache."""
EXACTLY_ONCE = Way("sparklog, exactly once", "sparklog", "sparklog")
AT_LEAST_ONCE = Way("sparklog, at least once", "sparklog", "sparklog", {"delivery": "at-least-once"})

RECORDS = {1000: 1_500_000, 100: 6_000_000}
"""How many of each size in bytes are read."""

READING = (CONNECTOR, ON_KAFKA, BY_FETCH, DIRECT)
WRITING = (CONNECTOR, ON_KAFKA, EXACTLY_ONCE, AT_LEAST_ONCE)
