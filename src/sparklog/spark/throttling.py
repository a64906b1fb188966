"""Tells how long brokers had Spark's tasks wait because of quotas: in the log of a task, and summed in ``PROCESS``.

A Python data source has no metrics in Spark, so a task says it at its end, at WARNING, where executors' logs show it:
a task that waits for its quota looks like one that is slow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.throttling import Throttling

_log = logging.getLogger(__name__)
PROCESS = Throttling()
"""The sums of all tasks of this Python process that have ended."""


@contextmanager
def cluster_of_task(config: ClientConfig) -> Iterator[ClusterMetadata]:
    """The way of a task to its cluster; at its end it is told how long brokers had it wait."""
    with ClusterMetadata(config) as cluster:
        try:
            yield cluster
        finally:
            report(cluster.pool.throttling, config.client_id)


def report(throttling: Throttling, client_id: str) -> None:
    """Log what brokers have asked of a task that has ended, and add it to the sums of the process."""
    PROCESS.include(throttling)
    found = throttling.metrics()
    if found["throttle-count"]:
        _log.warning(
            "a quota holds the client id %r: brokers asked this task %d times to send nothing, for %.0f ms in all and"
            " %.0f ms at most (docs/quotas.md)",
            client_id,
            found["throttle-count"],
            found["throttle-time-total"],
            found["throttle-time-max"],
        )
