"""Which controller this broker obeys: the one that ZooKeeper says is in office.

Invariants:

- A request of a controller is obeyed only if it bears the epoch of this broker's registration. Until that is known it
  is held, and from the loss of a session until the next registration. Kafka takes -1 for a request of a version without
  the field; every version that is served here has it, so -1 is as stale as any other epoch.
- A controller is believed when ZooKeeper has confirmed its id and its epoch, once an epoch. Any other is looked up
  first, so that a forged frame cannot fence the controller in office. One look serves all requests that wait for it,
  and only one is under way: frames cannot pile up work on ZooKeeper.
- What ZooKeeper said last counts, also where the epoch is lower than one before: it may have been set back to an older
  state, and no controller would be obeyed otherwise until every broker is started again.
- The last check and what it allows happen in one turn of the loop. A handler that awaits something after ``admit`` asks
  ``check`` again.

A controller sends one request at a time to a broker and waits for its answer, so holding one keeps their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sparklog.errors import ApiError, CoordinationError, ErrorCode
from sparklog.protocol.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from sparklog.zk.office import Term

OfController = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
_ASK_AGAIN_S = 0.2
_NOBODY = Term(-1, -1)


class ControllerFence:
    """``ask`` looks up the controller in office; ``warn`` is told of requests that ZooKeeper does not bear out."""

    def __init__(self, ask: Callable[[], Awaitable[Term]], warn: Callable[[str], None]) -> None:
        self._ask = ask
        self._warn = warn
        self._office = _NOBODY
        self._broker_epoch: int | None = None
        self._settled = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    def registered(self, broker_epoch: int) -> None:
        """The broker is registered; requests meant for this registration are obeyed from now on."""
        self._broker_epoch = broker_epoch
        self._settled.set()

    @property
    def broker_epoch(self) -> int | None:
        """The epoch of the broker's registration; None while there is none."""
        return self._broker_epoch

    def unregistered(self) -> None:
        """The registration is lost: hold requests until there is another."""
        self._broker_epoch = None
        self._settled.clear()

    async def close(self) -> None:
        """Refuse everything; those held are answered."""
        self._broker_epoch = None
        self._settled.set()
        looks = [look for look in (self._following, self._running) if look is not None]
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def admit(self, request: OfController) -> ErrorCode:
        """NONE if the request is to be obeyed now, or the code to answer; it may take a look at ZooKeeper."""
        await self._settled.wait()
        if self._broker_epoch == request.broker_epoch and _term_of(request) != self._office:
            await self._learn()
        code = self.check(request)
        if code is not ErrorCode.NONE:
            self._warn(
                f"refused a request of a controller {request.controller_id}, epoch {request.controller_epoch}, to the "
                f"broker of epoch {request.broker_epoch}: ZooKeeper knows of controller {self._office.holder}, epoch "
                f"{self._office.epoch}, and this broker has epoch {self._broker_epoch}"
            )
        return code

    def check(self, request: OfController) -> ErrorCode:
        """NONE if what was admitted may still be done in this turn of the loop, or the code to answer."""
        if request.is_k_raft_controller:  # of a migration that this broker takes no part in
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if request.broker_epoch != self._broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if _term_of(request) != self._office:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    async def _learn(self) -> None:
        """Find out which controller is in office, with a look that begins after this call."""
        if self._following is None:
            self._following = asyncio.ensure_future(self._look(self._running))
        await asyncio.wait((self._following,))  # not cancelled with one of its waiters

    async def _look(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        self._running, self._following = self._following, None
        while True:
            try:
                found = await self._ask()
            except (ApiError, CoordinationError):
                await asyncio.sleep(_ASK_AGAIN_S)
                continue
            self._office = found
            return


def _term_of(request: OfController) -> Term:
    return Term(request.controller_id, request.controller_epoch)
