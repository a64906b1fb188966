"""Ids for idempotent producers: unique in the cluster, taken from ZooKeeper a block at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sparklog.zk.client import ZkClient

BLOCK_SIZE = 1000


class ProducerIds:
    """An id is given once; what is left of a block when the broker stops is never used."""

    def __init__(self, broker_id: int, zk: ZkClient, run_zk: Callable[..., Awaitable[Any]]) -> None:
        self._broker_id = broker_id
        self._zk = zk
        self._run_zk = run_zk
        self._left = iter(range(0))
        self._refill = asyncio.Lock()

    async def take(self) -> int:
        """The next id. Raises ApiError if ZooKeeper cannot be asked for more."""
        async with self._refill:
            producer_id = next(self._left, None)
            if producer_id is None:
                self._left = iter(await self._run_zk(self._zk.producer_ids.take, self._broker_id, BLOCK_SIZE))
                producer_id = next(self._left)
            return producer_id
