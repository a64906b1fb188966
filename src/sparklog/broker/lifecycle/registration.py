"""The broker's registration in ZooKeeper: made, and made again after every lost session.

Invariants:

- Until the registration of the present session is known, the fence holds what controllers send.
- An error of ZooKeeper or a lost answer only delays it: it is tried again, with growing pauses, for as long as the
  broker lives. Only an id, or at the start an address, that another session has held for longer than any dead session
  is kept ends the broker.
- A broker that has stopped cleanly says since which epoch it has lost nothing. One that has not says so from its second
  registration on: what it has since its first is not lost with a session.
- A registration is taken over only from a process that is proved dead (``predecessor``), by ending that session.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from sparklog.broker.fence import ControllerFence
from sparklog.broker.lifecycle.predecessor import SessionFiles
from sparklog.clock import Clock
from sparklog.errors import CoordinationError, RegistrationTaken
from sparklog.zk.client import ZkClient
from sparklog.zk.znode_client import SessionEvent
from sparklog.zk.znodes import BrokerInfo

T = TypeVar("T")

_logger = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_LEAST_TIMEOUT_S = 4.0
"""ZooKeeper grants no session less than two of its ticks, which are of 2 s unless it is told otherwise."""
_SHORT_SILENCE_S = 1.0
"""A broker that was suspended hears of its lost connection when it wakes, and connects again at once."""
_TIMEOUTS_TO_WAIT = 2
"""A dead session is kept for its timeout and at most a tick."""


class Registration:
    """``on_registered`` is told of each registration but the first. All of it lives on the broker's loop."""

    def __init__(
        self,
        info: BrokerInfo,
        zk: ZkClient,
        run_zk: Callable[..., Awaitable[Any]],
        fence: ControllerFence,
        files: SessionFiles,
        clock: Clock,
        session_timeout: float,
    ) -> None:
        self._info = info
        self._zk = zk
        self._run_zk = run_zk
        self._fence = fence
        self._files = files
        self._clock = clock
        self._patience = _TIMEOUTS_TO_WAIT * max(session_timeout, _LEAST_TIMEOUT_S)
        self._session = 0
        self._has_been = False
        self._losses = 0
        self.events: Counter[str] = Counter()
        """How often each of ``SessionEvent`` was heard of."""
        self._silent_since: float | None = None
        self._look = asyncio.Event()
        self._given_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def on_session(self, event: str) -> None:
        """Told of each event of the session, in their order."""
        self.events[event] += 1
        if event == SessionEvent.CONNECTED:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self._clock.monotonic()
        if event == SessionEvent.EXPIRED:
            _logger.warning("the ZooKeeper session is lost; registering again when ZooKeeper is back")
            self._session = 0
            self._losses += 1
            self._fence.unregistered()
        elif event == SessionEvent.CONNECTED:
            self._look.set()

    @property
    def is_connected(self) -> bool:
        """Whether a ZooKeeper answers, as far as is known."""
        return self._silent_since is None

    def say_if_silent(self) -> None:
        """What waits for ZooKeeper waits without a word, so an operator is told, each time that this is called."""
        silence_s = 0.0 if self._silent_since is None else self._clock.monotonic() - self._silent_since
        if silence_s > _SHORT_SILENCE_S:
            _logger.warning(
                "no ZooKeeper has taken this broker's connection for %.0f s: no leader is elected, and no topic,"
                " setting or ISR changes, until one does. Is it running? One that has lost its data directory, or was"
                " set back to an older state, refuses brokers that have seen more",
                silence_s,
            )

    def follow(self, on_registered: Callable[[], None], on_failure: Callable[[BaseException], None]) -> None:
        """Register again whenever there is a new session, from now on."""
        self._task = asyncio.ensure_future(self._run(on_registered))

        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None and not self._given_up.is_set():
                on_failure(error)

        self._task.add_done_callback(ended)

    async def close(self) -> None:
        """Register no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, on_registered: Callable[[], None]) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            if self._session != self._zk.session_id:
                await self.register()
                on_registered()

    @property
    def unbroken_since(self) -> int | None:
        """The epoch since which the broker has lost nothing; None if it has not been registered since it did."""
        return self._info.unbroken_since

    def give_up(self) -> None:
        """The broker is to stop: do not wait for ZooKeeper, nor for a controller, any more."""
        self._given_up.set()

    async def register(self) -> None:
        """Returns when the broker is registered.

        Raises BrokerIdTaken or BrokerAddressTaken if another broker has its id, or its address, and keeps it;
        CoordinationError after ``give_up``.
        """
        await self.unless_given_up(self._try(), "ZooKeeper had registered it")

    async def unless_given_up(self, work: Coroutine[Any, Any, T], outcome: str) -> T:
        """What ``work`` comes to. Raises CoordinationError after ``give_up``: it stopped before that ``outcome``."""
        trying = asyncio.ensure_future(work)
        given_up = asyncio.ensure_future(self._given_up.wait())
        try:
            await asyncio.wait((trying, given_up), return_when=asyncio.FIRST_COMPLETED)
            if not trying.done():
                raise CoordinationError(f"broker {self._info.id} was stopped before {outcome}")
            return trying.result()
        finally:
            trying.cancel()
            given_up.cancel()

    async def _try(self) -> None:
        pause, owner, since = _FIRST_PAUSE_S, 0, 0.0
        while True:
            try:
                await self._attempt()
                return
            except RegistrationTaken as error:
                if error.owner != owner:
                    owner, since = error.owner, self._clock.monotonic()
                    _logger.warning("%s; waiting %.0f s for that session to end", error, self._patience)
                elif self._clock.monotonic() - since > self._patience:
                    raise
            except CoordinationError as error:
                owner = 0  # nor does a session end while ZooKeeper is away
                _logger.warning("the broker could not be registered, trying again: %s", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _attempt(self) -> None:
        session, losses = self._zk.session, self._losses
        if not session.id:  # what is asked now is done under the next one, which the files would not name
            raise CoordinationError("there is no ZooKeeper session yet")
        await asyncio.to_thread(self._files.write, session)
        holder = await self._run_zk(self._zk.brokers.owner, self._info.id)
        dead = None if holder is None else self._files.session_of_dead(holder)
        if dead is not None:
            await self._run_zk(self._zk.end_session, dead)
        if not self._has_been:
            await self._run_zk(self._zk.brokers.check_addresses, self._info)
        epoch = await self._run_zk(self._zk.brokers.register, self._info, self._clock.now_ms())
        if losses != self._losses:  # the loop hears of an answer later than of what came after it
            raise CoordinationError("the session was lost meanwhile")
        self._session, self._has_been = session.id, True
        if self._info.unbroken_since is None or self._info.unbroken_since > epoch:
            self._info = self._info._replace(unbroken_since=epoch)
        self._fence.registered(epoch)
