"""Commits a streaming query's progress as the offsets of a consumer group, for tools that show groups.

Only Spark's checkpoint says where the query continues; nothing is read back from the group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from sparklog.client.admin.admin import Admin, OffsetAndMetadata
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.obstacles import Obstacles
from sparklog.clock import Clock
from sparklog.config.job_clients import Rights
from sparklog.errors import SparklogError
from sparklog.spark.failures import rights_named
from sparklog.spark.read.offsets import Offsets
from sparklog.structs import NO_EPOCH, TopicPartition

_PATIENCE_MS = 5_000
"""The longest time that a query waits for the group's coordinator."""
PAUSE_S = 10.0
"""Seconds without a commit after a failure: an idle query would retry a hundred times a second."""


class GroupProgress:
    """Commits offsets to a group that has no members. It logs a failure and retries after a pause. Close it."""

    def __init__(self, config: ClientConfig, group_id: str, clock: Clock, metadata: str = "") -> None:
        """``metadata`` goes with every offset."""
        self._config = dataclasses.replace(config, api_timeout_ms=min(config.api_timeout_ms, _PATIENCE_MS))
        self._group_id = group_id
        self._metadata = metadata
        self._clock = clock
        self._obstacles = Obstacles(clock)
        self._retry_at = float("-inf")
        self._committed: dict[TopicPartition, OffsetAndMetadata] | None = None
        self._admin: Admin | None = None

    def commit(self, offsets: Offsets, epochs: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the offsets if they have changed. The planner calls this at every trigger, even an idle one.

        ``epochs``: leader epochs of which it is known that no record before the offset has a later one.
        """
        known = epochs or {}
        noted = {tp: OffsetAndMetadata(at, known.get(tp, NO_EPOCH), self._metadata) for tp, at in offsets.items()}
        if noted == self._committed or not noted or self._clock.monotonic() < self._retry_at:
            return
        try:
            if self._admin is None:
                self._admin = Admin(self._config)
            with rights_named(Rights("READ")):
                self._admin.alter_group_offsets(self._group_id, noted)
        except SparklogError as error:
            self._retry_at = self._clock.monotonic() + PAUSE_S
            what = f"the progress of the query is not committed to group {self._group_id!r}: {error}"
            self._obstacles.met("commit", what, at_once=True)
            return
        self._committed = noted
        self._obstacles.over("commit")

    def repeat(self) -> None:
        """Commit next time even what was committed already: brokers forget offsets that are old."""
        self._committed = None

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
