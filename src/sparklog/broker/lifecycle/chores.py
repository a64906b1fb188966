"""What a broker does again and again while it runs, beside the requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from sparklog.broker.context import BrokerContext
from sparklog.broker.lifecycle.registration import Registration
from sparklog.broker.retention import RetentionRounds
from sparklog.log.directories.manager import LogManager
from sparklog.net.turns import Turns
from sparklog.protocol.slices import Steps

_logger = logging.getLogger(__name__)
_GRANTS_INTERVAL_MS = 1000
_SILENCE_INTERVAL_MS = 30_000
Work = Callable[[], object]


class Chores:
    """Each begins when its interval has passed, and begins again an interval after its end."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, interval_ms: int, work: Work) -> None:
        """Do ``work`` every ``interval_ms`` from now on, in steps if it has any, or to its end where it is a coroutine.

        A failure is logged and does not end it.
        """
        self._tasks.append(asyncio.get_running_loop().create_task(self._every(interval_ms, work)))

    def begin_all(self, broker: BrokerContext, logs: LogManager, registration: Registration) -> None:
        """Begin those of a broker that serves."""
        for interval_ms, work in _regular(broker, logs, registration):
            self.begin(interval_ms, work)

    def cancel(self) -> None:
        """End them all."""
        for task in self._tasks:
            task.cancel()

    async def _every(self, interval_ms: int, work: Work) -> None:
        turns = self._turns
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                with turns.watched(lambda: str(work)):
                    begun = work()
                await turns.outcome(begun, lambda: str(work))
            except Exception:
                _logger.exception("%s failed", work)


def _regular(broker: BrokerContext, logs: LogManager, registration: Registration) -> Iterator[tuple[int, Work]]:
    """What there is to do, with its interval in milliseconds."""
    config, duties = broker.config, _Duties(broker)
    retention = RetentionRounds(
        broker.replicas, broker.groups, broker.metadata, broker.peers, broker.turns, broker.clock
    )
    checkpoint_ms = min(  # all of them are written each time
        config.log_flush_offset_checkpoint_interval_ms,
        config.log_flush_start_offset_checkpoint_interval_ms,
        config.replica_high_watermark_checkpoint_interval_ms,
    )
    yield checkpoint_ms, logs.checkpoint_later
    yield config.log_flush_scheduler_interval_ms, logs.flush_due
    yield config.leader_imbalance_check_interval_seconds * 1000, duties.rebalance
    yield max(config.replica_lag_time_max_ms // 2, 1), broker.replicas.leave_out_lagging
    yield config.producer_id_expiration_check_interval_ms, logs.expire_producers
    yield config.offsets_retention_check_interval_ms, broker.groups.expire_offsets
    yield config.log_retention_check_interval_ms, retention.run
    yield config.transaction_abort_timed_out_interval_ms, broker.transactions.abort_timed_out
    yield config.transaction_remove_expired_interval_ms, broker.transactions.expire_ids
    yield _GRANTS_INTERVAL_MS, broker.cleaning_grants.tend
    yield _GRANTS_INTERVAL_MS, broker.adopter.tend
    yield _SILENCE_INTERVAL_MS, registration.say_if_silent
    yield config.delegation_token_expiry_check_interval_ms, duties.remove_ended_tokens


class _Duties:
    """What the broker that is the controller does for all."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = broker.config
        self._controller = broker.controller
        self._tokens = broker.tokens

    def rebalance(self) -> Steps[None]:
        if self._config.auto_leader_rebalance_enable:
            yield from self._controller.rebalance(self._config.leader_imbalance_per_broker_percentage)

    async def remove_ended_tokens(self) -> None:
        if self._tokens is not None and self._controller.is_active:
            await self._tokens.remove_ended()
