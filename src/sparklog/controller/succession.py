"""The brokers that are not the controller watch the one that is; when it is gone, one of them takes its place.

Invariants: the office is taken from a broker only while it is held under the epoch that was read before that broker
refused a connection: the znode of the old controller goes, that of the new one comes and the controller epoch rises in
one transaction, conditional on that epoch. One of many that try succeeds, and a controller that came meanwhile stays.
One that was not dead finds another in office, and what it sends bears an old epoch. A broker without ZooKeeper takes
nothing, nor one that no other confirms (``witnesses``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from sparklog.controller.witnesses import Witnesses
from sparklog.net.vigil import Sight, Vigil, look_at
from sparklog.zk.client import ZkClient
from sparklog.zk.office import Term
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
_LOOK_AGAIN_S = 1.0


class Predecessor(NamedTuple):
    """A controller that is gone: the office as it held it, and its registration."""

    office: Term
    broker: BrokerInfo


class Succession:
    """Belongs to the loop's thread."""

    def __init__(
        self, broker_id: int, zk: ZkClient, run_zk: Callable[..., Awaitable[Any]], witnesses: Witnesses | None
    ) -> None:
        """Without ``witnesses`` nobody is watched."""
        self._id = broker_id
        self._zk = zk
        self._run_zk = run_zk
        self._witnesses = witnesses
        self._is_leaving = False

    def leave(self) -> None:
        """This broker stops: it takes no office any more, and calls nobody gone. Others may stop with it."""
        self._is_leaving = True

    async def wait(self, holder: int, changed: asyncio.Event) -> Predecessor | None:
        """Until the office has ``changed`` hands, or its holder is gone; then what is known of the holder.

        Raises CoordinationError.
        """
        if self._witnesses is None or holder == self._id:
            await changed.wait()
            return None
        watching = asyncio.ensure_future(self._watch(holder, self._witnesses))
        changing = asyncio.ensure_future(changed.wait())
        try:
            await asyncio.wait((watching, changing), return_when=asyncio.FIRST_COMPLETED)
            return watching.result() if watching.done() and not changed.is_set() else None
        finally:
            for each in (watching, changing):
                each.cancel()
            await asyncio.gather(watching, changing, return_exceptions=True)

    async def _watch(self, holder: int, witnesses: Witnesses) -> Predecessor:
        while True:
            broker: BrokerInfo | None = (await self._run_zk(self._zk.brokers.live)).get(holder)
            if broker is not None:
                await _refused(broker)
                found = await self._verify(holder, witnesses)
                if found is not None:
                    return found
            await asyncio.sleep(_LOOK_AGAIN_S if broker is None else _LOOK_AGAIN_S / 10)

    async def _verify(self, holder: int, witnesses: Witnesses) -> Predecessor | None:
        """Look again, now that it is known under which epochs it holds the office and is registered."""
        office: Term = await self._run_zk(self._zk.office.read)
        registered: dict[int, BrokerInfo] = await self._run_zk(self._zk.brokers.live)
        broker = registered.get(holder)
        if office.holder != holder or broker is None or await look_at(broker.endpoint) is not Sight.REFUSED:
            return None
        if not await witnesses.confirm(broker, registered.values()) or self._is_leaving:
            return None
        _logger.warning("broker %d, the controller, is gone: its address, %s, refuses connections", *broker[:2])
        return Predecessor(office, broker)


async def _refused(broker: BrokerInfo) -> None:
    """Wait until the broker's address refuses connections."""
    refused = asyncio.Event()
    vigil = Vigil(broker.endpoint, lambda sight: refused.set() if sight is Sight.REFUSED else None)
    try:
        await refused.wait()
    finally:
        await vigil.close()
