"""Which registered brokers are gone though their sessions last: the controller's eye on each of them.

Invariants: a broker is taken for gone under one registration (id and epoch), never under the next; only after this
controller has no connection to it, was refused one, and ``witnesses`` confirmed it; and for as long as nothing takes
connections at its address. It is taken back by what brought it down: a connection, once that has lasted. What is
known here ends with the term; the next controller sees for itself.

That the registration stays in ZooKeeper makes it reversible, for any kind of broker: one that lives after all need not
notice anything, keeps its session, and is told what it has missed as if it had just started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from sparklog.controller.witnesses import Witnesses
from sparklog.net.tasks import Tasks
from sparklog.net.vigil import Sight, Vigil
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
_FIRST_TRIAL_S, _LONGEST_TRIAL_S = 0.5, 20.0
"""How long a connection must last before a broker is taken back; twice as long each time it goes again.

Shorter than a listener that authenticates keeps a connection that says nothing (``net/server.py``).
"""


class _Watched:
    """A registered broker under one epoch."""

    def __init__(self, broker: BrokerInfo) -> None:
        self.broker = broker
        self.is_gone = False
        self.is_leaving = False
        self.sight = Sight.UNKNOWN
        self.asking: asyncio.Task[None] | None = None
        self.trial_s = _FIRST_TRIAL_S
        self.trial: asyncio.TimerHandle | None = None
        self.vigil: Vigil | None = None


class Vigils:
    """Belongs to the loop's thread. ``on_change`` is told when a broker is taken for gone, or back."""

    def __init__(self, broker_id: int, witnesses: Witnesses | None, on_change: Callable[[], None]) -> None:
        """Without ``witnesses`` nothing is watched, and a broker lives as long as its session."""
        self._id = broker_id
        self._witnesses = witnesses
        self._on_change = on_change
        self._watched: dict[int, _Watched] = {}
        self._tasks = Tasks(
            asyncio.get_running_loop(),
            lambda what, error: _logger.error("watching %s failed", what, exc_info=error),
        )

    def living(self, registered: dict[int, BrokerInfo]) -> dict[int, BrokerInfo]:
        """Those of the registered brokers that are not gone; they are watched from now on, and no others."""
        for id_ in [id_ for id_, each in self._watched.items() if registered.get(id_) != each.broker]:
            self._leave(self._watched.pop(id_))
        for id_ in registered.keys() - self._watched.keys() - {self._id}:
            self._watch(registered[id_])
        return {id_: each for id_, each in registered.items() if not self._is_gone(id_)}

    def expect_stop(self, broker_id: int) -> None:
        """The broker has said that it is about to stop: until it registers anew its end is no surprise."""
        if broker_id in self._watched:
            self._watched[broker_id].is_leaving = True

    def misses(self, members: Iterable[int]) -> bool:
        """Whether one of them is gone, but may be back before its session ends: with what no other may have."""
        return any(self._is_gone(id_) for id_ in members)

    def _is_gone(self, broker_id: int) -> bool:
        return broker_id in self._watched and self._watched[broker_id].is_gone

    def begin(self, gone: BrokerInfo) -> None:
        """In the place of a controller that is gone: it is not waited for as a broker either."""
        self._watch(gone)
        self._give_up(self._watched[gone.id])

    def _watch(self, broker: BrokerInfo) -> None:
        if self._witnesses is not None:
            watched = self._watched[broker.id] = _Watched(broker)
            watched.vigil = Vigil(broker.endpoint, lambda sight: self._see(watched, sight))

    def _see(self, watched: _Watched, sight: Sight) -> None:
        watched.sight = sight
        if sight is not Sight.REACHED and watched.trial is not None:
            watched.trial.cancel()
            watched.trial = None
        if watched.is_gone and sight is Sight.REACHED and watched.trial is None:
            watched.trial = asyncio.get_running_loop().call_later(watched.trial_s, self._take_back, watched)
        elif not watched.is_gone and sight is Sight.REFUSED and watched.asking is None:
            watched.asking = self._tasks.spawn(self._ask(watched), f"broker {watched.broker.id}")

    async def _ask(self, watched: _Watched) -> None:
        assert self._witnesses is not None
        live = [each.broker for each in self._watched.values() if not each.is_gone]
        try:
            is_gone = await self._witnesses.confirm(watched.broker, live)
        finally:
            watched.asking = None
        if is_gone and watched.sight is Sight.REFUSED and self._watched.get(watched.broker.id) is watched:
            text = "broker %d is gone: its address, %s, refuses connections; its session is not waited for"
            if watched.is_leaving:
                text = "broker %d has stopped, as it said that it would: its address, %s, refuses connections"
            level = logging.INFO if watched.is_leaving else logging.WARNING
            _logger.log(level, text, watched.broker.id, watched.broker.endpoint)
            self._give_up(watched)
            self._on_change()

    @staticmethod
    def _give_up(watched: _Watched) -> None:
        watched.is_gone = True
        watched.trial_s = min(2 * watched.trial_s, _LONGEST_TRIAL_S)

    def _take_back(self, watched: _Watched) -> None:
        _logger.warning("broker %d takes connections again, under the same registration", watched.broker.id)
        watched.trial, watched.is_gone = None, False
        self._on_change()

    def _leave(self, watched: _Watched) -> None:
        if watched.trial is not None:
            watched.trial.cancel()
        if watched.asking is not None:
            watched.asking.cancel()
        if watched.vigil is not None:
            self._tasks.spawn(watched.vigil.close())

    async def close(self) -> None:
        """Watch nobody, and forget what was seen."""
        watched, self._watched = self._watched, {}
        for each in watched.values():
            self._leave(each)
        await self._tasks.finish()
