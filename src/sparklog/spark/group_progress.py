"""A streaming query's progress as the offsets of a consumer group, for the tools that show groups.

Spark's checkpoint alone says where the query goes on; nothing is ever read back from the group.
"""

from __future__ import annotations

import dataclasses
import logging

from sparklog.client.admin import Admin
from sparklog.client.config import ClientConfig
from sparklog.errors import SparklogError
from sparklog.spark.offsets import Offsets

_log = logging.getLogger(__name__)
_PATIENCE_MS = 5_000
"""For how long a query waits at most for the group's coordinator."""


class GroupProgress:
    """Commits offsets to a group that has no members; a failure is logged, and made good by the next commit."""

    def __init__(self, config: ClientConfig, group_id: str) -> None:
        self._config = dataclasses.replace(config, api_timeout_ms=min(config.api_timeout_ms, _PATIENCE_MS))
        self._group_id = group_id
        self._committed: Offsets | None = None
        self._admin: Admin | None = None

    def commit(self, offsets: Offsets) -> None:
        """Store them for the group, if they are not what was stored last."""
        if offsets == self._committed or not offsets:
            return
        self._committed = dict(offsets)
        try:
            if self._admin is None:
                self._admin = Admin(self._config)
            self._admin.alter_group_offsets(self._group_id, offsets)
        except SparklogError as error:
            _log.warning("the progress of the query is not committed to group %r: %s", self._group_id, error)

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
