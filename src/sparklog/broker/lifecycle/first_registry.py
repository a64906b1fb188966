"""The topic registry of the first design: ``brokers/topics/T/ID`` holds how many partitions of T the broker has.

An ephemeral znode for each topic, from the broker's start and from when it hears of a new topic, for programs that
read that tree. A broker has the partitions whose assignment names it first (their home, ADR 40); a topic of which it
has none has no znode of it.

Invariants:

- What stands there is what the controller told this broker last, under the broker's present session; what is behind
  is mended at the next look. A look follows every update that names a topic, and comes after ``_LOOK_AGAIN_S`` in any
  case.
- In Kafka's own tree the znode of a topic is never made here: a topic that is gone does not come back by it.
- Nothing else of the broker waits for it, or fails with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.errors import CoordinationError
from sparklog.zk.holding import HoldingClient, Write
from sparklog.zk.znodes import BROKER_TOPICS

_logger = logging.getLogger(__name__)
BESIDE = "beside"
_LOOK_AGAIN_S = 10.0
"""After a lost session, an error of ZooKeeper, or anything else that nobody told of."""


class FirstRegistry:
    """``place``: what ``sparklog.first.registry`` says."""

    def __init__(
        self,
        place: str,
        broker_id: int,
        zk: HoldingClient,
        run_zk: Callable[..., Awaitable[Any]],
        metadata: MetadataCache,
    ) -> None:
        self._is_beside = place == BESIDE
        self._folder = BROKER_TOPICS if self._is_beside else f"{place}{BROKER_TOPICS}"
        self._broker_id, self._zk, self._run_zk, self._metadata = broker_id, zk, run_zk, metadata
        self._paths: set[str] = set()
        """What was written, and not taken back."""
        self._task: asyncio.Task[None] | None = None

    def follow(self) -> None:
        """Keep it from now on."""
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Keep it no more; what is there goes with the session."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            version = self._metadata.topics_version
            try:
                await self._run_zk(self._write, self._wanted())
            except CoordinationError as error:
                _logger.warning("the first design's registry is behind, trying again: %s", error)
            await self._metadata.wait_for(lambda: self._metadata.topics_version != version, _LOOK_AGAIN_S)  # noqa: B023

    def _wanted(self) -> dict[str, bytes]:
        counts = {
            topic.name: sum(each.replicas[:1] == [self._broker_id] for each in topic.partitions.values())
            for topic in self._metadata.topics()
        }
        return {
            f"{self._folder}/{name}/{self._broker_id}": str(count).encode() for name, count in counts.items() if count
        }

    def _write(self, wanted: dict[str, bytes]) -> None:
        """Have the broker's znodes be these. On ZooKeeper's thread."""
        self._zk.let_go(self._paths - wanted.keys())
        self._paths &= wanted.keys()
        seen = dict(zip(wanted, self._zk.seen_each(wanted), strict=True))
        own = {path: each for path, each in seen.items() if each and each.session == self._zk.session_id}
        self._zk.write_each(
            [Write(path, wanted[path], each.version) for path, each in own.items() if each.data != wanted[path]]
        )
        self._paths |= own.keys()
        missing = {path: data for path, data in wanted.items() if path not in own}
        self._paths |= self._zk.hold_each(missing, makes_parents=not self._is_beside).keys()
